// Finds and validates the workspace: the one directory of the host that a sandbox is given.

import { lstatSync, realpathSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { MountViolation } from '../contract/errors.ts';
import type { FileIdentity } from '../contract/spec.ts';
import type { Directories } from '../lifecycle/directories.ts';
import { identityOf } from './file-identity.ts';
import { knownPlaces, trespass } from './places.ts';
import type { PlaceFacts, Places } from './places.ts';
import { isWithin } from './within.ts';

/** A directory that was checked, and which one it was. */
export interface Workspace {
  readonly root: string;
  readonly identity: FileIdentity;
  /** The places of the host it was held against; whatever else is mounted is held against the same. */
  readonly places: Places;
}

/** The nearest ancestor of `from` that holds `.agent/config.yml` or `.git`, else `from` itself. */
export async function locateWorkspace(from: string): Promise<string> {
  const start = resolve(from);
  for (let here = start; ; here = dirname(here)) {
    if (await exists(join(here, '.agent', 'config.yml'))) return here;
    if (await exists(join(here, '.git'))) return here;
    if (dirname(here) === here) return start;
  }
}

/**
 * Resolves a workspace to the real directory and refuses one that would give a sandbox more than a project.
 *
 * @param more the engine’s socket, and the environment that says where agents listen.
 */
export async function validateWorkspace(
  path: string,
  directories: Directories,
  more: Partial<Omit<PlaceFacts, 'directories'>> = {},
): Promise<Workspace> {
  const root = real(path);
  const places = knownPlaces({ environment: {}, ...more, directories });
  // Not followed: a link that has taken the place of the directory since it was resolved must not lend it its identity.
  const found = lstatSync(root);
  if (!found.isDirectory()) throw refuse(path, 'NotADirectory', 'it is not a directory');
  const broken = trespass(root, places);
  if (broken) throw refuse(root, broken.violation, broken.reason);
  return { root, identity: identityOf(found), places };
}

/** The directory inside the sandbox for a `cwd` relative to the workspace. */
export function workdirFor(cwd: string | undefined, target: string): string {
  if (cwd?.includes('\0')) throw new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: 'holds a NUL character' });
  const inside = resolve('/', target, cwd ?? '.');
  if (!isWithin(inside, target)) {
    throw new AcodeError('ACODE-SBX-003', {
      path: cwd ?? '.',
      violation: 'HostPathEscape',
      reason: 'a working directory is in the workspace, and this leads out of it',
      remedy: `Name it relative to the workspace, such as src. To work in another directory of the image, change into it in the line itself: "cd ${wordFor(cwd)} && …".`,
    });
  }
  return inside;
}

// As it can be typed into a shell; what holds anything else is not repeated.
function wordFor(cwd: string | undefined): string {
  return cwd !== undefined && /^\/[\w@%+=:,./-]*$/.test(cwd) ? cwd : '/directory';
}

// Without a pause, like every look on the way of a command: the kernel answers in less time than a turn of the loop takes.
function real(path: string): string {
  try {
    return realpathSync.native(resolve(path));
  } catch (cause) {
    throw new AcodeError(
      'ACODE-SBX-003',
      { path, violation: 'Missing', reason: 'it does not exist or cannot be reached' },
      { cause },
    );
  }
}

/** Whether there is anything at a path, be it a link that leads nowhere. */
export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch {
    return false;
  }
}

function refuse(path: string, violation: MountViolation, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-003', { path, violation, reason });
}
