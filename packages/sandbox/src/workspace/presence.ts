// Existence of many names. Dozens are checked before each command, and nearly all do not exist: whatever comes into
// a directory or leaves it changes the directory’s own time, so one that has the same is not asked for each name again.

import { lstatSync, statfsSync } from 'node:fs';

// A directory that was changed so lately could be changed again within the same tick of the kernel’s clock.
const SETTLED_NS = 1_000_000_000n;
const MAX_KNOWN = 256;
// File systems on which adding or removing an entry changes the time: ext, xfs, btrfs, f2fs, zfs, tmpfs, overlay. Others may make one directory
// of several, or tell of a change later.
const EXACT = new Set([0xef53n, 0x58465342n, 0x9123683en, 0xf2f52010n, 0x2fc12fc1n, 0x01021994n, 0x794c7630n]);

interface Known {
  readonly stamp: string;
  readonly names: Map<string, boolean>;
}

const known = new Map<string, Known>();

/** A path, and the directory it is in. */
export interface Entry {
  readonly path: string;
  readonly directory: string;
}

/** Those of which there is anything, be it a link that leads nowhere; in doubt there is. */
export function thoseThere<Item extends Entry>(entries: readonly Item[]): Item[] {
  const directories = new Map<string, Known | 'absent' | null>();
  return entries.filter(({ path, directory }) => {
    let found = directories.get(directory);
    if (found === undefined) {
      found = look(directory);
      directories.set(directory, found);
    }
    if (found === 'absent') return false;
    const before = found?.names.get(path);
    if (before !== undefined) return before;
    const now = exists(path);
    found?.names.set(path, now);
    return now;
  });
}

/**
 * What a directory is and when something last came into it or left it; null where it is none, only leads to one, or was changed
 * a moment ago.
 */
export function stampOf(directory: string): string | null {
  try {
    return stampFrom(directory, lstatSync(directory, { bigint: true }));
  } catch {
    return null;
  }
}

type Found = Readonly<{ dev: bigint; ino: bigint; ctimeNs: bigint; isDirectory: () => boolean }>;

function stampFrom(directory: string, found: Found): string | null {
  const { dev, ino, ctimeNs } = found;
  const settled = ctimeNs + SETTLED_NS < BigInt(Date.now()) * 1_000_000n;
  return found.isDirectory() && settled && isExact(directory, dev) ? `${dev} ${ino} ${ctimeNs}` : null;
}

/** Whether a directory lies on a file system known to stamp every change by the kernel’s own clock, to a fraction of a second or to the second. */
export function keepsExactTimes(directory: string): boolean {
  return EXACT.has(statfsSync(directory, { bigint: true }).type);
}

const exact = new Map<bigint, boolean>();

function isExact(directory: string, device: bigint): boolean {
  const before = exact.get(device);
  if (before !== undefined) return before;
  const now = keepsExactTimes(directory);
  exact.set(device, now);
  return now;
}

function look(directory: string): Known | 'absent' | null {
  try {
    const found = lstatSync(directory, { bigint: true, throwIfNoEntry: false });
    if (!found) return 'absent';
    const stamp = stampFrom(directory, found);
    return stamp === null ? null : remembered(directory, stamp);
  } catch {
    // Behind a directory that may not be entered.
    return null;
  }
}

function remembered(directory: string, stamp: string): Known {
  const before = known.get(directory);
  if (before?.stamp === stamp) return before;
  if (known.size >= MAX_KNOWN) known.clear();
  const now = { stamp, names: new Map<string, boolean>() };
  known.set(directory, now);
  return now;
}

function exists(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return true;
  }
}
