// Directories of the fork store: made and removed by an ordinary user, whatever commands and engines left in them.

import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync } from 'node:fs';
import { lstat, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { codeOf } from '../../contract/system-error.ts';

/** Removes a tree. False where something of it can only be removed by root. */
export async function removeTree(path: string): Promise<boolean> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    // What a command wrote may lack the permissions that its removal needs; entries that the engine created belong to root.
    if (!['EACCES', 'EPERM', 'ENOTEMPTY'].includes(codeOf(error))) throw error;
    await openUp(path);
    await rm(path, { recursive: true, force: true }).catch(() => undefined);
  }
  return !(await exists(path));
}

/** Makes the upper directory of an overlay: the top directory inside has its mode. */
export function makeUpper(upper: string, lower: string): void {
  mkdirSync(upper, { mode: 0o700 });
  chmodSync(upper, lstatSync(lower).mode & 0o777);
}

/** Names in a directory. One that cannot be listed is an error: no names would mean that nothing needs a layer. */
export function namesIn(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory) : [];
}

/** Renames what may not be there. */
export async function moved(from: string, to: string): Promise<void> {
  await rename(from, to).catch((error: unknown) => {
    if (codeOf(error) !== 'ENOENT') throw error;
  });
}

// Only directories: removing a file needs write permission on its directory, not on the file.
async function openUp(path: string): Promise<void> {
  const found = await lstat(path).catch(() => null);
  if (!found?.isDirectory()) return;
  try {
    chmodSync(path, 0o700);
  } catch {
    return;
  }
  for (const entry of await readdir(path, { withFileTypes: true }).catch(() => []))
    if (entry.isDirectory()) await openUp(join(path, entry.name));
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null;
}
