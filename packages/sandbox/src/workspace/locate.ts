// Finds and validates the workspace: the one directory of the host that a sandbox is given.

import { lstat, realpath, stat } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { MountViolation } from '../contract/errors.ts';
import type { FileIdentity } from '../contract/spec.ts';
import type { Directories } from '../config/directories.ts';

/** A directory that was checked, and which one it was. */
export interface Workspace {
  readonly root: string;
  readonly identity: FileIdentity;
}

// The system’s own directories: as a workspace, any of them would hand a sandbox the host.
const SYSTEM = [
  '/',
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/home',
  '/lib',
  '/lib32',
  '/lib64',
  '/media',
  '/mnt',
  '/opt',
  '/proc',
  '/root',
  '/run',
  '/sbin',
  '/srv',
  '/sys',
  '/tmp',
  '/usr',
  '/var',
  '/var/lib',
  '/var/run',
  '/var/tmp',
  '/Users',
  '/System',
  '/Library',
  '/private',
];
// Nothing below these is ever a project.
const SYSTEM_TREES = [
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/lib',
  '/lib32',
  '/lib64',
  '/proc',
  '/run',
  '/sbin',
  '/sys',
  '/usr',
  '/var/lib/containerd',
  '/var/lib/containers',
  '/var/lib/docker',
  '/var/lib/kubelet',
  '/var/log',
  '/var/run',
  '/System',
];
const SECRETS = ['.ssh', '.aws', '.kube', '.gnupg', '.docker', '.azure', '.password-store', join('.config', 'gcloud')];

/** The nearest ancestor of `from` that holds `.agent/config.yml` or `.git`, else `from` itself. */
export async function locateWorkspace(from: string): Promise<string> {
  const start = resolve(from);
  for (let here = start; ; here = dirname(here)) {
    if (await exists(join(here, '.agent', 'config.yml'))) return here;
    if (await exists(join(here, '.git'))) return here;
    if (dirname(here) === here) return start;
  }
}

/** Resolves a workspace to the real directory and refuses one that would give a sandbox more than a project. */
export async function validateWorkspace(path: string, own: Directories): Promise<Workspace> {
  const root = await real(path);
  const found = await stat(root);
  if (!found.isDirectory()) throw refuse(path, 'NotADirectory', 'it is not a directory');
  const reason = forbidden(root, await resolved(own));
  if (reason) throw refuse(root, reason.violation, reason.text);
  return { root, identity: { device: found.dev, inode: found.ino } };
}

/** The directory inside the sandbox for a `cwd` relative to the workspace. */
export function workdirFor(cwd: string | undefined, target: string): string {
  if (cwd?.includes('\0')) throw new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: 'holds a NUL character' });
  const inside = resolve('/', target, cwd ?? '.');
  if (!isWithin(inside, target)) {
    throw new AcodeError('ACODE-SBX-003', {
      path: cwd ?? '.',
      violation: 'HostPathEscape',
      reason: 'it leads out of the workspace',
    });
  }
  return inside;
}

/** Whether `path` is `root` or lies below it, by path segments. */
export function isWithin(path: string, root: string): boolean {
  const way = relative(root, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !way.startsWith(sep));
}

function forbidden(root: string, own: Directories): { violation: MountViolation; text: string } | null {
  if (SYSTEM.includes(root) || SYSTEM_TREES.some(tree => isWithin(root, tree))) {
    return { violation: 'ForbiddenPath', text: 'it is a directory of the system' };
  }
  // HOME is whatever the environment says; the home of the account is what it is.
  if (isWithin(own.home, root) || isWithin(userInfo().homedir, root)) {
    return { violation: 'ForbiddenPath', text: 'it is, or contains, your home directory' };
  }
  for (const directory of [own.config, own.state, own.runtime]) {
    if (isWithin(directory, root) || isWithin(root, directory)) {
      return { violation: 'ForbiddenPath', text: `acode keeps its own files in ${directory}` };
    }
  }
  const homes = [own.home, userInfo().homedir];
  const secret = SECRETS.find(name => homes.some(home => isWithin(root, join(home, name))));
  return secret ? { violation: 'SensitivePathAccess', text: `${secret} holds credentials` } : null;
}

// A home that is reached through a link is still the home.
async function resolved(own: Directories): Promise<Directories> {
  const [home, config, state, runtime] = await Promise.all(
    [own.home, own.config, own.state, own.runtime].map(nearestReal),
  );
  return {
    home: home ?? own.home,
    config: config ?? own.config,
    state: state ?? own.state,
    runtime: runtime ?? own.runtime,
  };
}

async function nearestReal(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(await nearestReal(parent), relative(parent, path));
  }
}

async function real(path: string): Promise<string> {
  try {
    return await realpath(resolve(path));
  } catch (cause) {
    throw new AcodeError(
      'ACODE-SBX-003',
      { path, violation: 'Missing', reason: 'it does not exist or cannot be reached' },
      { cause },
    );
  }
}

async function exists(path: string): Promise<boolean> {
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
