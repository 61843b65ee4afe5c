// A program inside while something streams to or from it: with backpressure on both sides, and an error when one has stopped.

import type { Clock } from '../../contract/ports.ts';
import type { Inside, InsideEnd, InsideProgram } from '../../isolation/backend.ts';

// Long enough for a machine that is busy with others, and for a tar that looks through a large tree.
const STALL_MS = 120_000;
const LEAVE_MS = 5000;

/** What a conversation is about, and what its mistakes are called. */
export interface Matter {
  readonly argv: readonly string[];
  readonly signal: AbortSignal | undefined;
  readonly failure: (end: InsideEnd) => Error;
  readonly stalled: () => Error;
  readonly translate: (error: unknown) => unknown;
}

/** An open conversation. Disposing of it ends the program. */
export class Conversation implements Disposable {
  readonly #program: InsideProgram;
  readonly #clock: Clock;
  readonly #matter: Matter;
  readonly #stop: AbortController;
  readonly #leave: () => void;
  #over = false;
  #silence: (() => void) | null = null;

  private constructor(program: InsideProgram, clock: Clock, matter: Matter, stop: AbortController, leave: () => void) {
    this.#program = program;
    this.#clock = clock;
    this.#matter = matter;
    this.#stop = stop;
    this.#leave = leave;
    const ended = (): void => {
      this.#over = true;
      this.#silence?.();
    };
    program.ended.then(ended, ended);
  }

  static async open(inside: Inside, clock: Clock, matter: Matter): Promise<Conversation> {
    const stop = new AbortController();
    const leave = (): void => stop.abort(matter.signal?.reason);
    matter.signal?.addEventListener('abort', leave, { once: true });
    const cancel = clock.after(STALL_MS, () => stop.abort(matter.stalled()));
    try {
      return new Conversation(await inside.open(matter.argv, stop.signal), clock, matter, stop, leave);
    } catch (error) {
      matter.signal?.removeEventListener('abort', leave);
      throw matter.translate(stop.signal.aborted ? stop.signal.reason : error);
    } finally {
      cancel();
    }
  }

  /** What it prints, as it comes. */
  async *chunks(): AsyncGenerator<Buffer, void, undefined> {
    const source: AsyncIterator<unknown> = this.#program.stdout[Symbol.asyncIterator]();
    for (;;) {
      const step = await this.#patiently(source.next());
      if (step.done) return;
      if (step.value instanceof Uint8Array) yield asBuffer(step.value);
    }
  }

  /** Sends it something; false once it has ended and takes nothing any more. */
  async send(data: Uint8Array | string): Promise<boolean> {
    if (this.#over) return false;
    try {
      await this.#patiently(this.#unlessOver(this.#program.write(data)));
    } catch (error) {
      if (this.#stop.signal.aborted) throw error;
      // Its exit status says why it takes no more input, and `finish` knows that.
      return false;
    }
    return !this.#over;
  }

  /** Tells it that nothing more comes, waits for its end, and raises what it failed with. */
  async finish(isFine: (end: InsideEnd) => boolean = () => false): Promise<InsideEnd> {
    // A program that has ended needs no message.
    if (!this.#over) await this.#patiently(this.#unlessOver(this.#program.closeStdin())).catch(() => undefined);
    this.#program.stdout.resume();
    const end = await this.#patiently(this.#program.ended);
    if (end.exitCode !== 0 && !isFine(end)) throw this.#matter.failure(end);
    return end;
  }

  /** Ends the program, and waits until it has ended, or for a while. */
  async end(): Promise<void> {
    this[Symbol.dispose]();
    let cancel = (): void => undefined;
    const patience = new Promise<void>(resolve => (cancel = this.#clock.after(LEAVE_MS, resolve)));
    await Promise.race([this.#program.ended.catch(() => undefined), patience]);
    cancel();
  }

  [Symbol.dispose](): void {
    this.#matter.signal?.removeEventListener('abort', this.#leave);
    if (this.#over) return;
    this.#program.stdout.on('error', () => undefined);
    this.#program.ended.catch(() => undefined);
    this.#program.destroy();
  }

  // A program that ends without reading would leave a write waiting for ever.
  async #unlessOver(work: Promise<void>): Promise<void> {
    const over = new Promise<void>(resolve => (this.#silence = resolve));
    try {
      await Promise.race([work, over]);
    } finally {
      this.#silence = null;
    }
  }

  async #patiently<Value>(work: Promise<Value>): Promise<Value> {
    const { signal } = this.#stop;
    const cancel = this.#clock.after(STALL_MS, () => this.#stop.abort(this.#matter.stalled()));
    let leave = (): void => undefined;
    const stopped = new Promise<never>((_, reject) => {
      leave = () => reject(signal.reason);
      if (signal.aborted) leave();
      else signal.addEventListener('abort', leave, { once: true });
    });
    try {
      return await Promise.race([work, stopped]);
    } catch (error) {
      throw this.#matter.translate(signal.aborted ? signal.reason : error);
    } finally {
      cancel();
      signal.removeEventListener('abort', leave);
    }
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
