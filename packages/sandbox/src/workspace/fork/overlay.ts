// The overlay of a fork: its directories as they were checked, and its mount options. These are one string, of which the kernel reads
// at most a page. A longer one would be cut without an error, and could mount another directory.

import { lstatSync } from 'node:fs';
import { AcodeError } from '../../contract/errors.ts';
import type { FileIdentity, OverlayPart, OverlaySpec } from '../../contract/spec.ts';
import { identityOf, isSameNumber } from '../file-identity.ts';

// The kernel takes one page, with the byte that ends it.
const MAX_OPTION_BYTES = 4095;
/** Flags of every overlay over a workspace. With `userxattr`, an ordinary user can read the kernel’s marks in a layer. */
export const OVERLAY_FLAGS = ['userxattr'] as const;
const MOUNT_FLAGS = ['nosuid', 'nodev'] as const;

/** The three values, each escaped as the kernel reads them; `below` stands before each path. */
export function overlayValues(
  { lowers, upper, work }: OverlaySpec,
  source: string,
  below = '',
): { readonly lowerdir: string; readonly upperdir: string; readonly workdir: string } {
  return {
    lowerdir: [...lowers.map(({ path }) => path), source].map(path => below + escaped(path)).join(':'),
    upperdir: below + escaped(upper.path),
    workdir: below + escaped(work.path),
  };
}

/** The options of one mount. */
export function overlayOptions(spec: OverlaySpec, source: string, below = ''): string {
  const values = Object.entries(overlayValues(spec, source, below)).map(([name, value]) => `${name}=${value}`);
  return [...values, ...OVERLAY_FLAGS, ...MOUNT_FLAGS].join(',');
}

/** Refuses options that the kernel would cut. */
export function assertOptions(options: string, fork: string): void {
  const bytes = Buffer.byteLength(options);
  if (bytes <= MAX_OPTION_BYTES) return;
  throw new AcodeError('ACODE-FRK-004', {
    fork,
    reason: `the paths of its layers and of the workspace take ${bytes} bytes, and the kernel takes ${MAX_OPTION_BYTES}`,
  });
}

/** Refuses a workspace whose path the program `mount` would read in another way. `instead` is what takes it. */
export function assertMountable(
  options: string,
  { fork }: Pick<OverlaySpec, 'fork'>,
  source: string,
  instead: string,
): void {
  // It counts as the beginning of a quoted part of the options.
  if (!options.includes('"')) return;
  throw new AcodeError('ACODE-FRK-004', {
    fork,
    reason: `the path of the workspace, ${source}, contains a double quote, which \`mount\` cannot take; ${instead} can`,
  });
}

// The kernel splits at commas and colons, and takes a backslash before one as part of the name.
function escaped(path: string): string {
  return path.replaceAll(/[\\,:]/g, String.raw`\$&`);
}

/** A directory, with every directory on the way to it, as they are now. */
export function partAt(path: string): OverlayPart {
  return { path, identities: identitiesOf(path) };
}

/** Whether a directory, and every one on the way to it, is still what it was. */
export function isPartInPlace({ path, identities }: OverlayPart): boolean {
  try {
    const now = identitiesOf(path);
    return now.length === identities.length && identities.every((identity, at) => isSameNumber(now[at], identity));
  } catch {
    return false;
  }
}

function identitiesOf(path: string): FileIdentity[] {
  const names = path.split('/').slice(1);
  return ['/', ...names.map((_, at) => `/${names.slice(0, at + 1).join('/')}`)].map(one => {
    const found = lstatSync(one);
    if (!found.isDirectory()) throw new Error(`${one} is not a directory`);
    const { device, inode } = identityOf(found);
    return { device, inode };
  });
}
