// Diff of a fork as a patch that `git apply --binary` takes. Names, contents and targets of links are the command’s: a name is
// quoted, so that none can begin another part of the patch.

import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { createDeflate } from 'node:zlib';
import type { ForkChange } from '../../contract/fork.ts';
import { bytes } from '../directory-look.ts';
import type { ForkDiffEntry } from './diff.ts';
import { editsOrReplacement, linesOf, numbered } from './line-edits.ts';
import type { LineEdit } from './line-edits.ts';

/**
 * Why a patch lacks a change. `directory`: git has no empty directories. `not-empty`: a directory became a file, and git would leave
 * something in it. `mode`: git knows only whether a file is executable.
 * `special`: a FIFO, a socket or a device. `name`: not valid UTF-8. `content`: it was not read (see `gap` of the change).
 * `base`: what the fork began with is not known.
 */
export type PatchOmissionReason = 'directory' | 'not-empty' | 'mode' | 'special' | 'name' | 'content' | 'base';

/** How a patch is made. */
export interface PatchOptions {
  readonly signal: AbortSignal;
  /** Called for each change that the patch lacks, in whole or in part. */
  readonly omitted: (path: string, reason: PatchOmissionReason) => void;
}

// Larger contents are written as git’s binary form, which is read in pieces and never compared by lines.
const MAX_TEXT_BYTES = 1024 ** 2;
const CONTEXT = 3;
const CHUNK = 256 * 1024;
const LINE_BYTES = 52;
const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~';
const LENGTHS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const EXECUTABLE = 0o100;
const NO_OBJECT = '0'.repeat(40);
const NO_NEWLINE = '\\ No newline at end of file\n';
const ESCAPES: Readonly<Record<string, string>> = {
  '\x07': String.raw`\a`,
  '\b': String.raw`\b`,
  '\t': String.raw`\t`,
  '\n': String.raw`\n`,
  '\v': String.raw`\v`,
  '\f': String.raw`\f`,
  '\r': String.raw`\r`,
  '"': String.raw`\"`,
  '\\': String.raw`\\`,
};

/** The patch, in pieces. Rejects where a file of the fork changes while it is read. */
export async function* gitPatch(
  entries: AsyncIterable<ForkDiffEntry>,
  options: PatchOptions,
): AsyncGenerator<Buffer, void, undefined> {
  const directories = new Directories(options);
  for await (const entry of entries) {
    options.signal.throwIfAborted();
    for (const ready of directories.pass(entry)) yield* patchOf(ready, options);
  }
  for (const ready of directories.end()) yield* patchOf(ready, options);
}

/** How many lines a change adds and removes; null for binary contents and for what git does not keep. */
export async function changedLines(
  entry: ForkDiffEntry,
  signal: AbortSignal,
): Promise<{ readonly added: number; readonly removed: number } | null> {
  if (wholeOmission(entry) !== null) return null;
  const [before, after] = [await baseBlob(entry), await ownBlob(entry)];
  try {
    const texts = before === 'unknown' ? null : await textsOf(before, after, signal);
    if (!texts) return null;
    const { edits } = texts;
    return {
      added: edits.reduce((sum, { newFrom, newTo }) => sum + newTo - newFrom, 0),
      removed: edits.reduce((sum, { from, to }) => sum + to - from, 0),
    };
  } finally {
    await close(before);
    await close(after);
  }
}

// Git knows no directories: it makes those that a new file needs, and removes those from which it has taken the last file. So a new
// one without files is missing in a patch, and one that becomes a file can do so only if nothing is left in it.
class Directories {
  readonly #options: PatchOptions;
  /** The last directory, as long as nothing was seen in it. */
  #last: ForkDiffEntry | null = null;
  /** A directory that becomes a file or a link: after everything in it. */
  #replaced: ForkDiffEntry | null = null;
  #isBlocked = false;
  /** A change that is missing, and with it everything below. */
  #missing: ForkDiffEntry | null = null;

  constructor(options: PatchOptions) {
    this.#options = options;
  }

  /** Changes that can be written now. */
  *pass(entry: ForkDiffEntry): Generator<ForkDiffEntry> {
    if (!isBelow(entry, this.#last)) this.#leave();
    if (!isBelow(entry, this.#replaced)) yield* this.#release();
    if (!isBelow(entry, this.#missing)) this.#missing = null;
    this.#last = entry.change.kind === 'directory' ? entry : null;
    const reason = this.#missing ? 'special' : wholeOmission(entry);
    if (reason !== null) this.#omit(entry, reason);
    else if (entry.change.before === 'directory') this.#replaced = entry;
    else yield entry;
  }

  /** What is left at the end. */
  *end(): Generator<ForkDiffEntry> {
    this.#leave();
    yield* this.#release();
  }

  // The last directory is over, and nothing was in it.
  #leave(): void {
    const last = this.#last;
    this.#last = null;
    if (last?.change.change === 'deleted') this.#isBlocked = true;
    else if (last && (last.change.change === 'added' || last.change.before !== undefined))
      this.#options.omitted(last.change.path, 'directory');
  }

  *#release(): Generator<ForkDiffEntry> {
    const replaced = this.#replaced;
    const isBlocked = this.#isBlocked;
    this.#replaced = null;
    this.#isBlocked = false;
    if (replaced && isBlocked) this.#options.omitted(replaced.change.path, 'not-empty');
    else if (replaced) yield replaced;
  }

  #omit(entry: ForkDiffEntry, reason: PatchOmissionReason): void {
    this.#isBlocked = true;
    if (reason === 'special') this.#missing ??= entry;
    this.#options.omitted(entry.change.path, reason);
  }
}

function isBelow(entry: ForkDiffEntry, directory: ForkDiffEntry | null): boolean {
  return directory !== null && entry.bytes.startsWith(`${directory.bytes}/`);
}

// Why nothing of a change can be in a patch; null where something is.
function wholeOmission({ change, target }: ForkDiffEntry): PatchOmissionReason | null {
  const { kind, before = kind } = change;
  if (change.unreadableName) return 'name';
  if (change.gap !== undefined || isLost(change, target)) return 'content';
  if (isSpecial(kind) || isSpecial(before)) return 'special';
  return change.change === 'changed' && kind === 'directory' && before === 'directory' ? 'mode' : null;
}

// A link that went while the diff was made.
function isLost({ kind, change }: ForkChange, target: string | null): boolean {
  return kind === 'link' && change !== 'deleted' && target === null;
}

function isSpecial(kind: string): boolean {
  return kind === 'fifo' || kind === 'socket' || kind === 'device';
}

// A file or link as git keeps it.
interface Blob {
  readonly mode: '100644' | '100755' | '120000';
  readonly size: number;
  /** The content of a link, or the file that has it. */
  readonly content: Buffer | FileHandle;
}

async function* patchOf(entry: ForkDiffEntry, options: PatchOptions): AsyncGenerator<Buffer, void, undefined> {
  const [before, after] = [await baseBlob(entry), await ownBlob(entry)];
  try {
    if (before === 'unknown') {
      options.omitted(entry.change.path, entry.change.baseUnknown ? 'base' : 'content');
      return;
    }
    if (losesMode(entry, before, after)) options.omitted(entry.change.path, 'mode');
    // Git has no change from a file to a link: the one goes, the other comes.
    if (before && after && (before.mode === '120000') !== (after.mode === '120000')) {
      yield* section(entry.bytes, { before, after: null }, options.signal);
      yield* section(entry.bytes, { before: null, after }, options.signal);
    } else yield* section(entry.bytes, { before, after }, options.signal);
  } finally {
    await close(before);
    await close(after);
  }
}

// Whether modes differ in a way that git does not keep.
function losesMode({ change: { mode } }: ForkDiffEntry, before: Blob | null, after: Blob | null): boolean {
  return mode?.before !== undefined && mode.after !== undefined && before?.mode === after?.mode;
}

async function ownBlob(entry: ForkDiffEntry): Promise<Blob | null> {
  const { change, kind } = entry.change;
  if (change === 'deleted') return null;
  if (kind === 'link') return linkBlob(entry.target ?? '');
  return kind === 'file' ? fileBlob(await entry.open(), entry.mode ?? 0) : null;
}

async function baseBlob(entry: ForkDiffEntry): Promise<Blob | null | 'unknown'> {
  const { change, kind, before = kind } = entry.change;
  if (change === 'added') return null;
  if (before === 'link') return entry.baseTarget === null ? 'unknown' : linkBlob(entry.baseTarget);
  if (before !== 'file') return null;
  const file = await entry.openBase();
  return file ? fileBlob(file, entry.baseMode ?? 0) : 'unknown';
}

function linkBlob(target: string): Blob {
  const content = bytes(target);
  return { mode: '120000', size: content.length, content };
}

async function fileBlob(file: FileHandle, mode: number): Promise<Blob> {
  const { size } = await file.stat();
  return { mode: (mode & EXECUTABLE) === 0 ? '100644' : '100755', size, content: file };
}

async function close(blob: Blob | null | 'unknown'): Promise<void> {
  if (blob && blob !== 'unknown' && !Buffer.isBuffer(blob.content)) await blob.content.close();
}

interface Sides {
  readonly before: Blob | null;
  readonly after: Blob | null;
}

async function* section(path: string, sides: Sides, signal: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
  const { before, after } = sides;
  const objects = { one: await objectOf(before, signal), other: await objectOf(after, signal) };
  const isSame = objects.one === objects.other;
  if (isSame && before?.mode === after?.mode) return;
  yield bytes(header(path, sides, objects));
  if (isSame) return;
  const texts = await textsOf(before, after, signal);
  if (texts) yield* textSection(path, sides, texts);
  else yield* binarySection(after, objects.other, signal);
}

function* textSection(path: string, { before, after }: Sides, texts: Texts): Generator<Buffer> {
  // An empty file that comes or goes is all in the header.
  if (texts.edits.length === 0) return;
  const [one, other] = [before ? named('a', path, true) : '/dev/null', after ? named('b', path, true) : '/dev/null'];
  yield bytes(`--- ${one}\n+++ ${other}\n`);
  for (const text of hunksOf(texts)) yield bytes(text);
}

async function* binarySection(
  after: Blob | null,
  object: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void, undefined> {
  yield Buffer.from(`GIT binary patch\nliteral ${after?.size ?? 0}\n`);
  yield* literal(after, object, signal);
  yield Buffer.from('\n');
}

function header(
  path: string,
  { before, after }: Sides,
  { one, other }: { readonly one: string; readonly other: string },
): string {
  const lines = [`diff --git ${named('a', path)} ${named('b', path)}`];
  if (!before) lines.push(`new file mode ${after?.mode ?? ''}`);
  else if (!after) lines.push(`deleted file mode ${before.mode}`);
  else if (before.mode !== after.mode) lines.push(`old mode ${before.mode}`, `new mode ${after.mode}`);
  const mode = before && before.mode === after?.mode ? ` ${before.mode}` : '';
  if (one !== other) lines.push(`index ${one}..${other}${mode}`);
  return `${lines.join('\n')}\n`;
}

// A name as git writes it. In a line of its own, one with a space ends with a tab.
function named(side: 'a' | 'b', path: string, isAlone = false): string {
  const name = `${side}/${path}`;
  // oxlint-disable-next-line no-control-regex -- what git quotes
  const escaped = name.replaceAll(/[\x00-\x1f"\\\x7f-\xff]/g, byte => ESCAPES[byte] ?? octal(byte));
  if (escaped !== name) return `"${escaped}"`;
  return isAlone && name.includes(' ') ? `${name}\t` : name;
}

function octal(byte: string): string {
  return `\\${byte.charCodeAt(0).toString(8).padStart(3, '0')}`;
}

async function objectOf(blob: Blob | null, signal: AbortSignal): Promise<string> {
  if (!blob) return NO_OBJECT;
  const hash = createHash('sha1').update(`blob ${blob.size}\0`);
  for await (const piece of piecesOf(blob, signal)) hash.update(piece);
  return hash.digest('hex');
}

// Exactly as many bytes as the blob is long: a file that grows or shrinks is an error.
async function* piecesOf({ content, size }: Blob, signal: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
  if (Buffer.isBuffer(content)) {
    yield content;
    return;
  }
  for (let at = 0; at < size;) {
    signal.throwIfAborted();
    const { bytesRead, buffer } = await content.read(Buffer.allocUnsafe(Math.min(CHUNK, size - at)), 0, null, at);
    if (bytesRead === 0) throw new Error('a file of the fork became shorter while the patch was made');
    yield buffer.subarray(0, bytesRead);
    at += bytesRead;
  }
}

interface Texts {
  readonly old: readonly string[];
  readonly new: readonly string[];
  readonly edits: readonly LineEdit[];
}

// Both sides by lines; null where one is binary, or too large to be compared.
async function textsOf(before: Blob | null, after: Blob | null, signal: AbortSignal): Promise<Texts | null> {
  if ([before, after].some(blob => blob !== null && blob.size > MAX_TEXT_BYTES)) return null;
  const [one, other] = [await wholeOf(before, signal), await wholeOf(after, signal)];
  if (one.includes(0) || other.includes(0)) return null;
  const [old, now] = [linesOf(one), linesOf(other)];
  const [oldIds = [], newIds = []] = numbered([old, now]);
  return { old, new: now, edits: editsOrReplacement(oldIds, newIds) };
}

async function wholeOf(blob: Blob | null, signal: AbortSignal): Promise<Buffer> {
  const pieces: Buffer[] = [];
  if (blob) for await (const piece of piecesOf(blob, signal)) pieces.push(piece);
  return Buffer.concat(pieces);
}

function* hunksOf({ old, new: now, edits }: Texts): Generator<string> {
  let group: LineEdit[] = [];
  for (const edit of edits) {
    const last = group.at(-1);
    if (last && edit.from - last.to > 2 * CONTEXT) {
      yield hunk(old, now, group);
      group = [];
    }
    group.push(edit);
  }
  if (group.length > 0) yield hunk(old, now, group);
}

function hunk(old: readonly string[], now: readonly string[], edits: readonly LineEdit[]): string {
  const [first, last] = [edits[0], edits.at(-1)];
  if (!first || !last) return '';
  const lead = Math.min(CONTEXT, first.from);
  const trail = Math.min(CONTEXT, old.length - last.to);
  const range = {
    from: first.from - lead,
    to: last.to + trail,
    newFrom: first.newFrom - lead,
    newTo: last.newTo + trail,
  };
  let text = `@@ -${span(range.from, range.to)} +${span(range.newFrom, range.newTo)} @@\n`;
  let at = range.from;
  for (const { from, to, newFrom, newTo } of edits) {
    text +=
      marked(' ', old.slice(at, from)) + marked('-', old.slice(from, to)) + marked('+', now.slice(newFrom, newTo));
    at = to;
  }
  return text + marked(' ', old.slice(at, range.to));
}

// Lines count from 1; a range without lines is named by the line before it.
function span(from: number, to: number): string {
  return `${from === to ? from : from + 1},${to - from}`;
}

function marked(mark: string, lines: readonly string[]): string {
  return lines.map(line => `${mark}${line}${line.endsWith('\n') ? '' : `\n${NO_NEWLINE}`}`).join('');
}

// Git’s base 85 of the compressed content, 52 bytes to a line.
async function* literal(
  blob: Blob | null,
  object: string,
  signal: AbortSignal,
): AsyncGenerator<Buffer, void, undefined> {
  const hash = createHash('sha1').update(`blob ${blob?.size ?? 0}\0`);
  const source = async function* (): AsyncGenerator<Buffer, void, undefined> {
    if (!blob) return;
    for await (const piece of piecesOf(blob, signal)) {
      hash.update(piece);
      yield piece;
    }
  };
  let rest: Buffer = Buffer.alloc(0);
  const compressed: AsyncIterable<Buffer> = Readable.from(source(), { objectMode: false }).pipe(createDeflate());
  for await (const chunk of compressed) {
    const all = Buffer.concat([rest, chunk]);
    const whole = all.length - (all.length % LINE_BYTES);
    yield linesOf85(all.subarray(0, whole));
    rest = all.subarray(whole);
  }
  yield linesOf85(rest);
  if (blob && hash.digest('hex') !== object) throw new Error('a file of the fork changed while the patch was made');
}

function linesOf85(data: Buffer): Buffer {
  const lines: string[] = [];
  for (let at = 0; at < data.length; at += LINE_BYTES) {
    const line = data.subarray(at, at + LINE_BYTES);
    lines.push(`${LENGTHS.charAt(line.length - 1)}${base85(line)}\n`);
  }
  return Buffer.from(lines.join(''));
}

function base85(data: Buffer): string {
  let text = '';
  for (let at = 0; at < data.length; at += 4) {
    let value = 0;
    for (let offset = 0; offset < 4; offset += 1) value = value * 256 + (data[at + offset] ?? 0);
    let digits = '';
    for (let count = 0; count < 5; count += 1) {
      digits = DIGITS.charAt(value % 85) + digits;
      value = Math.floor(value / 85);
    }
    text += digits;
  }
  return text;
}
