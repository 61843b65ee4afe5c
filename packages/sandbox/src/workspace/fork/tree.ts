// Directories opened name by name without following links, and the files that an apply reads and makes in them.
//
// A path is walked from the workspace down, each directory is held open, and every system call names one entry of an open directory
// (`/proc/self/fd/<n>/<name>`). What another process puts in the place of a directory meanwhile, a link above all, is not walked through.

import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  readlinkSync,
  writeSync,
} from 'node:fs';
import type { BigIntStats } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { AcodeError } from '../../contract/errors.ts';
import { codeOf } from '../../contract/system-error.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
const OPEN_DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
// Without O_NONBLOCK, opening a FIFO waits for a writer that may never come.
const OPEN_FILE = O_RDONLY | O_NOFOLLOW | O_NONBLOCK;
const CREATE_FILE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
// Node has no name for it. Such a descriptor names an entry, whatever its mode, and cannot read it.
const O_PATH = 0o10000000;

const PERMISSIONS = 0o7777;
const BLOCK = 4096;
const CHUNK = 256 * BLOCK;
// The size of a file counts, and not what it has on disk, in what a reader has to go through.
const MAX_HOLE_BYTES = 1024 ** 3;

/** What is at a path. */
export type TreeEntry =
  | {
      readonly kind: 'file';
      readonly inode: bigint;
      readonly size: number;
      readonly mode: number;
      readonly uid: number;
      readonly gid: number;
      /** Most of it takes no place on the disk, and reading it could take hours. */
      readonly isSparse: boolean;
      /** Changes with content and attributes; only the kernel sets it. */
      readonly changedNs: bigint;
    }
  | { readonly kind: 'directory'; readonly inode: bigint; readonly mode: number }
  | { readonly kind: 'link'; readonly inode: bigint; readonly target: string }
  | { readonly kind: 'special'; readonly inode: bigint };

/** A directory that is held open. */
export class OpenDirectory implements Disposable {
  readonly #descriptor: number;

  private constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** Opens a directory by its path, whose last name must not be a link. */
  static open(path: string): OpenDirectory {
    return new OpenDirectory(openSync(path, OPEN_DIRECTORY));
  }

  /** Opens the top of a workspace. */
  static openWorkspace(path: string): OpenDirectory {
    if (process.platform !== 'linux' || !existsSync('/proc/self/fd'))
      throw new AcodeError('ACODE-FRK-014', {
        workspace: path,
        reason: 'this system has no /proc/self/fd, without which links cannot be ruled out',
      });
    return OpenDirectory.open(path);
  }

  /** The path of one entry, for system calls that do not follow a link at its end. */
  at(name: string): string {
    if (!isName(name)) throw new Error(`not a name: ${JSON.stringify(name)}`);
    return `${this.self}/${name}`;
  }

  /** The path of the directory itself, for as long as it is open. */
  get self(): string {
    return `/proc/self/fd/${this.#descriptor}`;
  }

  /** Opens a directory in this one; throws where there is a link or no directory. */
  child(name: string): OpenDirectory {
    return OpenDirectory.open(this.at(name));
  }

  /** What an entry is; null where there is none. */
  inspect(name: string): TreeEntry | null {
    const path = this.at(name);
    const found = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    if (!found) return null;
    if (!found.isSymbolicLink()) return entryOf(found);
    try {
      return { kind: 'link', inode: found.ino, target: readlinkSync(path) };
    } catch (error) {
      // Something else since; the next look says what.
      if (codeOf(error) === 'EINVAL' || codeOf(error) === 'ENOENT') return this.inspect(name);
      throw error;
    }
  }

  /** Sets the mode of a file or directory in this one, if it is still the one that was seen. */
  setMode(name: string, inode: bigint, mode: number): boolean {
    const descriptor = openSync(this.at(name), O_PATH | O_NOFOLLOW);
    try {
      const found = fstatSync(descriptor, { bigint: true });
      if (found.ino !== inode || found.isSymbolicLink()) return false;
      chmodSync(`/proc/self/fd/${descriptor}`, mode);
      return true;
    } finally {
      closeSync(descriptor);
    }
  }

  /** The number of the directory on its file system. */
  get inode(): bigint {
    return fstatSync(this.#descriptor, { bigint: true }).ino;
  }

  /** When its entries last changed. */
  get modifiedNs(): bigint {
    return fstatSync(this.#descriptor, { bigint: true }).mtimeNs;
  }

  /** The group that files in it get; null for the group of the process that makes them. */
  get group(): number | null {
    const { mode, gid } = fstatSync(this.#descriptor);
    return (mode & 0o2000) === 0 ? null : gid;
  }

  /** The mount it was reached through: a rename or a hard link never leads from one mount to another, even of the same disk. */
  get mount(): string {
    const found = /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${this.#descriptor}`, 'utf8'));
    return `${found?.[1] ?? '?'}:${fstatSync(this.#descriptor).dev}`;
  }

  /** Waits until its entries are on the disk. */
  sync(): void {
    fsyncSync(this.#descriptor);
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}

function entryOf(found: BigIntStats): TreeEntry {
  const inode = found.ino;
  const mode = Number(found.mode) & PERMISSIONS;
  if (found.isDirectory()) return { kind: 'directory', inode, mode };
  if (!found.isFile()) return { kind: 'special', inode };
  return {
    kind: 'file',
    inode,
    size: Number(found.size),
    mode,
    uid: Number(found.uid),
    gid: Number(found.gid),
    isSparse: isHollow(found),
    changedNs: found.ctimeNs,
  };
}

/** Whether a file has more in holes than may be read. */
export function isHollow({ size, blocks }: BigIntStats): boolean {
  return Number(size - blocks * 512n) > MAX_HOLE_BYTES;
}

function isName(name: string): boolean {
  return name !== '' && name !== '.' && name !== '..' && !/[/\0]/.test(name);
}

/** Whether a path has nothing but names in it: relative, no `..`, no empty name. */
export function isTreePath(path: string): boolean {
  return path.split('/').every(isName);
}

/** The path of the directory that an entry is in; empty for the top. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}

/** The directories above a path, the topmost first. */
export function ancestorsOf(path: string): string[] {
  const names = path.split('/');
  return names.slice(1).map((_, at) => names.slice(0, at + 1).join('/'));
}

/** Opens a directory below another, name by name. `path` is empty for the directory itself. */
export function openBelow(root: OpenDirectory, path: string): OpenDirectory {
  let at = OpenDirectory.open(`${root.self}/.`);
  for (const name of path === '' ? [] : path.split('/')) {
    using before = at;
    at = before.child(name);
  }
  return at;
}

/** The name of an entry in its directory. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Whether an error says that the way to a path is not one of directories. */
export function isNoWay(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error));
}

/**
 * The mode that a file or directory of a fork has in the workspace: setuid, setgid and sticky only where the workspace’s own had
 * them, and no permission that the user’s umask withholds, unless the workspace’s own had it.
 *
 * @param own mode of what is there now; 0 where nothing is.
 */
export function safeMode(wanted: number, own: number, umask: number): number {
  return wanted & ((0o777 & ~umask) | own);
}

/** The user’s umask; the strictest usual one where the system does not tell. Reading it by the system call would set it. */
export function currentUmask(): number {
  const found = /^Umask:\s*([0-7]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'));
  return found?.[1] === undefined ? 0o077 : Number.parseInt(found[1], 8);
}

/** Something that was read: its digest, and how long it is. */
export interface ReadContent {
  readonly sha256: string;
  readonly size: number;
}

/** The digest of content in memory. */
export function sha256Of(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

/** Reads a file of a directory; throws where it is not an ordinary one. */
export async function digestOf(directory: OpenDirectory, name: string, signal?: AbortSignal): Promise<ReadContent> {
  const descriptor = openFile(directory, name);
  try {
    return await readThrough(descriptor, signal);
  } finally {
    closeSync(descriptor);
  }
}

/** The content of a small file of a directory. */
export function readSmallFile(directory: OpenDirectory, name: string): Buffer {
  const descriptor = openFile(directory, name);
  try {
    return readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function openFile(directory: OpenDirectory, name: string): number {
  const descriptor = openSync(directory.at(name), OPEN_FILE);
  if (fstatSync(descriptor).isFile()) return descriptor;
  closeSync(descriptor);
  throw Object.assign(new Error(`${name} is not an ordinary file`), { code: 'EINVAL' });
}

/** Reads a file from its beginning, and gives each part to `take`. */
export async function readThrough(
  descriptor: number,
  signal?: AbortSignal,
  take?: (part: Buffer, position: number) => void,
): Promise<ReadContent> {
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(CHUNK);
  for (let size = 0; ;) {
    const count = readSync(descriptor, buffer, 0, CHUNK, size);
    if (count === 0) return { sha256: hash.digest('hex'), size };
    const part = buffer.subarray(0, count);
    hash.update(part);
    take?.(part, size);
    size += count;
    if (count < CHUNK) continue;
    signal?.throwIfAborted();
    await setImmediate();
  }
}

const ZEROS = Buffer.alloc(BLOCK);

/**
 * Makes a file that only this user can open: content and nothing else, so that no attribute of an overlay comes along. Blocks of
 * zeros become holes, as they may have been.
 */
export async function createFile(
  directory: OpenDirectory,
  name: string,
  source: number | Buffer,
  signal?: AbortSignal,
): Promise<ReadContent> {
  const descriptor = openSync(directory.at(name), CREATE_FILE, 0o600);
  try {
    if (typeof source !== 'number') {
      writeWhole(descriptor, source, 0);
      return { sha256: sha256Of(source), size: source.length };
    }
    const read = await readThrough(source, signal, (part, position) => writeBlocks(descriptor, part, position));
    ftruncateSync(descriptor, read.size);
    return read;
  } finally {
    closeSync(descriptor);
  }
}

function writeBlocks(descriptor: number, part: Buffer, position: number): void {
  if (!part.includes(ZEROS)) return writeWhole(descriptor, part, position);
  for (let at = 0; at < part.length; at += BLOCK) {
    const block = part.subarray(at, at + BLOCK);
    if (block.length < BLOCK || !block.equals(ZEROS)) writeWhole(descriptor, block, position + at);
  }
}

function writeWhole(descriptor: number, part: Buffer, position: number): void {
  for (let at = 0; at < part.length;) at += writeSync(descriptor, part, at, part.length - at, position + at);
}
