// Missing permission: detects that a command could not write what its user cannot write on this machine either.

import { constants } from 'node:fs';
import { access, lstat } from 'node:fs/promises';
import { join, posix } from 'node:path';
import type { Place } from '../workspace.ts';
import { shownPath } from './risky-lines.ts';

const WORKSPACE = '/workspace';
const MAX_READ = 16 * 1024;
// How programs name the path: before the system’s words, or in quotes behind them.
const BEFORE = /(?:^|[\s'"‘:])([^\s'"‘’:]+)['"’]?: +permission denied/im;
const BEHIND = /permission denied\b[^'"\n]{0,40}['"]([^'"\n]{1,400})['"]/i;

/**
 * A sentence about a path of the workspace that the user may not write, for a command that failed; null where what it printed does
 * not point to one. The command runs with the user’s own rights, which is not what people expect of a container.
 */
export async function missingPermission(
  { root, inside }: Pick<Place, 'root' | 'inside'>,
  stderr: string,
): Promise<string | null> {
  const path = deniedPath(stderr, inside);
  if (path === null) return null;
  for (const one of [path, posix.dirname(path)]) {
    const found = await lstat(join(root, one)).catch(() => null);
    if (found === null) continue;
    const isKnown = !found.isSymbolicLink() && !(await isWritable(join(root, one)));
    return isKnown ? sentence(shownPath(one), found.uid) : null;
  }
  return null;
}

// The path in the workspace that a program could not write; null where it names none, or another.
function deniedPath(stderr: string, inside: string): string | null {
  const end = stderr.slice(-MAX_READ);
  const named = BEHIND.exec(end)?.[1] ?? BEFORE.exec(end)?.[1];
  if (named === undefined) return null;
  const path = posix.relative(WORKSPACE, posix.resolve(WORKSPACE, inside, named));
  return path.startsWith('..') ? null : path;
}

function sentence(path: string, owner: number): string {
  const why = `${path} is not writable by you on this machine, and a command in a sandbox has no more rights in the workspace than you have`;
  return owner === process.getuid?.()
    ? `${why}. To change that: \`chmod u+w ${path}\`.`
    : `${why}: it belongs to user ${owner}.`;
}

function isWritable(path: string): Promise<boolean> {
  return access(path, constants.W_OK).then(
    () => true,
    () => false,
  );
}
