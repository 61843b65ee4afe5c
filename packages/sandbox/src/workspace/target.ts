// Where mounts may appear inside a sandbox: never over what the runtime, the image or acode itself relies on.

import { posix } from 'node:path';
import { refusal } from './refusal.ts';
import { isWithin } from './within.ts';

// A mount over the kernel’s own file systems is how runtimes were broken out of.
const KERNEL = ['/proc', '/sys', '/dev'];
// What programs of the image are loaded from and configured by.
const SYSTEM = ['/bin', '/sbin', '/usr', '/etc', '/boot', '/run', '/var/run'];
// File systems in memory of every sandbox, and where the caches of package managers are.
const OWN = ['/tmp', '/home/sandbox', '/cache'];
const REMEDY = 'Choose a directory of its own, such as /mnt/data.';

/** Refuses a target of an additional mount that is not a plain path of its own; gives it back normalised. */
export function validateTarget(target: string, workspace: string): string {
  const normal = plain(target);
  const reason = taken(normal, [...KERNEL, ...SYSTEM, ...OWN, workspace]);
  if (reason) throw refusal(target, 'ForbiddenTarget', reason, { remedy: REMEDY });
  return normal;
}

/** Why the repository of a worktree may not appear at a target, or null: it has to be where git looks for it. */
export function repositoryTargetProblem(target: string, workspace: string): string | null {
  return taken(target, [...KERNEL, ...SYSTEM, '/home/sandbox', workspace]);
}

/** Refuses two mounts on one target, and one inside another: the runtime would make its mount point on the host, as root. */
export function refuseOverlap(target: string, others: readonly string[]): void {
  if (others.includes(target)) {
    throw refusal(target, 'DuplicateTarget', 'another mount has the same target', { remedy: REMEDY });
  }
  const other = others.find(name => isWithin(target, name) || isWithin(name, target));
  if (other !== undefined) {
    throw refusal(target, 'ForbiddenTarget', `it overlaps the mount at ${other}`, { remedy: REMEDY });
  }
}

function plain(target: string): string {
  if (target.includes('\0') || target.includes('\\'))
    throw refusal(target, 'ForbiddenTarget', 'it holds a NUL or a backslash', { remedy: REMEDY });
  if (!target.startsWith('/')) throw refusal(target, 'ForbiddenTarget', 'it is not absolute', { remedy: REMEDY });
  if (target.split('/').includes('..'))
    throw refusal(target, 'ForbiddenTarget', 'it holds a step upwards', { remedy: REMEDY });
  // `//x` and a trailing slash are the same place, and must not look like another.
  return posix.resolve(target);
}

function taken(target: string, places: readonly string[]): string | null {
  if (target === '/') return 'it would replace the root of the sandbox';
  if (/^\/lib[^/]*(?:\/|$)/.test(target)) return 'programs of the image are loaded from there';
  const place = places.find(name => isWithin(target, name) || isWithin(name, target));
  return place === undefined ? null : `it would lie over or inside ${place}, which every sandbox has`;
}
