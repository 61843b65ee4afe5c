// Where a symbolic link leads, found step by step without ever following one.

import { lstatSync, readlinkSync } from 'node:fs';
import { bytes } from './directory-look.ts';

// As many as the kernel follows.
const MOST_LINKS = 40;

/**
 * Whether a link leads out of `root`, or in a circle. Asked of the links on its way too: an innocent target may lead through a
 * directory that is a link itself. All paths are byte strings, `path` relative to `root`.
 */
export function leadsOut(root: string, path: string): boolean {
  const way = steps(path);
  const here: string[] = [];
  for (let links = 0; way.length > 0;) {
    const step = way.pop() ?? '';
    if (step === '..') {
      if (here.pop() === undefined) return true;
      continue;
    }
    const target = targetOf([root, ...here, step].join('/'));
    if (target === null) {
      here.push(step);
      continue;
    }
    links += 1;
    if (links > MOST_LINKS) return true;
    const rest = inside(root, target);
    if (rest === null) return true;
    if (rest !== target) here.length = 0;
    way.push(...steps(rest));
  }
  return false;
}

// The last first, so that the next is taken from the end.
function steps(path: string): string[] {
  return path
    .split('/')
    .filter(step => step !== '' && step !== '.')
    .reverse();
}

// A relative target as it is, an absolute one relative to the root; null for one that is outside.
function inside(root: string, target: string): string | null {
  if (!target.startsWith('/')) return target;
  if (target === root) return '.';
  return target.startsWith(`${root}/`) ? `./${target.slice(root.length + 1)}` : null;
}

function targetOf(path: string): string | null {
  try {
    return lstatSync(bytes(path)).isSymbolicLink() ? readlinkSync(bytes(path), 'latin1') : null;
  } catch {
    // What does not exist leads nowhere further.
    return null;
  }
}
