// Cuts what a program inside prints at each NUL. Whatever runs in the sandbox can print in the program’s place: nothing here
// takes more memory than it is allowed, nor more time than there are bytes.

import { AcodeError } from '../../contract/errors.ts';

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
  return new AcodeError('ACODE-FIL-002', { path, reason: `it is no listing, ${fault}` });
}
