// What is risky about a file whatever its name: what it is, where it leads, what else it is called. Pure.

import type { Stats } from 'node:fs';
import type { Risk } from './risky-names.ts';

/** What is said of a symbolic link that leads out of the workspace. */
export const LINK_OUT: Risk = {
  kind: 'symlink-out',
  reason: 'it leads out of the workspace: whoever reads or writes it, does so elsewhere',
};

/** What is said of a changed file that has a second name. */
export const HARD_LINK: Risk = {
  kind: 'hard-link',
  reason: 'it has another name that changed with it, which may be what programs on the host trust',
};

/** The risk of what is neither an ordinary file, a directory nor a link, and of a file with the rights of its owner. */
export function riskOfKind(stats: Stats): Risk | null {
  if (stats.isFile() && (stats.mode & 0o6000) !== 0)
    return { kind: 'privileged-file', reason: 'who executes it becomes its owner or group' };
  if (stats.isFile() || stats.isDirectory() || stats.isSymbolicLink()) return null;
  const what = stats.isFIFO() ? 'a FIFO' : stats.isSocket() ? 'a socket' : 'a device';
  return { kind: 'special-file', reason: `it is ${what}: programs that open it wait or talk to somebody` };
}
