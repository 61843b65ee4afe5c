// Repository of the host that gets a branch: read and written by acode itself, without git.
//
// The configuration of a repository names programs that git runs, so git is never started in it. A branch is a pack in its directory of
// objects and one ref file, made under the lock that git uses. Nothing that exists is replaced, and no link is followed.

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  readdirSync,
  realpathSync,
  renameSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { codeOf } from '../../contract/system-error.ts';
import { holderText, isProvablyGone, parseHolder, thisHolder } from '../../lifecycle/lock.ts';
import { parseGitConfig } from '../git-directory.ts';
import { BranchRefusal, conflictingRef, parsePackedRefs, parseRef } from './branch.ts';
import type { HostHistory, MadePack } from './branch-quarantine.ts';
import { OpenDirectory, openBelow, readSmallFile } from './tree.ts';

const MAX_SMALL = 256 * 1024;
const MAX_PACKED_REFS = 64 * 1024 ** 2;
const MAX_REFS = 100_000;
const MAX_DEPTH = 16;
const MAX_SYMBOLIC = 5;
const CHUNK = 1024 ** 2;
// A file that a lock of acode’s is a second name of: it says which process has the lock. It is where the pack came, and git removes old
// files of such a name there.
const MARK = 'tmp_acode-lock-';
const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;
const CREATE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
// What git may keep in a repository of version 1, and acode need not know of to add a pack and a ref.
const HARMLESS_EXTENSIONS = new Set(['noop', 'worktreeconfig', 'preciousobjects', 'relativeworktrees']);

/** The repository of a workspace. */
export class HostRepository implements Disposable {
  /** What of the work tree is the worktree’s own: HEAD. */
  readonly #own: OpenDirectory;
  /** What worktrees share: objects, refs and configuration. */
  readonly #common: OpenDirectory;
  readonly #path: string;

  private constructor(own: OpenDirectory, common: OpenDirectory, path: string) {
    this.#own = own;
    this.#common = common;
    this.#path = path;
  }

  /** Opens the repository whose work tree a workspace is; refused where acode could not add to it what git would read. */
  static open(workspace: string, uid: number): HostRepository {
    const opened = openRepository(workspace, uid);
    try {
      opened.#checkFormat();
      return opened;
    } catch (error) {
      opened[Symbol.dispose]();
      throw error;
    }
  }

  static of(own: OpenDirectory, common: OpenDirectory, path: string): HostRepository {
    return new HostRepository(own, common, path);
  }

  [Symbol.dispose](): void {
    this.#own[Symbol.dispose]();
    this.#common[Symbol.dispose]();
  }

  /** What its refs lead to. */
  history(): HostHistory & { readonly head: string | null } {
    const refs = this.#refs();
    const head = this.#head(refs);
    const shallow = readText(this.#common, 'shallow', MAX_PACKED_REFS) ?? '';
    return {
      objects: join(this.#path, 'objects'),
      head,
      // HEAD first: it is what the commits of a fork most likely build on.
      ids: [...new Set([...(head === null ? [] : [head]), ...[...refs.values()].filter(id => id !== '')])],
      shallow: shallow.split('\n').filter(line => /^[0-9a-f]{40}$/.test(line)),
    };
  }

  /** Removes the lock of a ref, if it is one of acode’s whose process was killed. A lock of git’s, and of a process that may live, stays. */
  removeDeadLock(ref: string): void {
    const me = thisHolder();
    using packs = this.#packs();
    const dead = readdirSync(packs.self).filter(name => {
      const holder = name.startsWith(MARK) ? parseHolder(name.slice(MARK.length, name.lastIndexOf('-'))) : null;
      return holder !== null && isProvablyGone(holder, me);
    });
    if (dead.length === 0) return;
    const names = ref.split('/');
    using directory = this.#directoryOf(names.slice(0, -1));
    const lock = `${names.at(-1) ?? ''}.lock`;
    for (const mark of dead) {
      const marked = packs.inspect(mark);
      const isLock = marked?.kind === 'file' && marked.inode === directory.inspect(lock)?.inode;
      if (isLock) unlinkSync(directory.at(lock));
      // One of another ref is still the only sign of whose lock that is.
      if (isLock || lstatSync(packs.at(mark)).nlink === 1) unlinkSync(packs.at(mark));
    }
  }

  /** Refuses a name for a branch that another ref has, or excludes. */
  refuseTaken(ref: string): void {
    const taken = conflictingRef(ref, this.#refs().keys());
    if (taken === null) return;
    const reason =
      taken === ref ? 'the repository has a branch of this name' : `the repository has ${JSON.stringify(taken)}`;
    throw new BranchRefusal('unsuitable', reason, {
      remedy: 'Choose another name: acode never changes a branch that exists.',
    });
  }

  /** Refuses a branch that is elsewhere than expected, or that a work tree has checked out: its files would not be those of the branch. */
  refuseMoved(ref: string, expected: string): void {
    const at = this.#refs().get(ref);
    if (at !== expected)
      throw new BranchRefusal(
        'unsuitable',
        at === undefined ? 'there is no such branch' : 'the branch is at another commit than expected',
        {
          remedy: 'Look at the branch, and try again from where it is now.',
        },
      );
    if (this.#heads().includes(ref))
      throw new BranchRefusal('unsuitable', 'a work tree has the branch checked out', {
        remedy: 'Make a new branch, and merge it there: `git merge --ff-only <branch>`.',
      });
  }

  /** Adds a pack, then the ref. Nothing of the pack is left where the ref cannot be made. */
  addBranch(ref: string, tip: string, pack: MadePack): void {
    this.#withPack(pack, packs => this.#addRef(ref, tip, packs));
  }

  /** Adds a pack, then moves the ref from one commit to another. */
  moveBranch(ref: string, move: { readonly from: string; readonly to: string }, pack: MadePack): void {
    this.#withPack(pack, packs => this.#moveRef(ref, move, packs));
  }

  #withPack(pack: MadePack, refer: (packs: OpenDirectory) => void): void {
    using packs = this.#packs();
    const made: string[] = [];
    try {
      // In this order: git takes a pack for complete once it has an index.
      for (const ending of ['.pack', '.idx']) {
        const name = `${pack.name}${ending}`;
        if (copyInto(packs, name, join(pack.directory, name))) made.push(name);
      }
      syncDirectory(packs);
      refer(packs);
    } catch (error) {
      for (const name of made.toReversed()) unlinkSync(packs.at(name));
      throw error;
    }
  }

  #addRef(ref: string, tip: string, packs: OpenDirectory): void {
    const names = ref.split('/');
    const last = names.at(-1) ?? '';
    using directory = this.#directoryOf(names.slice(0, -1));
    const lock = this.#lock(directory, last, { ref, tip, packs });
    try {
      // Under the lock, as git does: another process may have made the branch, or packed it, meanwhile.
      this.refuseTaken(ref);
      // Unlike a rename, this never replaces a file.
      linkSync(lock.path, directory.at(last));
      syncDirectory(directory);
    } catch (error) {
      if (codeOf(error) === 'EEXIST') throw new BranchRefusal('unsuitable', 'the repository has a branch of this name');
      throw error;
    } finally {
      unlinkSync(lock.path);
      unlinkSync(lock.mark);
    }
  }

  #moveRef(ref: string, { from, to }: { readonly from: string; readonly to: string }, packs: OpenDirectory): void {
    const names = ref.split('/');
    const last = names.at(-1) ?? '';
    using directory = this.#directoryOf(names.slice(0, -1));
    const lock = this.#lock(directory, last, { ref, tip: to, packs });
    let isMoved = false;
    try {
      // Under the lock, as git does: another process may have moved the branch, or checked it out, meanwhile.
      this.refuseMoved(ref, from);
      renameSync(lock.path, directory.at(last));
      isMoved = true;
      syncDirectory(directory);
    } finally {
      if (!isMoved) unlinkSync(lock.path);
      unlinkSync(lock.mark);
    }
  }

  // The lock that git uses, with the new content of the ref, and the mark that says whose it is.
  #lock(
    directory: OpenDirectory,
    last: string,
    { ref, tip, packs }: { readonly ref: string; readonly tip: string; readonly packs: OpenDirectory },
  ): { readonly path: string; readonly mark: string } {
    const path = directory.at(`${last}.lock`);
    const mark = packs.at(`${MARK}${holderText(thisHolder())}-${randomBytes(8).toString('hex')}`);
    const file = openSync(mark, CREATE, 0o666);
    try {
      writeWhole(file, Buffer.from(`${tip}\n`));
      fsyncSync(file);
      linkSync(mark, path);
      return { path, mark };
    } catch (error) {
      unlinkSync(mark);
      if (codeOf(error) !== 'EEXIST') throw error;
      throw new BranchRefusal('unsuitable', `another process has ${ref} locked`, {
        remedy: `Repeat the command when it has ended. If none runs, remove ${ref}.lock in the git directory.`,
      });
    } finally {
      closeSync(file);
    }
  }

  // What HEAD of each work tree names: a ref, or a commit.
  #heads(): string[] {
    const named = (directory: OpenDirectory): string[] => {
      const found = parseRef(readText(directory, 'HEAD', MAX_SMALL) ?? '');
      return found && 'ref' in found ? [found.ref] : [];
    };
    const heads = [...named(this.#own), ...named(this.#common)];
    if (this.#common.inspect('worktrees')?.kind !== 'directory') return heads;
    using worktrees = childOf(this.#common, 'worktrees');
    for (const name of readdirSync(worktrees.self)) {
      if (worktrees.inspect(name)?.kind !== 'directory') continue;
      using one = worktrees.child(name);
      heads.push(...named(one));
    }
    return heads;
  }

  // Makes the directories of a name such as `fix/one`.
  #directoryOf(names: readonly string[]): OpenDirectory {
    let at = openBelow(this.#common, '');
    for (const name of names) {
      using above = at;
      try {
        mkdirSync(above.at(name));
      } catch (error) {
        if (codeOf(error) !== 'EEXIST') throw error;
      }
      at = childOf(above, name);
    }
    return at;
  }

  #packs(): OpenDirectory {
    using objects = childOf(this.#common, 'objects');
    if (objects.inspect('pack') === null) mkdirSync(objects.at('pack'));
    return childOf(objects, 'pack');
  }

  #checkFormat(): void {
    const values = parseGitConfig(readText(this.#common, 'config', MAX_SMALL) ?? '');
    const version = values.findLast(
      ({ section, subsection, key }) => section === 'core' && subsection === null && key === 'repositoryformatversion',
    );
    if (!['0', '1', undefined].includes(version?.value))
      throw unsuitable('its format has a version that acode does not know');
    for (const { section, key, value } of values) {
      const problem = section === 'extensions' ? extensionProblem(key, value) : null;
      if (problem !== null) throw unsuitable(problem);
    }
    if (this.#common.inspect('reftable') !== null) throw unsuitable(REFTABLE);
    for (const name of ['objects', 'refs']) childOf(this.#common, name)[Symbol.dispose]();
  }

  #head(refs: ReadonlyMap<string, string>): string | null {
    let text = readText(this.#own, 'HEAD', MAX_SMALL) ?? '';
    for (let steps = 0; steps < MAX_SYMBOLIC; steps += 1) {
      const found = parseRef(text);
      if (found === null) throw unsuitable('its HEAD cannot be read');
      if ('id' in found) return found.id;
      const id = refs.get(found.ref);
      // A branch without a commit yet.
      if (id === undefined) return null;
      if (id !== '') return id;
      text = this.#symbolic.get(found.ref) ?? '';
    }
    throw unsuitable('its HEAD leads through too many refs');
  }

  readonly #symbolic = new Map<string, string>();

  // All refs by name; one that names another, or is broken, has the id ''.
  #refs(): Map<string, string> {
    const refs = parsePackedRefs(readText(this.#common, 'packed-refs', MAX_PACKED_REFS) ?? '');
    using top = childOf(this.#common, 'refs');
    this.#collect(top, 'refs', refs, 0);
    return refs;
  }

  #collect(directory: OpenDirectory, path: string, refs: Map<string, string>, depth: number): void {
    for (const name of readdirSync(directory.self)) {
      if (refs.size > MAX_REFS || depth > MAX_DEPTH) throw unsuitable('it has too many refs');
      const kind = directory.inspect(name)?.kind;
      if (kind === 'directory') {
        using below = directory.child(name);
        this.#collect(below, `${path}/${name}`, refs, depth + 1);
      } else if (!name.endsWith('.lock')) this.#collectFile(directory, name, `${path}/${name}`, refs);
    }
  }

  #collectFile(directory: OpenDirectory, name: string, ref: string, refs: Map<string, string>): void {
    const isFile = directory.inspect(name)?.kind === 'file';
    const text = isFile ? (readText(directory, name, MAX_SMALL) ?? '') : '';
    const found = parseRef(text);
    refs.set(ref, found && 'id' in found ? found.id : '');
    if (found && 'ref' in found) this.#symbolic.set(ref, text);
  }
}

const REFTABLE = 'it keeps refs in the format reftable';

function extensionProblem(key: string, value: string): string | null {
  if (HARMLESS_EXTENSIONS.has(key)) return null;
  if (key === 'objectformat') return value === 'sha1' ? null : `it names objects by ${JSON.stringify(value)}`;
  if (key === 'refstorage') return value === 'files' ? null : REFTABLE;
  if (key === 'partialclone') return 'it is a partial clone, and acode does not fetch the objects that it lacks';
  return `it uses the extension ${JSON.stringify(key)}`;
}

function openRepository(workspace: string, uid: number): HostRepository {
  using root = OpenDirectory.openWorkspace(workspace);
  const found = root.inspect('.git');
  if (found?.kind === 'directory')
    return HostRepository.of(root.child('.git'), root.child('.git'), join(workspace, '.git'));
  if (found?.kind !== 'file')
    throw new BranchRefusal('unsuitable', `${workspace} is not the top of a git repository`, {
      remedy: 'Apply the files instead: `acode fork apply`.',
    });
  const gitdir = linkedGitdir(workspace, readText(root, '.git', MAX_SMALL) ?? '', uid);
  const common = dirname(dirname(gitdir));
  const own = OpenDirectory.open(gitdir);
  try {
    return HostRepository.of(own, OpenDirectory.open(common), common);
  } catch (error) {
    own[Symbol.dispose]();
    throw error;
  }
}

// The `.git` file of a linked worktree is a part of the workspace: only a repository that names the workspace itself is followed.
function linkedGitdir(workspace: string, text: string, uid: number): string {
  const written = /^gitdir: ([^\0\n\r]+)\r?\n?$/.exec(text)?.[1];
  if (written === undefined) throw unsuitable('its .git file does not name a directory');
  const gitdir = real(resolve(workspace, written));
  const common = dirname(dirname(gitdir));
  const pointer = (name: string): string => {
    using directory = OpenDirectory.open(gitdir);
    return resolve(gitdir, (readText(directory, name, MAX_SMALL) ?? '').replace(/\r?\n$/, ''));
  };
  const isLinked = basename(dirname(gitdir)) === 'worktrees' && real(pointer('commondir')) === common;
  const back = pointer('gitdir');
  if (!isLinked || basename(back) !== '.git' || real(dirname(back)) !== workspace)
    throw unsuitable('its .git file does not lead to the repository of a linked worktree of this directory');
  for (const path of [gitdir, common])
    if (lstatSync(path).uid !== uid) throw unsuitable(`${path} belongs to another user`);
  return gitdir;
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    throw unsuitable('its .git file names a directory that cannot be read');
  }
}

function childOf(directory: OpenDirectory, name: string): OpenDirectory {
  try {
    return directory.child(name);
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'ELOOP'].includes(codeOf(error))) throw error;
    throw unsuitable(`${JSON.stringify(name)} in it is not a directory`);
  }
}

// Null where there is nothing.
function readText(directory: OpenDirectory, name: string, most: number): string | null {
  const found = directory.inspect(name);
  if (found === null) return null;
  if (found.kind !== 'file' || found.size > most)
    throw unsuitable(`${JSON.stringify(name)} in it is not an ordinary file, or too long`);
  try {
    return readSmallFile(directory, name).toString('latin1');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  }
}

// Whole or not at all under its name. False where a file of the name exists: its name is the digest of its content.
function copyInto(directory: OpenDirectory, name: string, source: string): boolean {
  if (directory.inspect(name) !== null) return false;
  const temporary = directory.at(`tmp_acode_${randomBytes(8).toString('hex')}`);
  const input = openSync(source, O_RDONLY | O_NOFOLLOW);
  const output = openSync(temporary, CREATE, 0o444);
  try {
    const buffer = Buffer.allocUnsafe(CHUNK);
    for (let count = readSync(input, buffer); count > 0; count = readSync(input, buffer))
      writeWhole(output, buffer.subarray(0, count));
    fsyncSync(output);
    linkSync(temporary, directory.at(name));
    return true;
  } finally {
    closeSync(input);
    closeSync(output);
    unlinkSync(temporary);
  }
}

function syncDirectory(directory: OpenDirectory): void {
  const descriptor = openSync(`${directory.self}/.`, O_RDONLY);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function writeWhole(descriptor: number, part: Buffer): void {
  for (let at = 0; at < part.length;) at += writeSync(descriptor, part, at);
}

function unsuitable(reason: string): BranchRefusal {
  return new BranchRefusal('unsuitable', `acode cannot add a branch to this repository: ${reason}`, {
    remedy: 'Apply the files instead: `acode fork apply`.',
  });
}
