// Program files of acode: whether a command could have replaced them, asked before acode starts itself again.

import { realpathSync } from 'node:fs';

/** The files of this process: Node.js and the entry of acode. */
export class OwnProgram {
  /** The file that this process was started from. */
  readonly entry: string;
  // Both as they were named and as they really are. Read now, because a command may put a link in their place later.
  readonly #paths: readonly string[];

  constructor(entry: string) {
    this.entry = entry;
    this.#paths = [process.execPath, entry].flatMap(path => [path, realPath(path)]);
  }

  /** Whether a command that could write these directories may have replaced the program. Renaming a parent is enough for that. */
  isBelow(directories: readonly string[]): boolean {
    return directories.some(directory => this.#paths.some(path => `${path}/`.startsWith(`${directory}/`)));
  }
}

/** A path with all links followed; the path itself where it leads nowhere. */
export function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
