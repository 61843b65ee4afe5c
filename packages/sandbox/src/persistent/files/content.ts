// The content of files inside: read and written as bytes, at once or as a stream with backpressure.

import { Readable } from 'node:stream';
import type { FileCall, WriteFlag } from '../../contract/sandbox.ts';
import type { Conversation } from './conversation.ts';
import { abortError, rangeError, typeError } from './errno.ts';
import type { Attempt } from './errno.ts';
import type { Place, Programs, Task } from './programs.ts';
import { APPEND, READ, WRITE, WRITE_NEW } from './scripts.ts';
import type { Script } from './scripts.ts';
import { AcodeError } from '../../contract/errors.ts';

const MAX_READ = 1024 ** 3;
// What is at once in memory anyway is sent at once.
const PORTION = 256 * 1024;
const CONTENT_MS = 600_000;
const PERMISSIONS = 0o777;
const EXECUTION = 0o111;

// Node names neither the file nor `open` when what is open cannot be read or written.
const READING: Readonly<Record<string, Attempt>> = { EISDIR: { syscall: 'read' }, EIO: { syscall: 'read' } };
/** The same for what is written. */
export const WRITING: Readonly<Record<string, Attempt>> = {
  ENOSPC: { syscall: 'write' },
  EDQUOT: { syscall: 'write' },
  EFBIG: { syscall: 'write' },
  EIO: { syscall: 'write' },
};

/** All of a file. */
export async function readWhole(programs: Programs, place: Place, { signal }: FileCall): Promise<Buffer> {
  return programs.run(readTask(place, signal), { maxBytes: MAX_READ, withinMs: CONTENT_MS });
}

/** A file as a stream: nothing is read before the caller reads. */
export function streamOf(
  programs: Programs,
  place: () => Place,
  { encoding, signal }: { readonly encoding?: BufferEncoding } & FileCall,
): Readable {
  const stop = new AbortController();
  const leave = (): void => void stream.destroy(abortError(signal?.reason));
  let chunks: AsyncGenerator<Buffer, void, undefined> | null = null;
  const stream = new Readable({
    ...(encoding && { encoding }),
    read() {
      chunks ??= contentOf(programs, place, stop.signal);
      chunks.next().then(
        ({ done, value }) => this.push(done ? null : (value ?? null)),
        (error: unknown) => this.destroy(error instanceof Error ? error : new Error(String(error))),
      );
    },
    destroy(error, done) {
      signal?.removeEventListener('abort', leave);
      stop.abort();
      done(error);
    },
  });
  if (signal?.aborted) leave();
  else signal?.addEventListener('abort', leave, { once: true });
  return stream;
}

async function* contentOf(
  programs: Programs,
  place: () => Place,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void, undefined> {
  using conversation = await programs.open(readTask(place(), signal));
  yield* conversation.chunks();
  await conversation.finish();
}

function readTask(place: Place, signal: AbortSignal | undefined): Task {
  return {
    script: READ,
    words: [place.inside],
    operation: 'readFile',
    attempt: { syscall: 'open', path: place.written },
    unless: READING,
    signal,
  };
}

/** How a file is written. */
export interface Writing extends FileCall {
  /** From its beginning, at its end, or only where there is none yet. */
  readonly flag: WriteFlag;
  /** Of text. */
  readonly encoding?: BufferEncoding;
  /** Of a file that was not there. */
  readonly mode?: number;
  /** The name of the call, for the error that the image lacks a program. */
  readonly operation: string;
}

const WRITERS: Readonly<Record<WriteFlag, Script>> = { w: WRITE, a: APPEND, wx: WRITE_NEW };

/** Writes a file. */
export async function write(
  programs: Programs,
  place: Place,
  data: string | Uint8Array | Readable,
  { flag, encoding = 'utf8', mode, operation, signal }: Writing,
): Promise<void> {
  const task: Task = {
    script: WRITERS[flag],
    words: [place.inside, ...modeWords(mode)],
    operation,
    attempt: { syscall: 'open', path: place.written },
    unless: WRITING,
    signal,
  };
  return put(programs, task, data, encoding);
}

async function put(programs: Programs, task: Task, data: unknown, encoding: BufferEncoding): Promise<void> {
  const bytes = typeof data === 'string' ? Buffer.from(data, encoding) : data;
  if (bytes instanceof Uint8Array && bytes.length <= PORTION) {
    await programs.run(task, { input: bytes, withinMs: CONTENT_MS });
    return;
  }
  if (bytes instanceof Uint8Array) return send(programs, task, portions(bytes));
  if (!(bytes instanceof Readable))
    throw typeError('data', 'of type string, or an instance of Uint8Array or Readable', data);
  return send(programs, task, inBytes(bytes, encoding));
}

// The chunks of a stream may be text, of the same encoding as text at once.
async function* inBytes(
  source: AsyncIterable<unknown>,
  encoding: BufferEncoding,
): AsyncGenerator<unknown, void, undefined> {
  for await (const chunk of source) yield typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk;
}

function* portions(bytes: Uint8Array): Generator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += PORTION) yield bytes.subarray(at, at + PORTION);
}

/** Sends everything to a task and waits for its end. If that fails, removes what it left after it has ended. */
export async function send(
  programs: Programs,
  task: Task,
  source: AsyncIterable<unknown> | Iterable<Uint8Array>,
  undo?: () => Promise<void>,
): Promise<void> {
  using conversation = await programs.open(task);
  try {
    await pour(conversation, source);
    await conversation.finish();
  } catch (error) {
    if (undo) {
      await conversation.end();
      await undo();
    }
    throw error;
  }
}

async function pour(conversation: Conversation, source: AsyncIterable<unknown> | Iterable<Uint8Array>): Promise<void> {
  for await (const chunk of source) {
    if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array))
      throw typeError('data', 'of type string or an instance of Uint8Array', chunk);
    if (!(await conversation.send(chunk))) return;
  }
}

/** The mode of a new file as arguments of a program: the bits it does not have, and those to run it. */
export function modeWords(mode: number | undefined): [masked: string, execution: string] {
  if (mode === undefined) return ['', ''];
  const bits = checkedMode(mode) & PERMISSIONS;
  return [octal(~bits & PERMISSIONS), (bits & EXECUTION) === 0 ? '' : octal(bits)];
}

/** A mode as a number that makes sense. */
export function checkedMode(mode: unknown): number {
  if (typeof mode !== 'number') throw typeError('mode', 'of type number', mode);
  if (!Number.isInteger(mode)) throw rangeError('mode', 'an integer', mode);
  if (mode < 0 || mode > 0xffffffff) throw rangeError('mode', '>= 0 && <= 4294967295', mode);
  return mode;
}

/** Digits for a program. */
export function octal(bits: number): string {
  return bits.toString(8);
}

const LEAST_ROOM = 4096;
// What is cut in one go: more pieces than this has bytes never come at once.
const STEP = 16 * 1024;

/** What a listing is of, and how large it may be. */
export interface ListingBounds {
  /** As the caller wrote it. */
  readonly path: string;
  readonly maxBytes: number;
  readonly maxEntries: number;
}

/** The pieces of one listing. */
export class Pieces {
  readonly #bounds: ListingBounds;
  readonly #encoding: 'utf8' | 'latin1';
  readonly #longest: () => number;
  #room = Buffer.alloc(0);
  #held = 0;
  #bytes = 0;

  /** `longest` is how long the piece may be that is not complete yet. */
  constructor(bounds: ListingBounds, encoding: 'utf8' | 'latin1', longest: () => number) {
    this.#bounds = bounds;
    this.#encoding = encoding;
    this.#longest = longest;
  }

  /** Whether something came after the last NUL. */
  get hasRest(): boolean {
    return this.#held > 0;
  }

  /** The pieces that end in this chunk, some at a time. */
  *cut(chunk: Buffer): Generator<string[], void, undefined> {
    const { path, maxBytes } = this.#bounds;
    this.#bytes += chunk.length;
    if (this.#bytes > maxBytes) throw tooLarge(path, `${maxBytes} bytes`);
    for (let at = 0; at < chunk.length; at += STEP) {
      const part = chunk.subarray(at, at + STEP);
      const end = part.lastIndexOf(0);
      if (end !== -1) yield this.#whole(part, end);
      // Only now is it known what the rest is the beginning of.
      this.#hold(part.subarray(end + 1));
    }
  }

  #whole(part: Buffer, end: number): string[] {
    if (this.#held === 0) return part.toString(this.#encoding, 0, end).split('\0');
    const first = part.indexOf(0);
    this.#hold(part.subarray(0, first));
    const piece = this.#room.toString(this.#encoding, 0, this.#held);
    this.#held = 0;
    return first === end ? [piece] : [piece, ...part.toString(this.#encoding, first + 1, end).split('\0')];
  }

  // Copied into room that doubles: bytes that come one by one would each keep their whole chunk otherwise.
  #hold(rest: Buffer): void {
    const length = this.#held + rest.length;
    if (length > this.#longest()) throw refused(this.#bounds.path, 'a part of it has no end');
    if (length > this.#room.length) {
      const room = Buffer.allocUnsafe(Math.max(LEAST_ROOM, 2 * length));
      this.#room.copy(room, 0, 0, this.#held);
      this.#room = room;
    }
    rest.copy(this.#room, this.#held);
    this.#held = length;
  }
}

/** The error for more than anybody should wait for. */
export function tooLarge(path: string, limit: string): AcodeError {
  return new AcodeError('ACODE-FIL-003', { path, limit });
}

/** The error for what no program of acode’s would have printed. */
export function refused(path: string, fault: string): AcodeError {
  return new AcodeError('ACODE-FIL-002', { path, reason: `it is not a listing: ${fault}` });
}
