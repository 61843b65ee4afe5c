// Traces of forks on disk, found without loading anything else of forks: whether there are any, and what an interrupted apply left
// without its journal (the workspace was renamed, copied or restored since, or acode’s state is gone).

import { existsSync, lstatSync, opendirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import { readPrivateFile } from '../../lifecycle/directories.ts';
import { APPLY_AREA } from '../protected-paths.ts';

const MAX_JOURNALS = 1000;
const MAX_BYTES = 400 * 1024 ** 2;

const headerSchema = z.looseObject({ workspace: z.string(), inode: z.string() });

/** The directory of a user’s forks; absent until there is one. */
export function forksIn(state: string): string {
  return join(state, 'f');
}

/** Whether a user has, or had, forks. */
export function hasForks(state: string): boolean {
  return existsSync(forksIn(state));
}

/**
 * What to say about files that an interrupted apply left, if no journal is at hand for this workspace; null where it left none.
 *
 * @param own the directory of the workspace’s own journal.
 */
export function leftoverOf(workspace: string, own: string): AcodeError<'ACODE-FRK-022'> | null {
  const earlier = earlierName(workspace, own);
  if (earlier !== null) return new AcodeError('ACODE-FRK-022', { workspace, earlier });
  const directory = [join(workspace, APPLY_AREA), join(own, 'area')].find(hasFiles);
  return directory === undefined ? null : new AcodeError('ACODE-FRK-022', { workspace, directory });
}

/** Whether an apply to the workspace may have been interrupted: it left files, or some apply of the user has a journal. */
export function mayBeInterrupted(workspace: string, state: string): boolean {
  return hasLeftover(workspace) || existsSync(join(state, 'applies'));
}

/** Whether an apply left files of the user’s in the workspace: those that it had replaced. */
export function hasLeftover(workspace: string): boolean {
  return hasFiles(join(workspace, APPLY_AREA));
}

// Anybody can make directories of these names in a workspace: no link is followed, and one entry is enough.
function hasFiles(area: string): boolean {
  return isDirectory(area) && ['old', 'away'].some(name => isDirectory(join(area, name)) && !isEmpty(join(area, name)));
}

function isDirectory(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
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
    return true;
  }
}

// The path at which this directory was when an apply to it was interrupted. Nothing else may be there now.
function earlierName(workspace: string, own: string): string | null {
  const inode = lstatSync(workspace, { bigint: true, throwIfNoEntry: false })?.ino.toString();
  const top = join(own, '..');
  if (inode === undefined || !existsSync(top)) return null;
  for (const name of readdirSync(top).slice(0, MAX_JOURNALS)) {
    const header = headerAt(join(top, name, 'journal'));
    if (header?.inode !== inode || header.workspace === workspace) continue;
    if (!lstatSync(header.workspace, { throwIfNoEntry: false })) return header.workspace;
  }
  return null;
}

function headerAt(path: string): z.infer<typeof headerSchema> | null {
  try {
    const text = existsSync(path) ? readPrivateFile(path, { maxBytes: MAX_BYTES })?.text : undefined;
    return text === undefined ? null : headerSchema.parse(JSON.parse(text.slice(0, text.indexOf('\n'))));
  } catch {
    return null;
  }
}
