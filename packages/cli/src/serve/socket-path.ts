// Socket directory: Node cannot ask for the peer’s user, so a socket is trusted only in a directory that is the user’s alone.

import { closeSync, constants, existsSync, fstatSync, lstatSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const OTHERS = 0o077;
const DESCRIPTORS = '/proc/self/fd';

/** A directory that only its owner can put anything into, held open so that no process can replace it. */
export class SocketDirectory implements Disposable {
  readonly #directory: string;
  readonly #descriptor: number;
  #isOpen = true;

  private constructor(directory: string, descriptor: number) {
    this.#directory = directory;
    this.#descriptor = descriptor;
  }

  /** The directory, or why it is not to be used. */
  static open(directory: string, uid: number): SocketDirectory | { readonly unsafe: string } {
    let descriptor: number;
    try {
      descriptor = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    } catch {
      return { unsafe: `${directory} is not a directory that can be opened` };
    }
    const unsafe = whyUnsafe(directory, fstatSync(descriptor), uid);
    if (unsafe === null) return new SocketDirectory(directory, descriptor);
    closeSync(descriptor);
    return { unsafe };
  }

  /** The path of a socket in it: by the open directory where the system can say that, which is also short enough for any. */
  path(name: string): string {
    return existsSync(DESCRIPTORS) ? `${DESCRIPTORS}/${this.#descriptor}/${name}` : join(this.#directory, name);
  }

  /** The names of what is in it. */
  names(): string[] {
    return readdirSync(this.path(''));
  }

  /** Why a socket in it is not to be used; null where it is. */
  whyUnsafe(name: string, uid: number): string | null {
    const shown = join(this.#directory, name);
    const found = lstatSync(this.path(name), { throwIfNoEntry: false });
    if (found?.isSocket() !== true) return `${shown} is not a socket`;
    return whyUnsafe(shown, found, uid);
  }

  [Symbol.dispose](): void {
    if (this.#isOpen) closeSync(this.#descriptor);
    this.#isOpen = false;
  }
}

function whyUnsafe(path: string, { uid, mode }: { uid: number; mode: number }, own: number): string | null {
  if (uid !== own) return `${path} belongs to user ${uid}`;
  return (mode & OTHERS) === 0 ? null : `${path} can be used by others (mode 0${(mode & 0o777).toString(8)})`;
}
