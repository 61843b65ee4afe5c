// Command that a client began in a sandbox: what it prints waits here until the client has it, and its input comes in order.

import type { RunResult, RunningCommand } from '@acode/sandbox';
import { paused } from '../engine/retry.ts';
import type { LogChunk } from '../tasks/log-pieces.ts';
import { PART_BYTES } from './protocol.ts';
import type { CallOf, ExecAnswer, execAnswers } from './protocol.ts';

/** How long a call waits for something to happen. */
export const WAIT_MS = 4000;
/** Output that nobody has read: beyond that it is not read from the command either. */
const MAX_UNREAD = 2 * 1024 ** 2;

/** One command that a client began. */
export class CalledCommand {
  readonly #running: RunningCommand | null;
  readonly #cancel: AbortController;
  readonly #fitted: (result: RunResult) => RunResult;
  readonly #unread: LogChunk[] = [];
  /** The number of the last piece that was forgotten. */
  #forgotten = 0;
  #unreadBytes = 0;
  #written = 0;
  #isClosed = false;
  #writing: Promise<void> = Promise.resolve();
  #end: { readonly result: RunResult } | { readonly error: Error } | null = null;
  #changed = new AbortController();

  constructor(begun: unknown, cancel: AbortController, fitted: (result: RunResult) => RunResult) {
    const running = isRunning(begun) ? begun : null;
    this.#running = running;
    this.#cancel = cancel;
    this.#fitted = fitted;
    if (running) void this.#pump(running);
    else this.#end = { error: errorOf(begun) };
  }

  /** Whether it has ended, or never started. */
  get isOver(): boolean {
    return this.#end !== null;
  }

  /** Throws why it never started. */
  assertBegun(): void {
    if (!this.#running && this.#end && 'error' in this.#end) throw this.#end.error;
  }

  /** What it printed after a piece, or its end; waits for either. */
  async follow(after: number): Promise<ExecAnswer> {
    this.#forget(after);
    if (this.#unread.length === 0 && !this.#end) await paused(WAIT_MS, this.#changed.signal);
    const pieces = this.#next();
    // The end comes behind the last piece.
    const end = pieces.length === this.#unread.length ? this.#end : null;
    if (end && 'error' in end && pieces.length === 0) throw end.error;
    return told(
      'follow',
      {
        pieces: pieces.map(({ stream, bytes: { length } }) => ({ stream, length })),
        last: this.#forgotten + pieces.length,
        ...(end && 'result' in end ? { result: this.#fitted(end.result) } : {}),
      },
      Buffer.concat(pieces.map(piece => piece.bytes)),
    );
  }

  // As many of the unread pieces as a message has.
  #next(): LogChunk[] {
    let bytes = 0;
    const tooMany = this.#unread.findIndex((piece, at) => (bytes += piece.bytes.length) > PART_BYTES && at > 0);
    return this.#unread.slice(0, tooMany === -1 ? undefined : tooMany);
  }

  /** Takes input; a part that came before changes nothing. */
  async write({ at, end }: CallOf<'write'>, bytes: Uint8Array): Promise<ExecAnswer> {
    const running = this.#running;
    if (running && at === this.#written && !this.#isClosed) {
      this.#written += bytes.length;
      this.#isClosed = end;
      this.#writing = this.#wrote(running, bytes.slice(), end);
      this.#writing.catch(() => undefined);
    }
    // A command that does not read holds its writer up, and nobody else.
    const isTaken = await within(
      WAIT_MS,
      this.#writing.then(() => true),
    );
    return told('write', { taken: isTaken ? this.#written : at });
  }

  async #wrote(running: RunningCommand, bytes: Uint8Array, end: boolean): Promise<void> {
    await this.#writing;
    if (bytes.length > 0) await running.write(bytes);
    if (end) await running.closeStdin();
  }

  /** Sends a signal; null cancels it. */
  async signal(signal: string | null): Promise<ExecAnswer> {
    if (signal === null) this.#cancel.abort();
    else if (!this.#end) await this.#running?.kill(signal);
    return told('signal', {});
  }

  #forget(upTo: number): void {
    const count = Math.min(this.#unread.length, Math.max(0, upTo - this.#forgotten));
    for (const { bytes } of this.#unread.splice(0, count)) this.#unreadBytes -= bytes.length;
    this.#forgotten += count;
    if (count > 0) this.#wake();
  }

  async #pump(running: RunningCommand): Promise<void> {
    const read = async (stream: 1 | 2, source: AsyncIterable<Uint8Array>): Promise<void> => {
      for await (const chunk of source) {
        for (let at = 0; at < chunk.length; at += PART_BYTES) this.#add(stream, chunk.slice(at, at + PART_BYTES));
        while (this.#unreadBytes > MAX_UNREAD && !this.#cancel.signal.aborted) await this.#change();
      }
    };
    try {
      await Promise.all([read(1, running.stdout), read(2, running.stderr)]);
      this.#end = { result: await running.result };
    } catch (error) {
      // A command that was cancelled rejects.
      const reason: unknown = await running.result.then(
        () => error,
        (why: unknown) => why,
      );
      this.#end = { error: errorOf(reason) };
    }
    this.#wake();
  }

  #add(stream: 1 | 2, bytes: Uint8Array): void {
    this.#unread.push({ stream, bytes });
    this.#unreadBytes += bytes.length;
    this.#wake();
  }

  async #change(): Promise<void> {
    await paused(WAIT_MS, AbortSignal.any([this.#changed.signal, this.#cancel.signal]));
  }

  #wake(): void {
    const changed = this.#changed;
    this.#changed = new AbortController();
    changed.abort();
  }
}

/** An answer of one verb. */
export function told<Verb extends keyof typeof execAnswers>(
  _verb: Verb,
  value: (typeof execAnswers)[Verb]['_output'],
  bytes?: Uint8Array,
): ExecAnswer {
  return { value, bytes };
}

/** What settles within a time; else null. The timer does not outlive the wait. */
export async function within<Value>(ms: number, work: Promise<Value> | undefined): Promise<Value | null | undefined> {
  const enough = new AbortController();
  try {
    return await Promise.race([work, paused(ms, enough.signal)]);
  } finally {
    enough.abort();
  }
}

function errorOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

function isRunning(value: unknown): value is RunningCommand {
  return typeof value === 'object' && value !== null && 'stdout' in value && 'result' in value;
}
