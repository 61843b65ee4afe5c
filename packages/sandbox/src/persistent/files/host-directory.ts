// A directory of the host that is held open: whatever happens to the names that lead to it, what is done in it is done in it.
// What stands in a workspace, a sandbox can replace by a link at any moment.

import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from 'node:fs';
import type { Dirent } from 'node:fs';
import { resolve } from 'node:path';

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
