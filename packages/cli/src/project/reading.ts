// Reads small files and directories of a project. Both are untrusted: no link is followed, and every read is bounded.

import { constants } from 'node:fs';
import { lstat, open, opendir } from 'node:fs/promises';
import { dirname, join } from 'node:path';

const MAX_BYTES = 1024 * 1024;
const MAX_ENTRIES = 20_000;

/** The directories from one up to the root of the workspace; only the root for one outside of it. */
export function upwards(root: string, here: string): string[] {
  const found = [here];
  for (let at = here; at !== root && dirname(at) !== at; at = dirname(at)) found.push(dirname(at));
  return found.includes(root) ? found : [root];
}

/** The text of a small regular file; null if it is missing, larger than 1 MiB, a link or anything else. */
export async function smallFile(path: string): Promise<string | null> {
  try {
    // A command may have made anything here: opening a FIFO would wait for a writer, and a device may never end.
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const found = await file.stat();
    return found.isFile() && found.size <= MAX_BYTES ? await file.readFile('utf8') : null;
  } catch {
    return null;
  }
}

/** A JSON file as data; undefined if it is missing or invalid. */
export async function smallJson(path: string): Promise<unknown> {
  try {
    return JSON.parse((await smallFile(path)) ?? '');
  } catch {
    return undefined;
  }
}

/** An own member of a value that may be anything. */
export function memberOf(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? Object.getOwnPropertyDescriptor(value, key)?.value : undefined;
}

/** Whether a path is a regular file, and not a link to one. */
export async function isFile(path: string): Promise<boolean> {
  return lstat(path).then(
    found => found.isFile(),
    () => false,
  );
}

/** Whether a path is a directory, and not a link to one. */
export async function isDirectory(path: string): Promise<boolean> {
  return lstat(path).then(
    found => found.isDirectory(),
    () => false,
  );
}

/** Reads directories until a number of entries has been seen in all of them together. */
export class BoundedReader {
  #left = MAX_ENTRIES;

  /** Whether some entries were not read. */
  get exhausted(): boolean {
    return this.#left <= 0;
  }

  /** The names of the files and of the directories in a directory, in alphabetical order; links are left out. */
  async list(
    directory: string,
  ): Promise<{ readonly files: readonly string[]; readonly directories: readonly string[] }> {
    const files: string[] = [];
    const directories: string[] = [];
    if (!this.exhausted && (await isDirectory(directory))) {
      try {
        for await (const entry of await opendir(directory)) {
          if (entry.isFile()) files.push(entry.name);
          else if (entry.isDirectory()) directories.push(entry.name);
          this.#left -= 1;
          if (this.exhausted) break;
        }
      } catch {
        // A directory that cannot be read has no packages.
      }
    }
    return { files: files.sort(), directories: directories.sort() };
  }

  /** The directories in a directory, as paths. */
  async below(directory: string): Promise<string[]> {
    return (await this.list(directory)).directories.map(name => join(directory, name));
  }
}
