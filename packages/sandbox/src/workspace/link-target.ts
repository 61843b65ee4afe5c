// Where a symbolic link leads, found step by step without ever following one.

import { lstatSync, readlinkSync } from 'node:fs';
import { bytes } from './directory-look.ts';

// As many as the kernel follows.
const MAX_LINKS = 40;
// Links can make a way of 40 times 4,096 bytes; what is longer than this leads nowhere that a person would use.
const MAX_STEPS = 1000;

const UNLESS_GONE = { throwIfNoEntry: false } as const;

/** Where a path leads inside a directory. */
export interface LinkTarget {
  /** Relative to the directory, with no link left in it; empty for the directory itself. */
  readonly path: string;
  /** The links on the way, the one that was asked about first; relative to the directory. */
  readonly links: readonly string[];
}

/**
 * Where a path leads inside `root`, or null where it leads out, in a circle, or by too many steps. Asked of the links on its way too: an innocent
 * target may lead through a directory that is a link itself. All paths are byte strings, `path` relative to `root`.
 */
export function targetInside(root: string, path: string): LinkTarget | null {
  const way = steps(path);
  const here: string[] = [];
  const links: string[] = [];
  let taken = 0;
  while (way.length > 0) {
    taken += 1;
    if (taken > MAX_STEPS) return null;
    const step = way.pop() ?? '';
    if (step === '..') {
      if (here.pop() === undefined) return null;
      continue;
    }
    const target = targetOf([root, ...here, step].join('/'));
    if (target === null) {
      here.push(step);
      continue;
    }
    links.push([...here, step].join('/'));
    if (links.length > MAX_LINKS) return null;
    const rest = inside(root, target);
    if (rest === null) return null;
    if (rest !== target) here.length = 0;
    way.push(...steps(rest));
  }
  return { path: here.join('/'), links };
}

/** A path as it was written somewhere: relative to `base`, or absolute; null for an absolute one outside `root`. */
export function writtenInside(root: string, base: string, written: string): string | null {
  const rest = inside(root, written);
  if (rest === null) return null;
  return rest === written ? `${base}/${written}` : rest;
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
    return lstatSync(bytes(path), UNLESS_GONE)?.isSymbolicLink() ? readlinkSync(bytes(path), 'latin1') : null;
  } catch {
    // What does not exist leads nowhere further.
    return null;
  }
}
