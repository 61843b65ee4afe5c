// Copies of a workspace, for forks where no overlay can be mounted: what commands see is copied, and what they changed in the copy becomes
// a layer like any other.
//
// Paths and names are byte strings (latin1). The workspace and the copy hold what untrusted code wrote: no link is followed.

import { chmodSync, closeSync, constants, copyFileSync, linkSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { lstatSync, readlinkSync, utimesSync, writeFileSync } from 'node:fs';
import type { BigIntStats, Stats } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import * as z from 'zod';
import { bytes, fromText } from '../directory-look.ts';
import { HeldDirectories, modeOf, pathIn, sliced } from './layers.ts';
import type { LayerStack, MergedDirectory } from './layers.ts';
import { UnreadableLayersError, makeMarks } from './marks.ts';
import type { MarkOptions, NewMark } from './marks.ts';

/** How much may be copied. */
export interface CopyLimits {
  readonly entries: number;
  readonly bytes: number;
}

/** Limits of a copy that nobody asked for. */
export const COPY_LIMITS: CopyLimits = { entries: 200_000, bytes: 2 * 1024 ** 3 };

/** Raised where a copy would exceed its limits. */
export class CopyTooLargeError extends Error {
  override readonly name = 'CopyTooLargeError';
}

// Longer than the kernel’s clock for files stands still: what is written after that has another time.
const TICK_MS = 25;

const entrySchema = z.tuple([
  z.string(),
  /** Kind, and mode in octal. */
  z.string(),
  /** Inode, size and change time of what is not a directory. */
  z.string(),
]);

/** Where a copy is made. */
export interface CopyTarget extends MarkOptions {
  /** Directory of the copy, which must not exist. */
  readonly copy: string;
  /** File that lists what was copied. */
  readonly list: string;
  readonly limits: CopyLimits;
}

/** Copies the merged view of a workspace and its layers. Sockets and devices are left out. */
export async function makeCopy(stack: LayerStack, { copy, list, limits, ...options }: CopyTarget): Promise<void> {
  const { signal } = options;
  const copying = new Copying(stack, fromText(copy), limits);
  for await (const step of sliced(copying.build(), signal)) void step;
  if (copying.fifos.length > 0) await makeMarks(copy, copying.fifos, options);
  for await (const step of sliced(copying.finish(), signal)) void step;
  await setTimeout(TICK_MS, undefined, { signal });
  writeFileSync(list, copying.listed(), { flag: 'wx', mode: 0o600 });
}

class Copying {
  readonly fifos: NewMark[] = [];
  readonly #stack: LayerStack;
  readonly #copy: string;
  readonly #limits: CopyLimits;
  readonly #paths: string[] = [];
  readonly #directories: { readonly path: string; readonly stats: Stats }[] = [];
  #bytes = 0;

  constructor(stack: LayerStack, copy: string, limits: CopyLimits) {
    this.#stack = stack;
    this.#copy = copy;
    this.#limits = limits;
  }

  *build(): Generator<null> {
    const stats = lstatSync(bytes(this.#stack.workspace));
    mkdirSync(bytes(this.#copy), { mode: 0o700 });
    this.#directories.push({ path: '', stats });
    yield* this.#fill(this.#stack.root);
  }

  // Modes and times last: what is put into a directory would change them, and some modes would forbid it.
  *finish(): Generator<null> {
    for (const { path, stats } of this.#directories.toReversed()) {
      lookLike(pathIn(this.#copy, path), stats);
      yield null;
    }
  }

  /** One line for each path, as it is in the copy. */
  listed(): string {
    return this.#paths
      .map(path => `${JSON.stringify([path, ...lookOf(lstatSync(bytes(pathIn(this.#copy, path)), BIG))])}\n`)
      .join('');
  }

  *#fill(directory: MergedDirectory): Generator<null> {
    for (const name of this.#names(directory)) {
      yield null;
      const entry = this.#stack.entry(directory, name);
      const path = pathIn(directory.path, name);
      if (entry.is === 'directory') yield* this.#make(entry.stats, entry.directory);
      else if (entry.is === 'entry') this.#place(entry.stats, this.#stack.upper(entry.layer), path);
      else if (entry.is === 'nothing' && directory.showsWorkspace) yield* this.#host(directory.path, name);
    }
  }

  // What no layer has.
  *#host(parent: string, name: string): Generator<null> {
    const stats = this.#stack.host(parent, name);
    if (!stats) return;
    const path = pathIn(parent, name);
    if (stats.isDirectory()) yield* this.#make(stats, { path, parts: [], showsWorkspace: true });
    else this.#place(stats, this.#stack.workspace, path);
  }

  *#make(stats: Stats, directory: MergedDirectory): Generator<null> {
    this.#count(directory.path, 0);
    const own = pathIn(this.#copy, directory.path);
    mkdirSync(bytes(own), { mode: 0o700 });
    this.#directories.push({ path: directory.path, stats });
    yield* this.#fill(directory);
  }

  #names(directory: MergedDirectory): string[] {
    const own = this.#stack.names(directory);
    const host = pathIn(this.#stack.workspace, directory.path);
    // A directory of a layer can lie over a file.
    const isMerged = directory.showsWorkspace && this.#stack.files.lstat(host, '.') !== null;
    const below = isMerged ? this.#stack.files.list(host) : ([] as const);
    if (own === 'unreadable' || below === 'unreadable')
      throw new UnreadableLayersError(`${JSON.stringify(directory.path)} cannot be read`);
    return [...new Set([...(own === 'gone' ? [] : own), ...(below === 'gone' ? [] : below)])].sort();
  }

  #place(stats: Stats, root: string, path: string): void {
    const own = bytes(pathIn(this.#copy, path));
    const slash = path.lastIndexOf('/');
    const [directory, name] = [pathIn(root, path.slice(0, Math.max(slash, 0))), path.slice(slash + 1)];
    if (stats.isSymbolicLink()) {
      const target = this.#stack.files.readlink(directory, name);
      if (target === null) return;
      this.#count(path, 0);
      symlinkSync(bytes(target), own);
    } else if (stats.isFile()) {
      const file = this.#stack.files.openFile(directory, name);
      if (file === null) throw new UnreadableLayersError(`${JSON.stringify(path)} cannot be read`);
      try {
        this.#count(path, stats.size);
        copyFileSync(`/proc/self/fd/${file}`, own, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
      } finally {
        closeSync(file);
      }
      lookLike(pathIn(this.#copy, path), stats);
    } else if (stats.isFIFO()) {
      this.#count(path, 0);
      this.fifos.push({ path, kind: 'fifo', mode: modeOf(stats) });
    }
  }

  #count(path: string, size: number): void {
    this.#paths.push(path);
    this.#bytes += size;
    if (this.#paths.length > this.#limits.entries || this.#bytes > this.#limits.bytes)
      throw new CopyTooLargeError('the workspace is too large to be copied');
  }
}

const BIG = { bigint: true } as const;

// Kind and mode, and what shows that an entry is the one that was copied, as it was.
function lookOf(stats: BigIntStats): [string, string] {
  const kind = stats.isDirectory() ? 'directory' : stats.isSymbolicLink() ? 'link' : stats.isFile() ? 'file' : 'other';
  const state = kind === 'directory' ? '' : `${stats.ino}.${stats.size}.${stats.ctimeNs}`;
  return [`${kind} ${(Number(stats.mode) & 0o7777).toString(8)}`, state];
}

function lookLike(path: string, stats: Pick<Stats, 'mode' | 'atimeMs' | 'mtimeMs'>): void {
  utimesSync(bytes(path), stats.atimeMs / 1000, stats.mtimeMs / 1000);
  chmodSync(bytes(path), modeOf(stats));
}

/** A copy in which commands have worked, and the layer to make of it. */
export interface CollectOptions extends MarkOptions {
  readonly copy: string;
  readonly list: string;
  /** Directory of the layer, which must not exist, on the file system of the copy. */
  readonly target: string;
}

/**
 * Makes a layer of what was changed in a copy. Files are linked, so the copy stays as it is until the caller removes it. Nothing may
 * write the copy meanwhile.
 */
export async function collectCopy(options: CollectOptions): Promise<void> {
  using collecting = new Collecting(options);
  for await (const step of sliced(collecting.build(), options.signal)) void step;
  if (collecting.marks.length > 0) await makeMarks(options.target, collecting.marks, options);
  for await (const step of sliced(collecting.finish(), options.signal)) void step;
}

class Collecting implements Disposable {
  readonly marks: NewMark[] = [];
  readonly #copy: string;
  readonly #target: string;
  readonly #files = new HeldDirectories();
  readonly #before = new Map<string, { readonly look: string; readonly state: string }>();
  readonly #below = new Map<string, string[]>();
  readonly #made = new Map<string, Stats>();

  constructor({ copy, list, target }: CollectOptions) {
    this.#copy = fromText(copy);
    this.#target = fromText(target);
    for (const line of readFileSync(list, 'utf8').split('\n')) {
      if (line === '') continue;
      const [path, look, state] = entrySchema.parse(JSON.parse(line));
      this.#before.set(path, { look, state });
      const slash = path.lastIndexOf('/');
      const parent = path.slice(0, Math.max(slash, 0));
      const names = this.#below.get(parent);
      if (names) names.push(path.slice(slash + 1));
      else this.#below.set(parent, [path.slice(slash + 1)]);
    }
  }

  *build(): Generator<null> {
    const stats = lstatSync(bytes(this.#copy));
    mkdirSync(bytes(this.#target), { mode: 0o700 });
    this.#made.set('', stats);
    yield* this.#visit('', true);
  }

  // Modes and times last: what is put into a directory would change them, and some modes would forbid it.
  *finish(): Generator<null> {
    for (const [path, stats] of [...this.#made].reverse()) {
      lookLike(pathIn(this.#target, path), stats);
      yield null;
    }
  }

  [Symbol.dispose](): void {
    this.#files[Symbol.dispose]();
  }

  // `isOld`: there was a directory at the path when the copy was made.
  *#visit(path: string, isOld: boolean): Generator<null> {
    const names = this.#list(path);
    const left = new Set(isOld ? this.#below.get(path) : []);
    for (const name of names) {
      yield null;
      left.delete(name);
      const own = pathIn(path, name);
      const found = lstatSync(bytes(pathIn(this.#copy, own)), { ...BIG, throwIfNoEntry: false });
      if (found) yield* this.#compare(own, found, isOld ? this.#before.get(own) : undefined);
    }
    for (const name of left) {
      this.#make(path);
      this.marks.push({ path: pathIn(path, name), kind: 'whiteout', mode: 0 });
    }
  }

  // `before`: what was copied to the path.
  *#compare(
    path: string,
    found: BigIntStats,
    before?: { readonly look: string; readonly state: string },
  ): Generator<null> {
    const [look, state] = lookOf(found);
    const isSame = look === before?.look;
    if (!found.isDirectory()) {
      if (!isSame || state !== before.state) this.#take(path, found);
      return;
    }
    if (!isSame) this.#make(path);
    yield* this.#visit(path, before?.look.startsWith('directory ') === true);
  }

  // A directory that a command closed to itself is opened: the copy is thrown away.
  #list(path: string): readonly string[] {
    const full = pathIn(this.#copy, path);
    const first = this.#files.list(full);
    if (typeof first !== 'string') return first;
    if (path !== '' && first === 'unreadable') {
      this.#make(path);
      chmodSync(bytes(full), 0o700);
      const again = this.#files.list(full);
      if (typeof again !== 'string') return again;
    }
    throw new UnreadableLayersError(`${JSON.stringify(path)} in the copy is ${first}`);
  }

  #take(path: string, stats: BigIntStats): void {
    this.#make(path.slice(0, Math.max(path.lastIndexOf('/'), 0)));
    const [own, target] = [bytes(pathIn(this.#copy, path)), bytes(pathIn(this.#target, path))];
    if (stats.isSymbolicLink()) symlinkSync(readlinkSync(own, { encoding: 'buffer' }), target);
    else if (stats.isFile() || stats.isFIFO() || stats.isSocket()) linkSync(own, target);
  }

  // The directory in the layer, with those above it.
  #make(path: string): void {
    if (this.#made.has(path)) return;
    this.#make(path.slice(0, Math.max(path.lastIndexOf('/'), 0)));
    this.#made.set(path, lstatSync(bytes(pathIn(this.#copy, path))));
    mkdirSync(bytes(pathIn(this.#target, path)), { mode: 0o700 });
  }
}
