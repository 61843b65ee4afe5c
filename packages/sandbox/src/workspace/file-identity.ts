// Which file or directory a path is: by its device and number, and by when it was made, since the number of one that was
// removed is given to the next.

import { lstatSync } from 'node:fs';
import type { Stats } from 'node:fs';
import type { FileIdentity, MountSpec } from '../contract/spec.ts';

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
