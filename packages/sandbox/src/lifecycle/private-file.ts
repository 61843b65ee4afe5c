// Private files: written whole under a temporary name and then renamed, read back only if no other user can have written them.

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import type { Stats } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { codeOf } from '../contract/system-error.ts';

// Without O_NONBLOCK, opening a FIFO waits for a writer that may never come.
const READ = constants.O_RDONLY | constants.O_NONBLOCK;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE = 0o600;

/** The content and the owner of a file that was read. */
export interface BoundedFile {
  /** The content as UTF-8. */
  readonly text: string;
  /** The bytes as they are, where text could hide a difference. */
  readonly bytes: Buffer;
  /** Size of the whole file, in bytes. */
  readonly size: number;
  /** The owner. */
  readonly uid: number;
  /** Type and permissions. */
  readonly mode: number;
  /** When it changed last, in milliseconds since the epoch. */
  readonly mtimeMs: number;
}

/** Conditions of a private file that is read. */
export interface PrivateRead {
  /** A longer file is refused. */
  readonly maxBytes: number;
  /** The owner that the file must have; the user of this process unless given. */
  readonly uid?: number;
}

/** How a private file is written. */
export interface PrivateWrite {
  /** The mode of the file whatever the umask; 0600 unless given. */
  readonly mode?: number;
  /**
   * Whether the content is on the disk before the file has its name; `false` is for what may be lost, `'name'` for what must be
   * there under its name when this returns. Default `true`.
   */
  readonly durable?: boolean | 'name';
}

/**
 * Reads the first `maxBytes` bytes of a file that anybody may have written; throws where it is not an ordinary file: reading
 * a FIFO or a device might never end.
 */
export async function readBoundedFile(path: string, maxBytes: number, flags = 0): Promise<BoundedFile> {
  const file = await open(path, READ | flags);
  try {
    const found = await file.stat();
    assertOrdinary(found, path);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(maxBytes, found.size)), 0);
    return boundedFile(found, buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}

/**
 * Reads a file that only this user can have written. Null where there is none, where it is a link, belongs to another user,
 * is open to others, or is too long: what others could have written is not trusted.
 */
export function readPrivateFile(path: string, { maxBytes, uid = process.getuid?.() }: PrivateRead): BoundedFile | null {
  let descriptor: number;
  try {
    descriptor = openSync(path, READ | constants.O_NOFOLLOW);
  } catch {
    return null;
  }
  try {
    const found = fstatSync(descriptor);
    const isOwn = uid === undefined || found.uid === uid;
    if (!found.isFile() || !isOwn || (found.mode & 0o077) !== 0 || found.size > maxBytes) return null;
    const buffer = Buffer.alloc(found.size);
    return boundedFile(found, buffer.subarray(0, readSync(descriptor, buffer, 0, found.size, 0)));
  } finally {
    closeSync(descriptor);
  }
}

/** Writes a file in place of the one that is there: a reader sees the old content or the new, never half of either. */
export function writePrivateFile(path: string, content: string | Buffer, options: PrivateWrite = {}): void {
  const draft = writeDraft(path, content, options);
  try {
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
  if (options.durable === 'name') syncDirectory(dirname(path));
}

// A name is on the disk when its directory is.
function syncDirectory(path: string): void {
  const descriptor = openSync(path, constants.O_RDONLY);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Writes a file where there is none. Of two processes that do so at once, both find what the first one wrote. */
export function createPrivateFile(path: string, content: string | Buffer, options: PrivateWrite = {}): void {
  const draft = writeDraft(path, content, options);
  try {
    linkSync(draft, path);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

// The name is random and must be new, so that acode never writes through a link that another process put there.
function writeDraft(path: string, content: string | Buffer, { mode = PRIVATE, durable = true }: PrivateWrite): string {
  const draft = `${path}.${randomBytes(8).toString('hex')}`;
  const descriptor = openSync(draft, CREATE, mode);
  try {
    writeFileSync(descriptor, content);
    if (mode !== PRIVATE) fchmodSync(descriptor, mode);
    if (durable !== false) fsyncSync(descriptor);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  } finally {
    closeSync(descriptor);
  }
  return draft;
}

function assertOrdinary(found: Stats, path: string): void {
  if (!found.isFile()) throw new Error(`${path} is not an ordinary file`);
}

function boundedFile({ size, uid, mode, mtimeMs }: Stats, bytes: Buffer): BoundedFile {
  return { text: bytes.toString('utf8'), bytes, size, uid, mode, mtimeMs };
}
