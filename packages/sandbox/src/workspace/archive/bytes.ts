// Bytes of streams and paths: a stream read in pieces of a wanted length, and the targets of links as bytes.

import { lstatSync, readlinkSync } from 'node:fs';
import { bytes } from '../directory-look.ts';

/** Takes bytes in the order in which they come, holding no more than the last chunk. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At least one byte and at most so many; null at the end. */
  async some(most: number): Promise<Buffer | null> {
    while (this.#held.length === 0) {
      const step = await this.#source.next();
      if (step.done) return null;
      this.#held = step.value;
    }
    const piece = this.#held.subarray(0, most);
    this.#held = this.#held.subarray(piece.length);
    return piece;
  }

  /** Exactly so many bytes, or fewer where the stream ends before. */
  async exactly(length: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let left = length; left > 0;) {
      const piece = await this.some(left);
      if (!piece) break;
      pieces.push(piece);
      left -= piece.length;
    }
    const [only] = pieces;
    return only && pieces.length === 1 ? only : Buffer.concat(pieces);
  }

  /** A line without its end; null where there is none within so many bytes. */
  async line(longest: number): Promise<string | null> {
    let text = '';
    while (text.length < longest) {
      const byte = await this.some(1);
      if (!byte) return null;
      if (byte[0] === 0x0a) return text;
      text += byte.toString('latin1');
    }
    return null;
  }
}

// As many as the kernel follows.
const MAX_LINKS = 40;
// Links can make a way of 40 times 4,096 bytes; what is longer than this leads nowhere that a person would use.
const MAX_STEPS = 1000;

const UNLESS_GONE = { throwIfNoEntry: false } as const;

/** Where a path leads inside a directory. */
export interface LinkTarget {
  /** Relative to the directory, with no link left in it; empty for the directory itself. */
  readonly path: string;
  /** The links on the way, the one that was asked about first; relative to the directory. */
  readonly links: readonly string[];
}

/**
 * Where a path leads inside `root`, or null where it leads out, in a circle, or by too many steps. Asked of the links on its way too: an innocent
 * target may lead through a directory that is a link itself. All paths are byte strings, `path` relative to `root`.
 *
 * @param linkAt reads the target of a link at an absolute path; null where there is none.
 */
export function targetInside(root: string, path: string, linkAt?: (path: string) => string | null): LinkTarget | null {
  return resolved(root, path, linkAt ?? targetOf);
}

function resolved(root: string, path: string, linkAt: (path: string) => string | null): LinkTarget | null {
  const way = steps(path);
  const here: string[] = [];
  const links: string[] = [];
  let taken = 0;
  while (way.length > 0) {
    taken += 1;
    if (taken > MAX_STEPS) return null;
    const step = way.pop() ?? '';
    if (step === '..') {
      if (here.pop() === undefined) return null;
      continue;
    }
    const target = linkAt([root, ...here, step].join('/'));
    if (target === null) {
      here.push(step);
      continue;
    }
    links.push([...here, step].join('/'));
    if (links.length > MAX_LINKS) return null;
    const rest = inside(root, target);
    if (rest === null) return null;
    if (rest !== target) here.length = 0;
    way.push(...steps(rest));
  }
  return { path: here.join('/'), links };
}

/** A path as it was written somewhere: relative to `base`, or absolute; null for an absolute one outside `root`. */
export function writtenInside(root: string, base: string, written: string): string | null {
  const rest = inside(root, written);
  if (rest === null) return null;
  return rest === written ? `${base}/${written}` : rest;
}

// The last first, so that the next is taken from the end.
function steps(path: string): string[] {
  return path
    .split('/')
    .filter(step => step !== '' && step !== '.')
    .reverse();
}

// A relative target as it is, an absolute one relative to the root; null for one that is outside.
function inside(root: string, target: string): string | null {
  if (!target.startsWith('/')) return target;
  if (target === root) return '.';
  return target.startsWith(`${root}/`) ? `./${target.slice(root.length + 1)}` : null;
}

function targetOf(path: string): string | null {
  try {
    return lstatSync(bytes(path), UNLESS_GONE)?.isSymbolicLink() ? readlinkSync(bytes(path), 'latin1') : null;
  } catch {
    // What does not exist leads nowhere further.
    return null;
  }
}
