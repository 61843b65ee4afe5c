// Background command of an MCP session: its buffered output, and how it ended.

import type { RunResult } from '@acode/sandbox';
import type { InsideHandle } from './host.ts';
import { mcpError } from './errors.ts';

// The newest of it; what a model did not read by then it will hardly want.
const MAX_CHARACTERS = 1024 ** 2;
const MAX_UNREAD = 8 * 1024 ** 2;

/** A part of what a command printed. */
export interface Printed {
  readonly text: string;
  /** Where the part begins, counted from the first character the command ever printed. */
  readonly from: number;
  /** Where to go on reading. */
  readonly next: number;
}

/** A command in the background. */
export class BackgroundCommand {
  readonly id: string;
  readonly sandboxId: string;
  readonly #handle: InsideHandle;
  readonly #most: number;
  #text = '';
  #dropped = 0;
  #lastRead = 0;
  #unread = 0;
  #outcome: { readonly result: RunResult } | { readonly error: unknown } | null = null;
  #changed = new AbortController();

  constructor(
    about: { readonly id: string; readonly sandboxId: string; readonly most?: number },
    handle: InsideHandle,
  ) {
    this.id = about.id;
    this.sandboxId = about.sandboxId;
    this.#most = about.most ?? MAX_CHARACTERS;
    this.#handle = handle;
    void this.#follow();
  }

  /** Its result, where it has ended; null while it runs. Throws what ended it, where that was no end of its own. */
  get result(): RunResult | null {
    if (this.#outcome === null) return null;
    if ('error' in this.#outcome) throw this.#outcome.error;
    return this.#outcome.result;
  }

  /** Whether it still runs. */
  get isRunning(): boolean {
    return this.#outcome === null;
  }

  /** What it printed from an offset on; by default, from where the last read ended. */
  read(most: number, offset = this.#lastRead): Printed {
    const from = Math.max(offset, this.#dropped);
    const text = this.#text.slice(from - this.#dropped, from - this.#dropped + most);
    this.#lastRead = from + text.length;
    return { text, from, next: this.#lastRead };
  }

  /** Waits until it prints something beyond a place, ends, or the time is over. */
  async waitFor(offset: number | undefined, ms: number, signal: AbortSignal): Promise<void> {
    const enough = AbortSignal.any([signal, AbortSignal.timeout(ms)]);
    const place = offset ?? this.#lastRead;
    while (this.isRunning && this.#dropped + this.#text.length <= place && !enough.aborted) {
      await fired(AbortSignal.any([enough, this.#changed.signal]));
    }
    signal.throwIfAborted();
  }

  /** Waits for its end, for a time. */
  async waitForEnd(ms: number, signal: AbortSignal): Promise<void> {
    const enough = AbortSignal.any([signal, AbortSignal.timeout(ms)]);
    while (this.isRunning && !enough.aborted) await fired(AbortSignal.any([enough, this.#changed.signal]));
  }

  /** Writes to its standard input. */
  async write(text: string): Promise<void> {
    const bytes = Buffer.byteLength(text);
    // Abandoned input is still queued: a command that reads nothing must not fill the memory of this process.
    if (this.#unread > 0 && this.#unread + bytes > MAX_UNREAD)
      throw mcpError('ACODE-MCP-010', {
        what: 'bytes of input that the command has not read',
        limit: MAX_UNREAD,
        remedy: 'Wait until it reads, or stop it with stop_command.',
      });
    this.#unread += bytes;
    try {
      await this.#handle.write(text);
    } finally {
      this.#unread -= bytes;
    }
  }

  /** Ends its standard input. */
  closeInput(): Promise<void> {
    return this.#handle.closeStdin();
  }

  /** Sends it a signal. */
  kill(signal: string): Promise<void> {
    return this.#handle.kill(signal);
  }

  async #follow(): Promise<void> {
    const streams = Promise.allSettled([this.#take(this.#handle.stdout), this.#take(this.#handle.stderr)]);
    try {
      const result = await this.#handle.result;
      await streams;
      this.#outcome = { result };
    } catch (error) {
      this.#outcome = { error };
    }
    this.#wake();
  }

  // Both streams in the order they came: that is how a person would see them.
  async #take(stream: AsyncIterable<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of stream) this.#add(decoder.decode(chunk, { stream: true }));
    this.#add(decoder.decode());
  }

  #add(text: string): void {
    if (text === '') return;
    const whole = this.#text + text;
    // Cut only now and then: a cut copies all that is kept.
    this.#text = whole.length > 2 * this.#most ? whole.slice(-this.#most) : whole;
    this.#dropped += whole.length - this.#text.length;
    this.#wake();
  }

  #wake(): void {
    const changed = this.#changed;
    this.#changed = new AbortController();
    changed.abort();
  }
}

function fired(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
