// Where a command runs: the project around the current directory, and the current directory inside it.

import { lstat, realpath, stat } from 'node:fs/promises';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileCode } from './failure/file-reasons.ts';

/** A workspace, and the directory in it that the user stands in. */
export interface Place {
  readonly root: string;
  /** Relative to the root; `.` where the user stands elsewhere. */
  readonly inside: string;
  /** The directory the user stands in, wherever that is. */
  readonly here: string;
}

/** The workspace for a current directory: the one that was named, else the nearest project around it. */
export async function placeOf(cwd: string, named?: string): Promise<Place> {
  const here = await real(cwd);
  const root = named === undefined ? await projectAround(here) : await real(resolve(cwd, named));
  const way = relative(root, here);
  const outside = way === '..' || way.startsWith(`..${sep}`);
  return { root, here, inside: way === '' || outside ? '.' : way };
}

/** Whether there is something else than a directory at a path. */
export async function isNoDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    found => !found.isDirectory(),
    // A part of the path is a file.
    (error: unknown) => fileCode(error) === 'ENOTDIR',
  );
}

/** Whether there is nothing at a path. */
export async function isMissing(path: string): Promise<boolean> {
  return stat(path).then(
    () => false,
    (error: unknown) => fileCode(error) === 'ENOENT',
  );
}

async function projectAround(start: string): Promise<string> {
  for (let here = start; ; here = dirname(here)) {
    if ((await exists(join(here, '.agent', 'config.yml'))) || (await exists(join(here, '.git')))) return here;
    if (dirname(here) === here) return start;
  }
}

// What does not exist keeps its name, for the library to refuse with a reason.
async function real(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
