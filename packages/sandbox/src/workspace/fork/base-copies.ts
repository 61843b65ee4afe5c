// Copies of files in the base of a fork: what a file of the workspace was when the fork first changed it. Most edits leave most of a
// file as it is, so only what the fork’s own file lacks is stored, beside a second name of that file.

import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  readSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { codeOf } from '../../contract/system-error.ts';
import { MAX_MERGE_BYTES, isBinary } from './merge.ts';

/** How a copy is made of the fork’s own file. */
export const sharedSchema = z.strictObject({
  /** Its parts in turn: so many bytes of the fork’s file from an offset on, or, without an offset, the next ones of the rest. */
  parts: z.array(z.union([z.tuple([z.int().min(0), z.int().min(0)]), z.tuple([z.int().min(0)])])),
  sha256: z.string(),
  /** The number of bytes of the rest. */
  bytes: z.int().min(0),
  /** The rest as base64; absent where it is in a file, since it is long. */
  rest: z.string().exactOptional(),
});

type Shared = z.infer<typeof sharedSchema>;
type Part = Shared['parts'][number];

/** A copy in a base. */
export interface BaseCopy {
  readonly directory: string;
  readonly number: number;
  readonly size: number;
  readonly shared?: Shared | undefined;
}

const FILE_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const NEW_FILE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const BLOCK = 4096;
// Of a larger file, only the beginning and the end are compared.
const MAX_LINES_BYTES = 1024 ** 2;
const MAX_PARTS = 100;
// A shorter line is in too many places for one of them to be worth a part.
const MIN_LINE = 16;
// A file of its own takes a block of the disk and an entry of the directory.
const MAX_INLINE = 1024;
const NOWHERE = -1;
const NEWLINE = 10;
const OWN = '.own';

/** The bytes that storing a copy takes, besides the index. */
export function storedBytes(size: number, shared: Shared | undefined): number {
  if (!shared) return size;
  return shared.rest === undefined ? shared.bytes : 0;
}

/** Whether all files of a copy are there. A power cut can leave the record of a copy and not its bytes. */
export function hasCopy({ directory, number, size, shared }: BaseCopy): boolean {
  const sizeOf = (name: string): number | undefined =>
    lstatSync(join(directory, name), { throwIfNoEntry: false })?.size;
  const isStored = shared?.rest !== undefined || sizeOf(String(number)) === storedBytes(size, shared);
  return isStored && (!shared || sizeOf(`${number}${OWN}`) !== undefined);
}

/** Opens the content of a copy, for reading; null where it is not what it was. */
export function openCopy({ directory, number, size, shared }: BaseCopy): number | null {
  const path = join(directory, String(number));
  if (!shared) return openSync(path, FILE_FLAGS);
  const whole = Buffer.alloc(size);
  const rest =
    shared.rest === undefined ? readPart(path, Buffer.alloc(shared.bytes)) : Buffer.from(shared.rest, 'base64');
  const own = openSync(`${path}${OWN}`, FILE_FLAGS);
  try {
    let [at, taken] = [0, 0];
    for (const part of shared.parts) {
      const into = whole.subarray(at, at + (part[1] ?? part[0]));
      if (part.length === 2) readAt(own, into, part[0]);
      else taken += rest.copy(into, 0, taken, taken + into.length);
      at += into.length;
    }
  } finally {
    closeSync(own);
  }
  if (digestOf(whole) !== shared.sha256) return null;
  // Without a name, and gone when it is closed.
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  const file = openSync(draft, NEW_FILE, 0o600);
  unlinkSync(draft);
  // At positions, so that who reads it begins at its beginning.
  for (let at = 0; at < size;) at += writeSync(file, whole, at, size - at, at);
  return file;
}

/** A file of which no copy is needed: whatever the workspace has in its place, a merge of it with the fork’s would be a conflict. */
export interface Unmergeable {
  readonly sha256: string;
}

/**
 * Stores what a file was, beside the file that the fork has in its place, if enough of it is the same; null where it is not, or where
 * the fork’s file cannot have a second name.
 *
 * @param own the fork’s file: open, and its path in a layer that nothing writes any more.
 */
export function storeShared(
  { directory, number }: Pick<BaseCopy, 'directory' | 'number'>,
  content: Buffer,
  own: { readonly file: number; readonly path: string | Buffer },
): { readonly shared: Shared } | Unmergeable | null {
  const stats = fstatSync(own.file);
  const after = Buffer.alloc(stats.size);
  readAt(own.file, after, 0);
  const parts = partsOf(content, after);
  const rest = restOf(content, parts);
  const sha256 = digestOf(content);
  if (rest.length > Math.max(content.length / 2, MAX_INLINE) || parts.length > MAX_PARTS)
    return canMerge(content, after, parts) ? null : { sha256 };
  const path = join(directory, String(number));
  if (!linked(own.path, `${path}${OWN}`, stats.ino)) return null;
  const shared = { parts, sha256, bytes: rest.length };
  if (rest.length <= MAX_INLINE) return { shared: { ...shared, rest: rest.toString('base64') } };
  const file = openSync(path, NEW_FILE, 0o600);
  try {
    writeAll(file, rest);
  } finally {
    closeSync(file);
  }
  return { shared };
}

/** Whether a file is what it was. */
export function hasDigest(file: number, size: number, sha256: string): boolean {
  if (fstatSync(file).size !== size) return false;
  const hash = createHash('sha256');
  const buffer = Buffer.alloc(Math.min(size, BLOCK * 64));
  for (let at = 0; at < size;) {
    const read = readSync(file, buffer, 0, Math.min(buffer.length, size - at), at);
    if (read === 0) return false;
    hash.update(buffer.subarray(0, read));
    at += read;
  }
  return hash.digest('hex') === sha256;
}

// Where the fork has replaced every line, any other change is of the same lines.
function canMerge(content: Buffer, after: Buffer, parts: readonly Part[]): boolean {
  if (isBinary(content) || isBinary(after)) return false;
  if (Math.max(content.length, after.length) > MAX_MERGE_BYTES) return false;
  let at = 0;
  return parts.some(part => {
    const [from, to] = [at, at + (part[1] ?? part[0])];
    at = to;
    const begins = from === 0 || content[from - 1] === NEWLINE ? from : content.indexOf(NEWLINE, from) + 1;
    return part.length === 2 && begins >= from && content.subarray(begins, to).includes(NEWLINE);
  });
}

/** Gives the files of a copy to another base, which may have them already. No base writes one again. */
export function linkCopy(from: string, to: string, number: number): void {
  for (const name of [String(number), `${number}${OWN}`]) {
    try {
      linkSync(join(from, name), join(to, name));
    } catch (error) {
      if (!['ENOENT', 'EEXIST'].includes(codeOf(error))) throw error;
    }
  }
}

/** Removes the files of a copy. */
export function removeCopy(directory: string, number: number): void {
  for (const name of [String(number), `${number}${OWN}`]) {
    try {
      unlinkSync(join(directory, name));
    } catch (error) {
      if (codeOf(error) !== 'ENOENT') throw error;
    }
  }
}

/** Writes all of it. */
export function writeAll(file: number, content: Buffer): void {
  for (let at = 0; at < content.length;) at += writeSync(file, content, at);
}

// The beginning and the end that both have, and between them the lines that the other one has anywhere.
function partsOf(content: Buffer, after: Buffer): Part[] {
  const { head, tail } = sharedEnds(content, after);
  const between = content.subarray(head, content.length - tail);
  const isLong = between.length > MAX_LINES_BYTES || after.length > 4 * MAX_LINES_BYTES;
  const middle: Part[] = isLong ? [[between.length]] : lineParts(between, after, head);
  const all: Part[] = [[0, head], ...middle, [after.length - tail, tail]];
  return all.filter(part => (part[1] ?? part[0]) > 0);
}

// One pass: a line goes on where the line before was found, or at its first place.
function lineParts(content: Buffer, after: Buffer, from: number): Part[] {
  const places = new Map<string, number>();
  let offset = 0;
  for (const line of linesOf(after)) {
    const isKnown = places.has(line);
    if (!isKnown) places.set(line, offset);
    else if (line.length < MIN_LINE) places.set(line, NOWHERE);
    offset += line.length;
  }
  const parts: Part[] = [];
  let next = from;
  let at = 0;
  for (const line of linesOf(content)) {
    const { length } = line;
    const goesOn = next + length <= after.length && isSame(content, after, [at, next], length);
    const place = goesOn ? next : (places.get(line) ?? NOWHERE);
    add(parts, place, length);
    if (place !== NOWHERE) next = place + length;
    at += length;
  }
  return parts;
}

function add(parts: Part[], place: number, length: number): void {
  const last = parts.at(-1);
  if (place === NOWHERE) {
    if (last?.length === 1) last[0] += length;
    else parts.push([length]);
  } else if (last?.length === 2 && last[0] + last[1] === place) last[1] += length;
  else parts.push([place, length]);
}

// With their ends, each byte a character.
function linesOf(content: Buffer): string[] {
  return content.toString('latin1').match(/[^\n]*\n|[^\n]+/g) ?? [];
}

function restOf(content: Buffer, parts: readonly Part[]): Buffer {
  let at = 0;
  const pieces = parts.map(part => {
    const length = part[1] ?? part[0];
    at += length;
    return part.length === 1 ? content.subarray(at - length, at) : Buffer.alloc(0);
  });
  return Buffer.concat(pieces);
}

// How much is the same at the beginning, and of what is left at the end.
function sharedEnds(one: Buffer, other: Buffer): { readonly head: number; readonly tail: number } {
  const most = Math.min(one.length, other.length);
  let head = 0;
  while (head + BLOCK <= most && isSame(one, other, [head, head], BLOCK)) head += BLOCK;
  while (head < most && one[head] === other[head]) head += 1;
  const left = most - head;
  let tail = 0;
  const ends = (length: number): [number, number] => [one.length - length, other.length - length];
  while (tail + BLOCK <= left && isSame(one, other, ends(tail + BLOCK), BLOCK)) tail += BLOCK;
  while (tail < left && one[one.length - tail - 1] === other[other.length - tail - 1]) tail += 1;
  return { head, tail };
}

function isSame(one: Buffer, other: Buffer, [at, from]: readonly [number, number], length: number): boolean {
  return one.compare(other, from, from + length, at, at + length) === 0;
}

// The link is of a path, and must be the file that was read.
function linked(path: string | Buffer, to: string, inode: number): boolean {
  try {
    linkSync(path, to);
  } catch (error) {
    if (['EPERM', 'EMLINK', 'EXDEV', 'ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'].includes(codeOf(error))) return false;
    throw error;
  }
  if (lstatSync(to).ino === inode) return true;
  unlinkSync(to);
  return false;
}

function readPart(path: string, into: Buffer): Buffer {
  const file = openSync(path, FILE_FLAGS);
  try {
    readAt(file, into, 0);
    return into;
  } finally {
    closeSync(file);
  }
}

// What a file lacks stays zero, which its digest tells.
function readAt(file: number, into: Buffer, at: number): void {
  for (let done = 0; done < into.length;) {
    const read = readSync(file, into, done, into.length - done, at + done);
    if (read === 0) return;
    done += read;
  }
}

function digestOf(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
