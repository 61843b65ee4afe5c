// Mount points in a workspace: directories of the host that something of the sandbox’s own is mounted over. A missing one is
// made here, empty and by the user; otherwise the engine would make it as root.

import { closeSync, constants, lstatSync, mkdirSync, openSync, opendirSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '../contract/system-error.ts';
import { refusal } from './file-identity.ts';

/** What is at a mount point: nothing yet, an empty directory, one with files, or something that nothing may be mounted over. */
export type MountPoint = 'absent' | 'empty' | 'filled' | 'unfit';

// Linux’s O_PATH, which Node.js does not name: needs no right to read, and gives none.
const PATH_ONLY = 0o10000000 | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** What is at a path below a workspace. A link, at its end or on the way, is unfit: it could lead anywhere. */
export function mountPointAt(root: string, path: string): MountPoint {
  const names = path.split('/');
  for (const at of names.keys()) {
    const found = lstatSync(join(root, ...names.slice(0, at + 1)), { throwIfNoEntry: false });
    if (found === undefined) return at === names.length - 1 ? 'absent' : 'unfit';
    if (!found.isDirectory()) return 'unfit';
  }
  return isEmpty(join(root, path)) ? 'empty' : 'filled';
}

function isEmpty(path: string): boolean {
  try {
    const directory = opendirSync(path);
    try {
      return directory.readSync() === null;
    } finally {
      directory.closeSync();
    }
  } catch {
    return false;
  }
}

/** Makes sure that there is a directory at a path below a workspace. Every directory on the way is held while the next is opened. */
export function makeMountPoint(root: string, path: string): void {
  const names = path.split('/');
  const name = names.pop() ?? '';
  let held = openSync(root, PATH_ONLY);
  try {
    for (const next of names) {
      const below = openSync(`/proc/self/fd/${held}/${next}`, PATH_ONLY);
      closeSync(held);
      held = below;
    }
    const end = `/proc/self/fd/${held}/${name}`;
    try {
      mkdirSync(end, 0o755);
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
    }
    if (!lstatSync(end).isDirectory()) throw new Error('it is not a directory');
  } catch (error) {
    throw refusal(
      join(root, path),
      'NotADirectory',
      'it is to have the dependencies of the project image, and is not a directory',
      {
        remedy: `Make it a directory that is not a link, or leave out the dependencies of the project image. (${error instanceof Error ? error.message : String(error)})`,
      },
    );
  } finally {
    closeSync(held);
  }
}
