// Destination of downloaded files: first a private directory, and the requested path only when all of them
// have come and nothing was wrong with any.

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  existsSync,
  futimesSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import type { Dirent } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { basename, dirname, relative, resolve } from 'node:path';
import { codeOf, fileError } from './errno.ts';
import type { RiskyChange } from '../../contract/result.ts';
import { riskOfDirectory } from '../../workspace/risky-names.ts';
import type { RiskyDirectory } from '../../workspace/risky-names.ts';
import { scanPath } from '../../workspace/risky.ts';

const PERMISSIONS = 0o777;
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
const LATEST_SECONDS = 2 ** 33;

/** What is written into a file that arrives. */
export interface ArrivingFile {
  readonly mode: number;
  readonly modifiedSeconds?: number;
  readonly content: AsyncIterable<Buffer>;
}

/** What is to stand at the place. */
export type ArrivalKind = 'file' | 'directory';

/** Why an entry has no place. */
export class NoPlace extends Error {
  override readonly name = 'NoPlace';
}

/** A transfer on its way to a path. Disposing of it removes what has not reached its place. */
export class Arrival implements Disposable {
  readonly #hostPath: string;
  readonly #base: string;
  readonly #parent: HostDirectory;
  readonly #target: HostDirectory | null;
  readonly #stage: HostDirectory;
  readonly #stageName: string;
  // The directories that lead to where the last entry was written: an archive lists a tree one branch after the other.
  #open: { name: string; directory: HostDirectory }[] = [];

  #made = 0;

  private constructor(hostPath: string, parent: HostDirectory, target: HostDirectory | null) {
    this.#hostPath = hostPath;
    this.#base = latin1(basename(hostPath));
    this.#parent = parent;
    this.#target = target;
    this.#stageName = `.acode-arriving-${randomBytes(8).toString('hex')}`;
    // In the target where there is one, since it may be a file system of its own.
    this.#home.make(this.#stageName, 0o700);
    this.#stage = this.#home.enter(this.#stageName);
  }

  /** Prepares for what is to stand at a path of the host: its content where it is a directory already. */
  static at(path: string, kind: ArrivalKind): Arrival {
    const hostPath = resolve(path);
    mkdirSync(dirname(hostPath), { recursive: true });
    return Arrival.#in(HostDirectory.open(dirname(hostPath)), hostPath, kind);
  }

  /**
   * The same below a directory that a sandbox can write: no link is followed on the way from it, and what is missing on that
   * way is made.
   */
  static below(root: string, path: string, kind: ArrivalKind): Arrival {
    const hostPath = resolve(root, path);
    const names = latin1(relative(root, dirname(hostPath)))
      .split('/')
      .filter(Boolean);
    let parent = HostDirectory.open(root);
    for (const name of names) {
      using above = parent;
      parent = enterOrMake(above, name, hostPath);
    }
    return Arrival.#in(parent, hostPath, kind);
  }

  static #in(parent: HostDirectory, hostPath: string, kind: ArrivalKind): Arrival {
    let target: HostDirectory | null = null;
    try {
      // The root of the file system has no name in another directory.
      const base = hostPath === '/' ? '.' : latin1(basename(hostPath));
      target = isTaken(parent, base, { path: hostPath, kind }) ? parent.enter(base) : null;
      return new Arrival(hostPath, parent, target);
    } catch (error) {
      target?.[Symbol.dispose]();
      parent[Symbol.dispose]();
      throw error;
    }
  }

  /** How many directories there are so far, whether or not they had an entry of their own. */
  get made(): number {
    return this.#made;
  }

  /** Makes a directory; one that exists already is the same. */
  directory(segments: readonly string[], mode: number): void {
    this.#reach(segments, (mode & PERMISSIONS) | 0o700);
  }

  /** Writes a file, and never over another. */
  async file(segments: readonly string[], { mode, modifiedSeconds, content }: ArrivingFile): Promise<void> {
    const name = segments.at(-1) ?? '';
    const file = this.#create(this.#reach(segments.slice(0, -1), 0o755), name, mode & PERMISSIONS);
    try {
      for await (const chunk of content) for (let at = 0; at < chunk.length;) at += writeSync(file, chunk, at);
      if (modifiedSeconds !== undefined && modifiedSeconds < LATEST_SECONDS)
        futimesSync(file, modifiedSeconds, modifiedSeconds);
    } finally {
      closeSync(file);
    }
  }

  /** Brings a tree to its place. */
  settle(): void {
    if (this.#target) {
      this.#leave(0);
      assertRoom(this.#stage, this.#target);
      moveInto(this.#stage, this.#target);
      return;
    }
    this.#parent.move(this.#stageName, this.#parent, this.#base);
  }

  /** Brings the one file that has arrived to its place. */
  settleFile(name: string): void {
    this.#stage.move(name, this.#parent, this.#base);
  }

  [Symbol.dispose](): void {
    this.#leave(0);
    this.#stage[Symbol.dispose]();
    try {
      this.#home.remove(this.#stageName, true);
    } catch (error) {
      // It has become what stands at the place.
      if (codeOf(error) !== 'ENOENT') throw error;
    } finally {
      this.#target?.[Symbol.dispose]();
      this.#parent[Symbol.dispose]();
    }
  }

  get #home(): HostDirectory {
    return this.#target ?? this.#parent;
  }

  #create(directory: HostDirectory, name: string, mode: number): number {
    try {
      return directory.openFile(name, NEW_FILE, mode);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') throw new NoPlace('there was another of the same name before it');
      throw this.#onHost(error);
    }
  }

  #reach(segments: readonly string[], mode: number): HostDirectory {
    const same = this.#open.findIndex(({ name }, index) => segments[index] !== name);
    this.#leave(same === -1 ? Math.min(this.#open.length, segments.length) : same);
    for (const name of segments.slice(this.#open.length)) {
      const directory = this.#enter(this.#open.at(-1)?.directory ?? this.#stage, name, mode);
      this.#open.push({ name, directory });
    }
    return this.#open.at(-1)?.directory ?? this.#stage;
  }

  #enter(parent: HostDirectory, name: string, mode: number): HostDirectory {
    try {
      return parent.enter(name);
    } catch (error) {
      if (codeOf(error) === 'ENOTDIR' || codeOf(error) === 'ELOOP') throw new NoPlace('its name leads through a file');
      if (codeOf(error) !== 'ENOENT') throw this.#onHost(error);
    }
    try {
      parent.make(name, mode);
      this.#made++;
      return parent.enter(name);
    } catch (error) {
      throw this.#onHost(error);
    }
  }

  #leave(depth: number): void {
    for (const { directory } of this.#open.splice(depth).reverse()) directory[Symbol.dispose]();
  }

  // The temporary names would mean nothing to a reader.
  #onHost(error: unknown): Error {
    return fileError(codeOf(error), { syscall: 'open', path: this.#hostPath }, error);
  }
}

function enterOrMake(parent: HostDirectory, name: string, hostPath: string): HostDirectory {
  try {
    if (!lstatSync(parent.at(name), { throwIfNoEntry: false })) parent.make(name, 0o755);
    return parent.enter(name);
  } catch (error) {
    throw fileError(codeOf(error), { syscall: 'open', path: hostPath }, error);
  }
}

// Whether a directory is there already; what else is there has no room for what comes.
function isTaken(
  parent: HostDirectory,
  base: string,
  { path, kind }: { readonly path: string; readonly kind: ArrivalKind },
): boolean {
  const there = lstatSync(parent.at(base), { throwIfNoEntry: false });
  if (!there) return false;
  if (there.isSymbolicLink()) throw fileError('ELOOP', { syscall: 'open', path });
  if (there.isDirectory() && kind === 'file') throw fileError('EISDIR', { syscall: 'open', path });
  if (!there.isDirectory() && kind === 'directory') throw fileError('ENOTDIR', { syscall: 'mkdir', path });
  return there.isDirectory();
}

function assertRoom(from: HostDirectory, to: HostDirectory): void {
  for (const entry of from.list()) {
    const name = entry.name.toString('latin1');
    const there = lstatSync(to.at(name), { throwIfNoEntry: false });
    if (!there) continue;
    if (!entry.isDirectory()) {
      if (there.isDirectory()) throw fileError('EISDIR', { syscall: 'rename', path: to.nameOf(name) });
      continue;
    }
    if (!there.isDirectory()) throw fileError('ENOTDIR', { syscall: 'mkdir', path: to.nameOf(name) });
    using here = from.enter(name);
    using beside = to.enter(name);
    assertRoom(here, beside);
  }
}

// A rename replaces a link that stands at the place, and follows none.
function moveInto(from: HostDirectory, to: HostDirectory): void {
  for (const entry of from.list()) {
    const name = entry.name.toString('latin1');
    if (!entry.isDirectory() || !lstatSync(to.at(name), { throwIfNoEntry: false })) {
      from.move(name, to);
      continue;
    }
    using here = from.enter(name);
    using beside = to.enter(name);
    moveInto(here, beside);
  }
}

function latin1(text: string): string {
  return Buffer.from(text).toString('latin1');
}

/** Scans what arrived at a path since a time; paths are relative to it. */
export async function riskyArrivals(path: string, sinceMs: number): Promise<readonly RiskyChange[]> {
  // The scan follows no link, and the caller may have named one.
  const target = await realpath(path).catch(() => resolve(path));
  const { riskyChanges } = await scanPath(target, { sinceMs, untilMs: Infinity });
  // The scan knows what is in a directory, and not what the directory itself is called.
  const own = riskOfPlace(target) ?? riskOfPlace(resolve(path));
  return own ? [{ path: '.', kind: own.kind, reason: own.reason }, ...riskyChanges] : riskyChanges;
}

function riskOfPlace(path: string): RiskyDirectory | null {
  return riskOfDirectory(basename(path), basename(dirname(path)));
}

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY;

/** A directory that is open. Names are single ones, in latin1, byte for byte. */
export class HostDirectory implements Disposable {
  readonly #descriptor: number;
  readonly #path: string;
  readonly #way: string;

  private constructor(descriptor: number, path: string) {
    this.#descriptor = descriptor;
    this.#path = path;
    const held = `/proc/self/fd/${descriptor}`;
    // Where the kernel has no such names, those that lead there must do; links are not followed at the last of them.
    this.#way = existsSync(held) ? held : path;
  }

  /** Opens a directory of the caller’s own naming, through whatever links lead to it. */
  static open(path: string): HostDirectory {
    const full = resolve(path);
    return new HostDirectory(openSync(full, DIRECTORY), Buffer.from(full).toString('latin1'));
  }

  /** How an entry is called towards the system. */
  at(name: string): Buffer {
    return Buffer.from(`${this.#way}/${name}`, 'latin1');
  }

  /** How an entry is called towards a reader. */
  nameOf(name: string): string {
    return Buffer.from(`${this.#path}/${name}`, 'latin1').toString('utf8');
  }

  /** Opens a directory in it; a link is an error. */
  enter(name: string): HostDirectory {
    return new HostDirectory(openSync(this.at(name), DIRECTORY | constants.O_NOFOLLOW), `${this.#path}/${name}`);
  }

  /** Makes a directory in it. */
  make(name: string, mode: number): void {
    mkdirSync(this.at(name), { mode });
  }

  /** Opens a file in it; a link is an error, and a FIFO is not waited for. */
  openFile(name: string, flags: number, mode = 0o600): number {
    return openSync(this.at(name), flags | constants.O_NOFOLLOW | constants.O_NONBLOCK, mode);
  }

  /** What is in it. */
  list(): Dirent<Buffer>[] {
    return readdirSync(Buffer.from(this.#way, 'latin1'), { withFileTypes: true, encoding: 'buffer' });
  }

  /** Moves an entry into another directory, in place of what is there. */
  move(name: string, to: HostDirectory, newName = name): void {
    renameSync(this.at(name), to.at(newName));
  }

  /** Removes an entry with everything below it, and follows nothing. */
  remove(name: string, isDirectory: boolean): void {
    if (!isDirectory) return unlinkSync(this.at(name));
    {
      using directory = this.enter(name);
      for (const entry of directory.list()) directory.remove(entry.name.toString('latin1'), entry.isDirectory());
    }
    rmdirSync(this.at(name));
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}
