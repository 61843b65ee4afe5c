// Mask layer of a fork: a directory between the layers of its commands and the workspace, in which every masked file is empty.
//
// The overlay shows a file of the uppermost layer that has it. What a command writes to a masked file stays in its own layer.

import { chmodSync, lstatSync, mkdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { join } from 'node:path';
import type { MaskedPath } from '../../contract/masks.ts';
import { fromText } from '../directory-look.ts';
import { makeMarks } from './marks.ts';
import type { MarkOptions } from './marks.ts';

const PERMISSIONS = 0o777;

/** Makes the layer. A directory on the way to a masked file has the mode and the time of the original, which the overlay shows. */
export async function makeMaskLayer(
  directory: string,
  workspace: string,
  masked: readonly Pick<MaskedPath, 'path' | 'kind'>[],
  options: MarkOptions,
): Promise<void> {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { mode: 0o700 });
  const above = new Map<string, Stats>();
  for (const { path } of masked)
    for (const one of directoriesAbove(path)) {
      if (above.has(one)) continue;
      above.set(one, lstatSync(join(workspace, one)));
      mkdirSync(join(directory, one), { mode: 0o700 });
    }
  const opaque = masked.filter(({ kind }) => kind === 'directory');
  const marks = opaque.map(({ path }) => ({ path: fromText(path), kind: 'opaque', mode: 0o700 }) as const);
  if (marks.length > 0) await makeMarks(directory, marks, options);
  for (const { path, kind } of masked) {
    if (kind === 'file') writeFileSync(join(directory, path), '', { flag: 'wx', mode: 0o600 });
    lookLike(join(directory, path), lstatSync(join(workspace, path)));
  }
  // The deepest first: what is in a directory is made before its mode forbids that.
  for (const [path, found] of [...above].reverse()) lookLike(join(directory, path), found);
}

function lookLike(path: string, { mode, atime, mtime }: Stats): void {
  utimesSync(path, atime, mtime);
  chmodSync(path, mode & PERMISSIONS);
}

// The topmost first.
function directoriesAbove(path: string): string[] {
  const names = path.split('/').slice(0, -1);
  return names.map((_, at) => names.slice(0, at + 1).join('/'));
}
