// Workspace of a call: the project around the current directory, and the current directory inside it.

import { lstatSync, realpathSync } from 'node:fs';
import { stat } from 'node:fs/promises';
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

/**
 * The workspace for a current directory: the one that was named, else the nearest project around it. Synchronous, since every call
 * waits for it, and starting the threads of asynchronous file calls takes longer than all of these.
 */
export function placeOf(cwd: string, named?: string): Place {
  const here = real(cwd);
  const root = named === undefined ? projectAround(here) : real(resolve(cwd, named));
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

function projectAround(start: string): string {
  for (let here = start; ; here = dirname(here)) {
    if (exists(join(here, '.agent', 'config.yml')) || exists(join(here, '.git'))) return here;
    if (dirname(here) === here) return start;
  }
}

// What does not exist keeps its name, for the library to refuse with a reason.
function real(path: string): string {
  try {
    return realpathSync.native(path);
  } catch {
    return path;
  }
}

function exists(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}
