// Git's index: an own reader of versions 2, 3 and 4, which tells what git tracks. It never starts git, because git runs programs that
// the repository names.
//
// An attacker may have written the file: every size is checked before it is used, memory is bounded, and the answer to
// anything that is not an index is a fault, never an exception. Paths are byte strings.

import { closeSync, constants, fstatSync, lstatSync, openSync, readSync, realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { codeOf } from '../../contract/system-error.ts';
import { bytes, fromText } from '../directory-look.ts';
import { isWithin } from '../file-identity.ts';
import { gitfileTarget, parseGitConfig } from '../git-directory.ts';

/** Reason why an index could not be read. */
export type IndexFault =
  /** There is no index: nothing was ever added. */
  | 'absent'
  /** The file is not what git writes: cut short, or with values that contradict each other. */
  | 'damaged'
  /** A version, or an extension that must be understood, that acode does not know. */
  | 'unsupported'
  /** Larger, or with more directories, than acode reads. */
  | 'too-large'
  /** Not an ordinary file, or not readable. */
  | 'unreadable';

/** An index as far as masks need it. */
export interface GitIndex {
  readonly version: number;
  /** Number of entries in the workspace. */
  readonly entries: number;
  /** Directories that hold tracked files, and all directories above them; the top of the workspace is the empty text. */
  readonly directories: ReadonlySet<string>;
  /** Tracked paths whose last name `keeps` asked for. */
  readonly tracked: ReadonlySet<string>;
  /** Paths of submodules: git tracks which commit, not the files. */
  readonly submodules: readonly string[];
  /** Directories of a sparse index: git tracks their content without listing it. */
  readonly sparse: readonly string[];
  /** Whether part of the entries came from a shared index. */
  readonly isSplit: boolean;
}

/** The index, or why there is none to use. */
export type IndexAnswer = { readonly index: GitIndex } | { readonly fault: IndexFault };

/** How an index is read. */
export interface IndexRequest {
  /** Tells of the last name of a path, as bytes, whether the path is to be kept. */
  readonly keeps: (name: string) => boolean;
  /** Length of an object id: 20 bytes, or 32 in a SHA-256 repository. Default 20. */
  readonly hashBytes?: 20 | 32;
  /** The workspace, as bytes relative to the top of the working tree, where it is only a part of it. */
  readonly prefix?: string;
  /** Largest index in bytes. */
  readonly maxBytes?: number;
}

const MAX_INDEX_BYTES = 256 * 1024 ** 2;
// Both bound what is held in memory, whatever the file says.
const MAX_DIRECTORIES = 300_000;
const MAX_KEPT_BYTES = 64 * 1024 ** 2;
const MAX_LINK_BYTES = 16 * 1024 ** 2;
const MAX_NAME = 4096;
const WINDOW = 1024 ** 2;
const HEADER = 12;
const STAT_BYTES = 40;
const MODE_AT = 24;
const EXTENDED = 0x4000;
const LENGTH = 0x0fff;
const SLASH = 0x2f;
const GITLINK = 0o16;
const DIRECTORY = 0o04;
const KNOWN_EXTENSIONS = new Set(['link', 'sdir']);

/** Thrown inside this file only. */
class Fault extends Error {
  readonly fault: IndexFault;

  constructor(fault: IndexFault) {
    super(fault);
    this.fault = fault;
  }
}

/**
 * Reads the index of a git directory. Never throws, and reads nothing but `index` and the shared index beside it.
 *
 * @param gitdir absolute path of the git directory, as text.
 */
export async function readGitIndex(gitdir: string, request: IndexRequest): Promise<IndexAnswer> {
  const maxBytes = request.maxBytes ?? MAX_INDEX_BYTES;
  const hashBytes = request.hashBytes ?? 20;
  const collector = new Collector(request);
  try {
    const own = await readFile(join(gitdir, 'index'), { hashBytes, maxBytes }, collector, null);
    if (own.hasNameless && own.link === null) throw new Fault('damaged');
    if (own.link !== null) await readShared(gitdir, own.link, { hashBytes, maxBytes }, collector);
    return { index: collector.result(own.version, own.link !== null) };
  } catch (error) {
    if (error instanceof Fault) return { fault: error.fault };
    const code = codeOf(error);
    return { fault: code === 'ENOENT' ? 'absent' : 'unreadable' };
  }
}

interface Sizes {
  readonly hashBytes: number;
  readonly maxBytes: number;
}

async function readShared(gitdir: string, link: Buffer, sizes: Sizes, collector: Collector): Promise<void> {
  if (link.length < sizes.hashBytes) throw new Fault('damaged');
  const id = link.subarray(0, sizes.hashBytes);
  // No base: all entries are its own.
  if (id.every(byte => byte === 0)) return;
  const rest = link.subarray(sizes.hashBytes);
  const deleted = rest.length === 0 ? null : bitsOf(rest);
  let shared: FileParts;
  try {
    shared = await readFile(join(gitdir, `sharedindex.${id.toString('hex')}`), sizes, collector, deleted);
  } catch (error) {
    // Named by the index, and so expected.
    throw codeOf(error) === 'ENOENT' ? new Fault('damaged') : error;
  }
  // A shared index that names another would be a chain, or a circle.
  if (shared.link !== null || shared.hasNameless) throw new Fault('damaged');
}

interface FileParts {
  readonly version: number;
  /** Content of the extension that names a shared index. */
  readonly link: Buffer | null;
  /** Whether an entry has no name: it replaces one of the shared index. */
  readonly hasNameless: boolean;
}

async function readFile(path: string, sizes: Sizes, collector: Collector, skip: Bits | null): Promise<FileParts> {
  using file = new IndexFile(path, sizes);
  const header = file.take(HEADER);
  if (header.toString('latin1', 0, 4) !== 'DIRC') throw new Fault('damaged');
  const version = header.readUInt32BE(4);
  const count = header.readUInt32BE(8);
  if (version < 2 || version > 4) throw new Fault('unsupported');
  // The smallest entry is its numbers, its id, its flags and the end of a name.
  if (count * (STAT_BYTES + sizes.hashBytes + 3) > file.left) throw new Fault('damaged');
  const hasNameless = await readEntries(file, { version, count, hashBytes: sizes.hashBytes }, collector, skip);
  return { version, hasNameless, link: readExtensions(file) };
}

interface EntriesShape {
  readonly version: number;
  readonly count: number;
  readonly hashBytes: number;
}

async function readEntries(
  file: IndexFile,
  shape: EntriesShape,
  collector: Collector,
  skip: Bits | null,
): Promise<boolean> {
  const reader = new EntryReader(shape);
  let hasNameless = false;
  for (let number = 0; number < shape.count; number += 1) {
    // Large ones take a second: other work of this process goes on meanwhile.
    if (file.isLow && number > 0) await nextTurn();
    const at = file.need(reader.most);
    const size = reader.read(file.buffer, at);
    if (reader.length === 0) hasNameless = true;
    else if (!skip?.has(number))
      collector.add(reader.name, reader.length, file.buffer.readUInt32BE(at + MODE_AT) >>> 12);
    file.skip(size);
  }
  return hasNameless;
}

/** Reads one entry after the other: in version 4 each name begins with a part of the one before. */
class EntryReader {
  /** The name of the last entry, in its first bytes. */
  readonly name = Buffer.alloc(MAX_NAME);
  /** Most bytes that one entry can take. */
  readonly most: number;
  /** Length of the name of the last entry. */
  length = 0;
  readonly #version: number;
  readonly #fixed: number;

  constructor({ version, hashBytes }: EntriesShape) {
    this.#version = version;
    this.#fixed = STAT_BYTES + hashBytes + 2;
    this.most = this.#fixed + 2 + 3 + MAX_NAME + 8;
  }

  /** Reads the entry that begins at a place of the buffer, and gives its size. */
  read(buffer: Buffer, at: number): number {
    if (buffer.length - at < this.#fixed) throw new Fault('damaged');
    const flags = buffer.readUInt16BE(at + this.#fixed - 2);
    const isExtended = (flags & EXTENDED) !== 0;
    if (isExtended && this.#version < 3) throw new Fault('damaged');
    const end = this.#readName(buffer, at + this.#fixed + (isExtended ? 2 : 0)) - at;
    if ((flags & LENGTH) !== Math.min(this.length, LENGTH)) throw new Fault('damaged');
    // Before version 4, one to eight zeros fill an entry up.
    const size = this.#version === 4 ? end + 1 : (end + 8) & ~7;
    if (size > buffer.length - at) throw new Fault('damaged');
    return size;
  }

  #readName(window: Buffer, from: number): number {
    const removed = this.#version === 4 ? varintAt(window, from) : { value: this.length, end: from };
    const kept = this.length - removed.value;
    const end = window.indexOf(0, removed.end);
    if (kept < 0 || end < 0 || kept + end - removed.end >= MAX_NAME) throw new Fault('damaged');
    window.copy(this.name, kept, removed.end, end);
    this.length = kept + end - removed.end;
    return end;
  }
}

function varintAt(window: Buffer, from: number): { readonly value: number; readonly end: number } {
  let at = from;
  let value = 0;
  for (;;) {
    const byte = window[at];
    at += 1;
    // No name is longer than two bytes can say; the third is for the doubt.
    if (byte === undefined || at - from > 3) throw new Fault('damaged');
    value += byte & 0x7f;
    if ((byte & 0x80) === 0) return { value, end: at };
    value = (value + 1) * 128;
  }
}

// What follows the entries.
function readExtensions(file: IndexFile): Buffer | null {
  let link: Buffer | null = null;
  while (file.left > 0) {
    const head = file.take(8);
    const signature = head.toString('latin1', 0, 4);
    const size = head.readUInt32BE(4);
    if (size > file.left) throw new Fault('damaged');
    assertKnown(signature);
    if (signature !== 'link') file.skip(size);
    else {
      if (size > MAX_LINK_BYTES) throw new Fault('too-large');
      if (link !== null) throw new Fault('damaged');
      link = file.take(size);
    }
  }
  return link;
}

// One that begins with a capital letter may be passed over; every other must be understood.
function assertKnown(signature: string): void {
  if (/^[A-Z]/.test(signature) || KNOWN_EXTENSIONS.has(signature)) return;
  throw new Fault(/^[a-z]{4}$/.test(signature) ? 'unsupported' : 'damaged');
}

/** Numbers of entries, as git packs them (EWAH): runs of equal words, then words as they are. */
class Bits {
  readonly #words: Uint8Array;

  constructor(words: Uint8Array) {
    this.#words = words;
  }

  has(number: number): boolean {
    return ((this.#words[number >>> 3] ?? 0) & (1 << (number & 7))) !== 0;
  }
}

function bitsOf(packed: Buffer): Bits {
  if (packed.length < 8) throw new Fault('damaged');
  const size = packed.readUInt32BE(0);
  const count = packed.readUInt32BE(4);
  if (size > MAX_LINK_BYTES * 8 || 8 + count * 8 + 4 > packed.length) throw new Fault('damaged');
  const all = new Uint8Array(Math.ceil(size / 64) * 8);
  let to = 0;
  for (let word = 0; word < count;) {
    // A marker: its lowest bit is repeated, 32 bits say how often, 31 how many words follow as they are.
    const marker = packed.readBigUInt64BE(8 + word * 8);
    const run = Number((marker >> 1n) & 0xffffffffn) * 8;
    const literal = Number(marker >> 33n);
    word += 1;
    if (to + run + literal * 8 > all.length || word + literal > count) throw new Fault('damaged');
    if ((marker & 1n) === 1n) all.fill(0xff, to, to + run);
    to += run;
    for (let index = 0; index < literal; index += 1, to += 8) copyWord(packed, 8 + (word + index) * 8, all, to);
    word += literal;
  }
  return new Bits(all);
}

// Words are written with the highest byte first, and their lowest bit is the first entry.
function copyWord(from: Buffer, at: number, into: Uint8Array, to: number): void {
  for (let byte = 0; byte < 8; byte += 1) into[to + byte] = from[at + 7 - byte] ?? 0;
}

/** Bytes of an index, a window at a time, without the checksum at the end. */
class IndexFile implements Disposable {
  readonly #descriptor: number;
  readonly #end: number;
  #buffer = Buffer.alloc(0);
  /** Place in the buffer of the next byte. */
  #at = 0;
  /** Place in the file of the next byte. */
  #position = 0;

  constructor(path: string, { hashBytes, maxBytes }: Sizes) {
    this.#descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const found = fstatSync(this.#descriptor);
      if (!found.isFile()) throw new Fault('unreadable');
      if (found.size > maxBytes) throw new Fault('too-large');
      this.#end = found.size - hashBytes;
      if (this.#end < HEADER) throw new Fault('damaged');
    } catch (error) {
      closeSync(this.#descriptor);
      throw error;
    }
  }

  /** Bytes that were not taken yet. */
  get left(): number {
    return this.#end - this.#position;
  }

  /** Whether the next request reads from the disk. */
  get isLow(): boolean {
    const held = this.#buffer.length - this.#at;
    return held < MAX_NAME * 2 && this.left > held;
  }

  /** What was read; the next byte is where `need` says. */
  get buffer(): Buffer {
    return this.#buffer;
  }

  /** Sees to it that so many bytes are in the buffer, or all that are left, and gives the place of the next one. */
  need(most: number): number {
    const wanted = Math.min(most, this.left);
    if (this.#buffer.length - this.#at < wanted) this.#fill(wanted);
    return this.#at;
  }

  /** Exactly so many bytes. */
  take(length: number): Buffer {
    if (length > this.left) throw new Fault('damaged');
    const at = this.need(length);
    const taken = this.#buffer.subarray(at, at + length);
    this.skip(length);
    return taken;
  }

  skip(length: number): void {
    if (length > this.left) throw new Fault('damaged');
    this.#position += length;
    this.#at = Math.min(this.#at + length, this.#buffer.length);
  }

  #fill(wanted: number): void {
    const buffer = Buffer.alloc(Math.min(this.left, Math.max(WINDOW, wanted)));
    let filled = this.#buffer.copy(buffer, 0, this.#at);
    while (filled < buffer.length) {
      const read = readSync(this.#descriptor, buffer, filled, buffer.length - filled, this.#position + filled);
      // Shorter than it was a moment ago.
      if (read === 0) throw new Fault('damaged');
      filled += read;
    }
    this.#buffer = buffer;
    this.#at = 0;
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}

/** Collects what entries come to, so that no more than that is held. */
class Collector {
  readonly #keeps: (name: string) => boolean;
  readonly #prefix: string;
  readonly #directories = new Set(['']);
  readonly #tracked = new Set<string>();
  readonly #submodules: string[] = [];
  readonly #sparse: string[] = [];
  #entries = 0;
  #bytes = 0;
  // The directory of the last entry with its slash: most entries have the one before.
  #last: Buffer | null = null;
  #lastIsInside = false;
  #lastInside = '';

  constructor({ keeps, prefix = '' }: IndexRequest) {
    this.#keeps = keeps;
    this.#prefix = prefix === '' ? '' : `${prefix}/`;
  }

  /** Takes an entry: the path in the first bytes of `buffer`, and the kind of it. */
  add(buffer: Buffer, length: number, kind: number): void {
    if (kind === DIRECTORY) return this.#addSparse(buffer, length);
    const slash = length === 0 ? -1 : buffer.lastIndexOf(SLASH, length - 1);
    const name = buffer.toString('latin1', slash + 1, length);
    if (!isName(name)) throw new Fault('damaged');
    this.#enter(buffer, slash + 1);
    if (!this.#lastIsInside) return;
    this.#entries += 1;
    if (kind === GITLINK) this.#keep(this.#submodules, this.#lastInside + name);
    else if (this.#keeps(name)) {
      this.#tracked.add(this.#lastInside + name);
      this.#count(slash + 1 + name.length);
    }
  }

  // Such an entry ends in a slash.
  #addSparse(buffer: Buffer, length: number): void {
    if (buffer[length - 1] !== SLASH) throw new Fault('damaged');
    const path = buffer.toString('latin1', 0, length - 1);
    if (!path.split('/').every(isName)) throw new Fault('damaged');
    if (path.startsWith(this.#prefix)) this.#keep(this.#sparse, path.slice(this.#prefix.length));
  }

  #enter(buffer: Buffer, length: number): void {
    if (this.#last?.length === length && isSamePath(buffer, this.#last)) return;
    this.#last = Buffer.from(buffer.subarray(0, length));
    const whole = this.#last.toString('latin1');
    const directory = whole.slice(0, -1);
    if (length > 0 && !directory.split('/').every(isName)) throw new Fault('damaged');
    this.#lastIsInside = whole.startsWith(this.#prefix);
    if (!this.#lastIsInside) return;
    this.#lastInside = whole.slice(this.#prefix.length);
    let above = this.#lastInside.slice(0, -1);
    while (above !== '' && !this.#directories.has(above)) {
      this.#directories.add(above);
      this.#count(above.length);
      if (this.#directories.size > MAX_DIRECTORIES) throw new Fault('too-large');
      above = above.slice(0, Math.max(0, above.lastIndexOf('/')));
    }
  }

  #keep(list: string[], path: string): void {
    list.push(path);
    this.#count(path.length);
  }

  // A string takes some bytes beyond its characters.
  #count(length: number): void {
    this.#bytes += length + 32;
    if (this.#bytes > MAX_KEPT_BYTES) throw new Fault('too-large');
  }

  result(version: number, isSplit: boolean): GitIndex {
    return {
      version,
      entries: this.#entries,
      directories: this.#directories,
      tracked: this.#tracked,
      submodules: this.#submodules,
      sparse: this.#sparse,
      isSplit,
    };
  }
}

// From the end, where two directories of the same length differ.
function isSamePath(buffer: Buffer, other: Buffer): boolean {
  for (let at = other.length - 1; at >= 0; at -= 1) if (buffer[at] !== other[at]) return false;
  return true;
}

// What git refuses in a path too: a path of it never leads out of the working tree or into the git directory.
function isName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && name !== '.git';
}

/** A repository whose index covers a workspace. */
export interface Repository {
  /** Absolute path of the git directory. */
  readonly gitdir: string;
  /** The workspace as bytes relative to the top of the working tree; empty where it is the top. */
  readonly prefix: string;
  readonly hashBytes: 20 | 32;
  /**
   * Whether no sandbox can write the index, so that it may say what git tracks. Else it is only asked where to look: a command
   * could list a secret there, to have it shown to the next.
   */
  readonly isProtected: boolean;
  /** Device and inode of the git directory. */
  readonly identity: string;
}

const MAX_ABOVE = 64;
const MAX_CONFIG_BYTES = 256 * 1024;
const MAX_POINTER_BYTES = 4096;

/**
 * The repository of a workspace: its own, the one of a linked worktree, or the one of a directory above; null where there is none, or
 * none that git would take for this directory’s. Reads no more than a few small files.
 */
export function findRepository(root: string): Repository | null {
  for (let [top, steps] = [root, 0]; steps < MAX_ABOVE; [top, steps] = [dirname(top), steps + 1]) {
    const found = repositoryAt(top, root);
    if (found !== undefined) return found;
    if (dirname(top) === top) return null;
  }
  return null;
}

/**
 * The repository of a submodule. Its index is protected with the one of the repository around it, where it lies in that and says itself
 * that it is for this directory.
 */
export function findSubmodule(outer: Repository, root: string, path: string): Repository | null {
  const own = repositoryAt(path, path);
  if (!own) return null;
  const modules = join(commonOf(outer.gitdir), 'modules');
  const written = coreWorktree(own.gitdir);
  const isOurs =
    outer.isProtected &&
    (isWithin(own.gitdir, modules) || isWithin(own.gitdir, join(outer.gitdir, 'modules'))) &&
    written !== null &&
    realPath(resolve(own.gitdir, written)) === realPath(path);
  return { ...own, isProtected: isOurs && isWithin(path, root) };
}

// Undefined where there is no `.git`, null where there is one that cannot be used.
function repositoryAt(top: string, root: string): Repository | null | undefined {
  const path = join(top, '.git');
  try {
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (!found) return undefined;
    const gitdir = found.isDirectory() ? path : found.isFile() ? followed(path, top) : null;
    if (gitdir === null) return null;
    const { dev, ino } = lstatSync(gitdir);
    const prefix = top === root ? '' : fromText(root.slice(top === '/' ? 1 : top.length + 1));
    const hashBytes = valueOf(commonOf(gitdir), 'extensions', 'objectformat') === 'sha256' ? 32 : 20;
    // At the top of the workspace it is read-only inside; deeper, the directory above it can be renamed.
    const isProtected = !isWithin(gitdir, root) || dirname(gitdir) === root;
    return { gitdir, prefix, hashBytes, isProtected, identity: `${dev}:${ino}` };
  } catch {
    return null;
  }
}

// A `.git` file: of a linked worktree, whose directory names this file in turn; of a submodule, or of `--separate-git-dir`, whose
// directory is inside.
function followed(path: string, top: string): string | null {
  const written = gitfileTarget(fromText(path));
  if (written === null) return null;
  const named = resolve(top, Buffer.from(written, 'latin1').toString('utf8'));
  const gitdir = realPath(named);
  if (gitdir === null || !lstatSync(gitdir).isDirectory()) return null;
  if (basename(dirname(gitdir)) === 'worktrees') return pointerOf(gitdir, 'gitdir') === path ? gitdir : null;
  const worktree = coreWorktree(gitdir);
  if (worktree !== null) return realPath(resolve(gitdir, worktree)) === top ? gitdir : null;
  return isWithin(gitdir, top) ? gitdir : null;
}

function pointerOf(directory: string, name: string): string | null {
  const text = readSmall(join(directory, name), MAX_POINTER_BYTES)?.replace(/\r?\n$/, '');
  if (text === undefined || text === '') return null;
  const path = isAbsolute(text) ? text : resolve(directory, text);
  // The last part is not resolved: a link called `.git` is no worktree’s.
  const above = realPath(dirname(path));
  return above === null ? null : join(above, basename(path));
}

function commonOf(gitdir: string): string {
  const text = readSmall(join(gitdir, 'commondir'), MAX_POINTER_BYTES)?.replace(/\r?\n$/, '');
  return text === undefined || text === '' ? gitdir : resolve(gitdir, text);
}

function coreWorktree(gitdir: string): string | null {
  return valueOf(gitdir, 'core', 'worktree');
}

function valueOf(gitdir: string, section: string, key: string): string | null {
  const text = readSmall(join(gitdir, 'config'), MAX_CONFIG_BYTES) ?? '';
  const values = parseGitConfig(text).filter(
    one => one.section === section && one.subsection === null && one.key === key,
  );
  return values.at(-1)?.value ?? null;
}

function realPath(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}

function readSmall(path: string, most: number): string | null {
  let descriptor: number;
  try {
    descriptor = openSync(bytes(fromText(path)), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    if (!fstatSync(descriptor).isFile()) return null;
    const buffer = Buffer.alloc(most);
    return buffer.toString('utf8', 0, readSync(descriptor, buffer, 0, most, 0));
  } catch {
    return null;
  } finally {
    closeSync(descriptor);
  }
}
