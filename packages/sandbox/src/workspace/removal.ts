// Removes a directory that untrusted code has filled, however deep and closed it is, and while other processes still write to it.
//
// Every directory is taken hold of before anything is done in it, so that one that is exchanged for a link meanwhile leads
// nowhere; and each is moved to one heap first, since a path may be longer than the kernel takes and deeper than a stack.

import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  opendirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from 'node:fs';
import { bytes, fromText } from './directory-look.ts';
import { Pauses } from '../lifecycle/clock.ts';

const LINUX = process.platform === 'linux';
// Linux’s O_PATH, which Node.js does not name: a directory that may not be read can be taken hold of all the same.
const PATH_ONLY = LINUX ? 0o10000000 : 0;
const FLAGS = PATH_ONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;
// A process that writes faster than acode removes would otherwise never let it finish.
const MAX_REMOVED = 20_000_000;
const BUFFERED_ENTRIES = 128;

/** Removes a directory of this user’s and everything in it. Throws where something cannot be removed. */
export async function removeTree(root: string): Promise<void> {
  const top = Held.at(fromText(root));
  if (!top) return;
  try {
    const name = randomName();
    mkdirSync(bytes(`${top.path}/${name}`), { mode: 0o700 });
    const heap = Held.at(`${top.path}/${name}`);
    if (!heap) throw new Error('another process is writing to it');
    try {
      const removal = new Removal(heap);
      await removal.empty(top, name);
      await removal.emptyHeap();
    } finally {
      heap.release();
    }
    rmdirSync(bytes(`${top.path}/${name}`));
  } finally {
    top.release();
  }
  rmdirSync(root);
}

class Removal {
  readonly #heap: Held;
  readonly #pauses = new Pauses(null);
  #removed = 0;

  constructor(heap: Held) {
    this.#heap = heap;
  }

  /** Removes what is not a directory; moves directories to the heap. */
  async empty(directory: Held, spared: string | null): Promise<void> {
    using entries = opened(directory.path);
    for (let entry = entries.dir.readSync(); entry !== null; entry = entries.dir.readSync()) {
      if (entry.name === spared) continue;
      await this.#count();
      const path = `${directory.path}/${entry.name}`;
      if (entry.isDirectory()) this.#heapUp(path);
      else unlinkSync(bytes(path));
    }
  }

  /** Until nothing is on it: what is emptied may put more there. */
  async emptyHeap(): Promise<void> {
    for (let found = true; found;) {
      found = false;
      using entries = opened(this.#heap.path);
      for (let entry = entries.dir.readSync(); entry !== null; entry = entries.dir.readSync()) {
        found = true;
        await this.#emptied(`${this.#heap.path}/${entry.name}`);
      }
    }
  }

  async #emptied(path: string): Promise<void> {
    const directory = Held.at(path);
    if (!directory) return;
    try {
      await this.empty(directory, null);
    } finally {
      directory.release();
    }
    rmdirSync(bytes(path));
  }

  #heapUp(path: string): void {
    // Moving a directory changes it, so that it must be one that its owner may change.
    Held.at(path)?.release();
    renameSync(bytes(path), bytes(`${this.#heap.path}/${randomName()}`));
  }

  async #count(): Promise<void> {
    this.#removed += 1;
    if (this.#removed > MAX_REMOVED) throw new Error(`there are more than ${MAX_REMOVED} files in it`);
    if (this.#pauses.isDue) await this.#pauses.take();
  }
}

/** A directory that is held on to: what is done in it is done in this one, whatever becomes of its path. */
class Held {
  readonly path: string;
  readonly #descriptor: number;

  private constructor(descriptor: number, path: string) {
    this.#descriptor = descriptor;
    this.path = path;
  }

  /** Takes hold of a directory and makes it one that its owner may change; null where there is none, or something else. */
  static at(path: string): Held | null {
    let descriptor: number;
    try {
      descriptor = openSync(bytes(path), FLAGS);
    } catch (error) {
      if (isOneOf(error, ['ENOENT', 'ENOTDIR', 'ELOOP'])) return null;
      throw error;
    }
    const held = LINUX ? `/proc/self/fd/${descriptor}` : path;
    try {
      if ((fstatSync(descriptor).mode & 0o700) !== 0o700) chmodSync(bytes(held), 0o700);
      return new Held(descriptor, held);
    } catch (error) {
      closeSync(descriptor);
      throw error;
    }
  }

  release(): void {
    closeSync(this.#descriptor);
  }
}

function opened(path: string): Disposable & { readonly dir: ReturnType<typeof opendirSync> } {
  const dir = opendirSync(bytes(path), { encoding: 'latin1', bufferSize: BUFFERED_ENTRIES });
  return { dir, [Symbol.dispose]: () => dir.closeSync() };
}

function randomName(): string {
  return `.${randomBytes(16).toString('hex')}`;
}

function isOneOf(error: unknown, codes: readonly unknown[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(error.code);
}
