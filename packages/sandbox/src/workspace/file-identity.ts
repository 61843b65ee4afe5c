// Files of the host: which one it is, and whether it is there.
//
// Identity of a file or directory: its device, inode number and creation time, since the number of one that was
// removed is given to the next. Existence of many names: dozens are checked before each command, and nearly all do not exist. Whatever
// comes into a directory or leaves it changes the directory’s own time, so one that has the same is not asked for each name again.

import { lstatSync, statfsSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { readFile, realpath } from 'node:fs/promises';
import { dirname, isAbsolute, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CoveredFile, FileIdentity, MountSpec } from '../contract/spec.ts';
import { AcodeError } from '../contract/errors.ts';
import type { MountViolation } from '../contract/error-table.ts';
import type { Text } from '../contract/wording.ts';

type Found = Pick<Stats, 'dev' | 'ino' | 'birthtimeMs'>;

/** Which object of the file system was found. */
export function identityOf({ dev, ino, birthtimeMs }: Found): Required<FileIdentity> {
  return { device: dev, inode: ino, born: birthtimeMs };
}

/**
 * What a mount is compared by. Not by its birth where the sandbox can write: an overlay file system makes what comes from a
 * lower layer anew, under the same number, at the first write to it.
 */
export function comparable({ device, inode, born }: FileIdentity, readOnly: boolean): FileIdentity {
  return { device, inode, ...(readOnly && born !== undefined ? { born } : {}) };
}

/** Whether two are one by device and number. */
export function isSameNumber(one: FileIdentity | undefined, other: FileIdentity): boolean {
  return one?.device === other.device && one.inode === other.inode;
}

/** Whether two are one, and neither was made in the place of the other, as far as both say when they were made. */
export function isSameFile(one: FileIdentity | undefined, other: FileIdentity): boolean {
  if (!isSameNumber(one, other)) return false;
  return one?.born === undefined || other.born === undefined || one.born === other.born;
}

/** Whether what was checked is still at the path of a mount. */
export function isInPlace({ identity, source }: MountSpec, same = isSameFile): boolean {
  const now = foundAt(source);
  return now !== null && same(identityOf(now), identity);
}

/** Whether another file is at the path of a masked one. */
export function isReplaced({ path, identity }: CoveredFile): boolean {
  const now = foundAt(path);
  return now !== null && !isSameFile(identityOf(now), identity);
}

/** Whether what a mask hides is at its path: a mask that was made over something else hides nothing. */
export function isCoveredInPlace({ path, identity }: CoveredFile): boolean {
  const now = foundAt(path);
  return now !== null && isSameNumber(identityOf(now), identity);
}

// Where nothing is, or the way to it is another, it is not what was checked. A file system that does not answer says nothing.
function foundAt(path: string): Found | null {
  try {
    return lstatSync(path);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'].includes(code)) return null;
    throw error;
  }
}

/** Whether `path` is `root` or lies below it. */
export function isWithin(path: string, root: string): boolean {
  // Hundreds of these stand before each command, nearly all of them between paths that are written as the kernel does.
  if (isPlain(path) && isPlain(root)) return isBelow(path, root);
  const way = relative(root, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}

/** The same for paths that are known to be written as the kernel does: absolute, and with nothing in them that is not a name. */
export function isBelow(path: string, root: string): boolean {
  return path === root || root === '/' || path.startsWith(`${root}/`);
}

const DOTS = /\/\.\.?(?:\/|$)/;

// Absolute, and with nothing in it that stands for another segment, or for none.
function isPlain(path: string): boolean {
  if (!path.startsWith('/') || sep !== '/') return false;
  if (path === '/') return true;
  return !path.endsWith('/') && !path.includes('//') && !(path.includes('/.') && DOTS.test(path));
}

const NAMED = /"name":/;
const OWN_PACKAGES = /"name":\s*"(?:acode|@acode\/sandbox)"/;

// Searched once: it is the path this code was loaded from, whatever is put there later.
let installation: Promise<string> | null = null;

/** The directory of the package this code came with; where it was bundled into another program, that of the bundle. */
export function installationRoot(): Promise<string> {
  installation ??= find();
  return installation;
}

async function find(): Promise<string> {
  const written = dirname(fileURLToPath(import.meta.url));
  const here = await realpath(written).catch(() => written);
  for (let directory = here; dirname(directory) !== directory; directory = dirname(directory)) {
    const manifest = await readFile(join(directory, 'package.json'), 'utf8').catch(() => null);
    // One without a name says how files are to be read, and is no package.
    if (manifest !== null && NAMED.test(manifest)) return OWN_PACKAGES.test(manifest) ? directory : here;
  }
  return here;
}

/** The error for something that a sandbox may not be given. */
export function refusal(
  path: string,
  violation: MountViolation,
  reason: string,
  more: { remedy?: Text; cause?: unknown } = {},
): AcodeError<'ACODE-SBX-003'> {
  const { remedy, cause } = more;
  const context = { path, violation, reason, ...(remedy === undefined ? {} : { remedy }) };
  return new AcodeError('ACODE-SBX-003', context, cause === undefined ? {} : { cause });
}

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

type Stamped = Readonly<{ dev: bigint; ino: bigint; ctimeNs: bigint; isDirectory: () => boolean }>;

function stampFrom(directory: string, found: Stamped): string | null {
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
