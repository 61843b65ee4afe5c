// Git worktrees: a `.git` file names a repository elsewhere. It is untrusted text, so it is followed only to a repository
// that the user owns, allowed, and that names this very workspace in return.

import { constants, lstatSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { lstat, open, realpath } from 'node:fs/promises';
import { basename, dirname, join, posix, resolve } from 'node:path';
import type { MountSpec } from '../contract/spec.ts';
import { trespass } from './places.ts';
import type { Places } from './places.ts';
import { identityOf } from './file-identity.ts';
import { repositoryTargetProblem } from './target.ts';
import { isWithin } from './within.ts';

/** What a worktree is judged by. */
export interface WorktreeFacts {
  readonly root: string;
  /** Where the workspace is inside. */
  readonly target: string;
  readonly uid: number;
  readonly places: Places;
  /** Directories outside the workspace that mounts may come from: as written and as resolved. */
  readonly roots: readonly string[];
}

/** What became of a worktree: its repository to mount, a git directory in the workspace to protect, or why neither. */
export type Worktree = { readonly mount: MountSpec } | { readonly inside: string } | { readonly note: string } | null;

const MAX_BYTES = 4096;
const ALLOW =
  'add the directory that holds the repository to sandbox.mounts.allowed_host_roots in your own configuration';

class NotFollowed extends Error {}

/** Looks at the `.git` of a workspace; null where it is not a file, so that there is nothing to follow. */
export async function findWorktree(facts: WorktreeFacts): Promise<Worktree> {
  const gitfile = join(facts.root, '.git');
  try {
    if (!lstatSync(gitfile, { throwIfNoEntry: false })?.isFile()) return null;
    const text = await readSmall(gitfile);
    return text === null ? null : await follow(text, facts);
  } catch (error) {
    const why = error instanceof NotFollowed ? error.message : 'what it names cannot be read';
    return { note: `git will not work inside: ${gitfile} was not followed, because ${why}.` };
  }
}

async function follow(text: string, facts: WorktreeFacts): Promise<Worktree> {
  const [, named] = /^gitdir: ([^\0\n\r]+)\r?\n?$/.exec(text) ?? [];
  if (named === undefined) throw new NotFollowed('it does not say where its repository is');
  const written = resolve(facts.root, named);
  if (isWithin(written, facts.root)) return { inside: written };
  // Before anything of it is touched: even to ask whether it exists is more than a file of the workspace may cause.
  if (!isAllowed(written, facts))
    throw new NotFollowed(`${written} lies outside the directories you allow; if it is yours, ${ALLOW}`);
  const gitdir = await realpath(written);
  const common = dirname(dirname(gitdir));
  await checkRepository(gitdir, common, facts);
  const target = posix.resolve(facts.target, named, '..', '..');
  const problem = repositoryTargetProblem(target, facts.target);
  if (problem) throw new NotFollowed(`its repository would have to appear at ${target} inside, and ${problem}`);
  const identity = identityOf(await lstat(common));
  return { mount: { purpose: 'worktree', source: common, target, readOnly: true, identity } };
}

async function checkRepository(gitdir: string, common: string, facts: WorktreeFacts): Promise<void> {
  if (basename(dirname(gitdir)) !== 'worktrees') throw new NotFollowed(`${gitdir} is not the directory of a worktree`);
  if (!isAllowed(common, facts))
    throw new NotFollowed(`${common} lies outside the directories you allow; if it is yours, ${ALLOW}`);
  const broken = trespass(common, facts.places);
  if (broken) throw new NotFollowed(`of ${common}: ${broken.reason}`);
  if (isWithin(facts.root, common) || isWithin(common, facts.root))
    throw new NotFollowed(`${common} and the workspace contain each other`);
  for (const directory of [gitdir, common]) await expectOwn(directory, facts.uid, stats => stats.isDirectory());
  for (const name of ['objects', 'refs']) await expectOwn(join(common, name), facts.uid, stats => stats.isDirectory());
  await expectOwn(join(common, 'HEAD'), facts.uid, stats => stats.isFile());
  if ((await pointer(gitdir, 'commondir')) !== common)
    throw new NotFollowed(`${gitdir} belongs to another repository than it lies in`);
  if ((await pointer(gitdir, 'gitdir')) !== join(facts.root, '.git'))
    throw new NotFollowed(
      `${gitdir} is the worktree of another directory (\`git worktree repair\` corrects a moved one)`,
    );
}

function isAllowed(path: string, { roots }: WorktreeFacts): boolean {
  return roots.some(root => isWithin(path, root));
}

async function expectOwn(path: string, uid: number, isRight: (stats: Stats) => boolean): Promise<void> {
  const found = await lstat(path);
  if (found.uid !== uid) throw new NotFollowed(`${path} belongs to another user`);
  if (!isRight(found)) throw new NotFollowed(`${path} is not what a repository has there`);
}

// One line that names a path, relative to where it stands.
async function pointer(directory: string, name: string): Promise<string> {
  const text = await readSmall(join(directory, name));
  if (text === null) throw new NotFollowed(`${join(directory, name)} is not a file`);
  const path = resolve(directory, text.replace(/\r?\n$/, ''));
  // The directory is resolved and its last part is not: a link called `.git` is no worktree’s.
  return basename(path) === '.git' && name === 'gitdir' ? join(await realpath(dirname(path)), '.git') : realpath(path);
}

// Null for what is no ordinary file. Opened without following and without waiting: it may be a FIFO.
async function readSmall(path: string): Promise<string | null> {
  const found = await lstat(path).catch(() => null);
  if (!found?.isFile()) return null;
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  if (!(await file.stat()).isFile()) return null;
  const { bytesRead, buffer } = await file.read(Buffer.alloc(MAX_BYTES + 1), 0, MAX_BYTES + 1, 0);
  if (bytesRead > MAX_BYTES) throw new NotFollowed(`${path} is longer than any git writes`);
  return buffer.toString('utf8', 0, bytesRead);
}
