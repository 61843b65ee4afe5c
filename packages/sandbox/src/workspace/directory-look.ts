// Looks into directories that untrusted code has filled: no link is followed, nothing but directories is opened.
//
// Paths and names are byte strings (latin1), because names on Linux are bytes and need not be text.

import { codeOf } from '../contract/system-error.ts';
import { closeSync, constants, fstatSync, lstatSync, openSync, opendirSync, readdirSync, readlinkSync } from 'node:fs';
import type { Dir, Dirent, Stats } from 'node:fs';

/** Why a directory could not be looked into. */
export type Unseen = 'gone' | 'unreadable' | 'elsewhere';

const LINUX = process.platform === 'linux';
const BUFFERED_ENTRIES = 512;
const FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const FILE_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const UNLESS_GONE = { throwIfNoEntry: false } as const;
// oxlint-disable-next-line no-control-regex -- every byte but those that a text has otherwise
const PLAIN = /^[\x01-\x7f]*$/;
// Linux’s O_PATH, which Node.js does not name: needs no right to read, and gives none.
const PATH_ONLY = 0o10000000 | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** A directory that is held open, so that what is asked of it is asked of this one whatever becomes of its path. */
export class DirectoryLook implements Disposable {
  readonly stats: Stats;
  readonly #descriptor: number;
  readonly #path: string;
  #entries: Dir | null = null;

  private constructor(descriptor: number, path: string) {
    this.#descriptor = descriptor;
    this.#path = path;
    this.stats = fstatSync(descriptor);
  }

  /** Opens the directory that really is at a path. One that may not be read has entries that can be asked for by name. */
  static open(path: string): DirectoryLook | Unseen {
    let descriptor: number;
    try {
      descriptor = openDirectory(path);
    } catch (error) {
      return codeOf(error) === 'ENOENT' ? 'gone' : 'unreadable';
    }
    const held = LINUX ? `/proc/self/fd/${descriptor}` : path;
    try {
      // A link in the middle of the path would have led here too.
      if (LINUX && readlinkSync(held, 'latin1') !== path) throw new Error('the path leads through a link');
      return new DirectoryLook(descriptor, held);
    } catch {
      closeSync(descriptor);
      return 'elsewhere';
    }
  }

  /** The next entry, in the order of the file system; null after the last. */
  next(): Dirent | null | 'unreadable' {
    try {
      this.#entries ??= opendirSync(bytes(this.#path), { encoding: 'latin1', bufferSize: BUFFERED_ENTRIES });
      return this.#entries.readSync();
    } catch {
      return 'unreadable';
    }
  }

  /** All entries at once: quicker than one by one, and for directories that are known to be small. */
  all(): Dirent[] | 'unreadable' {
    try {
      return readdirSync(bytes(this.#path), { encoding: 'latin1', withFileTypes: true });
    } catch {
      return 'unreadable';
    }
  }

  /** All names at once, in the order of the file system. */
  names(): string[] | 'unreadable' {
    try {
      return readdirSync(bytes(this.#path), { encoding: 'latin1' });
    } catch {
      return 'unreadable';
    }
  }

  /** Whether a process that knows a name in it can reach that entry. */
  get isEnterable(): boolean {
    return this.lstat('.') !== null;
  }

  /** An entry itself, without following links; null if it was removed. */
  lstat(name: string): Stats | null {
    return lstat(`${this.#path}/${name}`);
  }

  /** Opens a file in it for reading; throws for a link. A FIFO is not waited for: the caller asks the descriptor what it is. */
  openFile(name: string): number {
    return openSync(bytes(`${this.#path}/${name}`), FILE_FLAGS);
  }

  /** Where a symbolic link in it leads, as a byte string; null where it is not one. */
  readlink(name: string): string | null {
    try {
      return readlinkSync(bytes(`${this.#path}/${name}`), 'latin1');
    } catch {
      return null;
    }
  }

  [Symbol.dispose](): void {
    this.#entries?.closeSync();
    closeSync(this.#descriptor);
  }
}

function openDirectory(path: string): number {
  try {
    return openSync(bytes(path), FLAGS);
  } catch (error) {
    if (!LINUX || codeOf(error) !== 'EACCES') throw error;
    return openSync(bytes(path), PATH_ONLY);
  }
}

/** The file at a path, without following links; null if it was removed or cannot be reached. */
export function lstat(path: string): Stats | null {
  try {
    // Most names that are asked for are not there, and an exception for each would cost more than the question.
    // The same bytes as a text cost less to hand over.
    return lstatSync(PLAIN.test(path) ? path : bytes(path), UNLESS_GONE) ?? null;
  } catch {
    return null;
  }
}

/** A byte string as the file system takes it. */
export function bytes(path: string): Buffer {
  return Buffer.from(path, 'latin1');
}

/** Text as a byte string. */
export function fromText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** A byte string as text. */
export function toText(path: string): string {
  return bytes(path).toString('utf8');
}
