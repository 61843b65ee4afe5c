// What a git directory leads to inside a scanned directory: the directory it shares, and what its configuration names.
//
// Paths are byte strings. No link is followed at the end of a path, nothing but ordinary files is read, and no more of them than
// git itself would write.

import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { homedir } from 'node:os';
import { posix } from 'node:path';
import { bytes, fromText, toText } from './directory-look.ts';
import { parseGitConfig, pathsNamedBy } from './git-config.ts';
import type { NamedPath } from './git-config.ts';
import { targetInside, writtenInside } from './link-target.ts';

/** Something inside that the configuration of a repository names. */
export interface NamedInside {
  readonly as: NamedPath['as'];
  /** Relative to the scanned directory, as it is written: there may be links on the way. */
  readonly path: string;
  readonly key: string;
}

/** The files of a git directory that git takes its settings from. */
export const CONFIG_FILES = ['config', 'config.worktree'];
const MAX_POINTER_BYTES = 4096;
const MAX_CONFIG_BYTES = 256 * 1024;
const MAX_FILES = 32;
// Of all files together: a person has a few, and where each leads is asked step by step.
const MAX_INCLUDES = 256;

/** Programs that git runs by these names out of a directory of hooks. */
export const HOOKS: ReadonlySet<string> = new Set(
  'applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change'.split(
    ' ',
  ),
);

/** The directory that a `.git` file names, as it is written; null where it names none. */
export function gitfileTarget(path: string): string | null {
  const text = readSmall(path, MAX_POINTER_BYTES, 'latin1');
  return text === null ? null : (/^gitdir: ([^\0\n\r]+)/.exec(text)?.[1] ?? null);
}

/** The directory that a git directory shares with others, relative to `root`; null where it shares none, or one outside. */
export function commonDirectory(root: string, gitdir: string): string | null {
  const text = readSmall(`${root}/${gitdir}/commondir`, MAX_POINTER_BYTES, 'latin1');
  const written = text === null ? '' : text.replace(/[\r\n]+$/, '');
  const path = written === '' ? null : writtenInside(root, gitdir, written);
  return path === null ? null : (targetInside(root, path)?.path ?? null);
}

/**
 * What configuration files name inside `root`, those that they include among them.
 *
 * @param files absolute paths of the configuration files.
 * @param worktree where git runs what they name, relative to `root`.
 * @param isSpent asked before each file: whether no more of them are to be read.
 */
export function namedInside(
  root: string,
  files: readonly string[],
  worktree: string,
  isSpent: () => boolean = () => false,
): NamedInside[] {
  const named: NamedInside[] = [];
  const known = new Set(files);
  let includes = 0;
  for (const file of known) {
    if (isSpent()) break;
    const found = namedBy(root, file, worktree);
    named.push(...found);
    // A set that grows while it is gone through: what is included comes last.
    for (const { as, path } of found) {
      if (as !== 'include' || known.size >= MAX_FILES || includes >= MAX_INCLUDES) continue;
      includes += 1;
      const target = targetInside(root, path);
      if (target) known.add(`${root}/${target.path}`);
    }
  }
  return named;
}

function namedBy(root: string, file: string, worktree: string): NamedInside[] {
  const values = parseGitConfig(readSmall(file, MAX_CONFIG_BYTES, 'utf8') ?? '');
  return pathsNamedBy(values).flatMap(({ as, path: written, key }) => {
    const base = as === 'include' ? baseOf(root, file) : worktree;
    const path = base === null ? null : insidePath(root, base, written);
    return path === null ? [] : [{ as, path, key }];
  });
}

/** The names at the top of `root` that the configuration of a git directory names as directories of hooks. Both paths are text. */
export function hooksAtTop(root: string, gitdir: string): string[] {
  const files = CONFIG_FILES.map(file => fromText(`${gitdir}/${file}`));
  const named = namedInside(fromText(root), files, '').filter(({ as }) => as === 'hooks');
  const paths = named.map(({ path }) => posix.normalize(`./${toText(path)}`).replace(/\/$/, ''));
  return [...new Set(paths)].filter(path => path !== '.' && path !== '..' && !path.includes('/'));
}

// What a file outside includes by a relative path is outside as well.
function baseOf(root: string, file: string): string | null {
  return file.startsWith(`${root}/`)
    ? file.slice(root.length + 1, Math.max(root.length + 1, file.lastIndexOf('/')))
    : null;
}

function insidePath(root: string, base: string, written: string): string | null {
  if (written.includes('\0')) return null;
  if (written.startsWith('~/')) return writtenInside(root, base, fromText(`${homedir()}${written.slice(1)}`));
  return written.startsWith('~') ? null : writtenInside(root, base, fromText(written));
}

function readSmall(path: string, most: number, encoding: 'utf8' | 'latin1'): string | null {
  let descriptor: number;
  try {
    descriptor = openSync(bytes(path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return null;
  }
  try {
    if (!fstatSync(descriptor).isFile()) return null;
    const buffer = Buffer.alloc(most);
    return buffer.toString(encoding, 0, readSync(descriptor, buffer, 0, most, 0));
  } catch {
    return null;
  } finally {
    closeSync(descriptor);
  }
}
