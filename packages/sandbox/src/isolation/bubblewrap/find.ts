// Finds bubblewrap: at fixed places only, and only a program that nobody but root can have put there.

import { execFile } from 'node:child_process';
import { lstat, realpath, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Bubblewrap on this host, or why there is none to use. */
export type Found = { readonly path: string } | { readonly reason: string };

// Never by PATH: a directory of a workspace could stand in it.
const PLACES = ['/usr/bin/bwrap', '/usr/local/bin/bwrap', '/bin/bwrap'];

// The first that can keep a sandbox from making user namespaces of its own, and that limits its file systems in memory.
const OLDEST = [0, 8];
const ASK_MS = 2000;
const WRITABLE_BY_OTHERS = 0o022;

const INSTALL =
  'install it from your system’s packages (`apt install bubblewrap`, `dnf install bubblewrap`, `apk add bubblewrap`)';

/** Looks for bubblewrap. */
export async function findBubblewrap(places: readonly string[] = PLACES): Promise<Found> {
  for (const place of places) {
    const path = await realpath(place).catch(() => null);
    if (path === null) continue;
    const unsafe = await whyUnsafe(path);
    return unsafe === null ? { path } : { reason: unsafe };
  }
  return { reason: `bubblewrap is not installed (${places.join(', ')}); ${INSTALL}` };
}

/**
 * Why one that cannot make a sandbox never could: its version; null where that is no reason. Only asked then, since one that is
 * too old does not know what it is told, and so makes none.
 */
export async function whyTooOld(path: string): Promise<string | null> {
  const version = await versionOf(path);
  if (version === null) return `${path} does not say its version; ${INSTALL}`;
  if (isNewEnough(version)) return null;
  return `${path} is version ${version}, and at least ${OLDEST.join('.')} is needed; ${INSTALL}`;
}

// Whoever can exchange the program, or a directory that leads to it, decides what every sandbox is.
async function whyUnsafe(path: string): Promise<string | null> {
  for (let place = path; ; place = dirname(place)) {
    const { uid, mode } = await (place === path ? stat(place) : lstat(place));
    if (uid !== 0) return `${place} belongs to user ${uid} and not to root, so it is not trusted`;
    if ((mode & WRITABLE_BY_OTHERS) !== 0) return `${place} can be written by others than root, so it is not trusted`;
    if (place === '/') return null;
  }
}

/** Whether a version is one that can be used. */
export function isNewEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [oldMajor = 0, oldMinor = 0] = OLDEST;
  return major > oldMajor || (major === oldMajor && minor >= oldMinor);
}

function versionOf(path: string): Promise<string | null> {
  return new Promise(resolve => {
    execFile(path, ['--version'], { env: {}, cwd: '/', timeout: ASK_MS }, (error, stdout) => {
      const match = /^bubblewrap (\d+\.\d+(?:\.\d+)?)/.exec(stdout);
      resolve(error ? null : (match?.[1] ?? null));
    });
  });
}
