// The parts of a writable workspace that programs on the host trust: they are read-only inside, each as a whole.

import { lstatSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join, posix, relative, sep } from 'node:path';
import type { MountSpec } from '../contract/spec.ts';
import { identityOf, isWithin, refusal } from './file-identity.ts';
import { hooksAtTop } from './git-directory.ts';

/** Where an apply keeps old and new files of a workspace that is on another mount than acode’s state. */
export const APPLY_AREA = '.acode-apply';

// All of them at the top of the workspace, whose own directory a sandbox cannot rename. Something deeper could be
// exchanged by renaming a directory above it.
const PROTECTED: Readonly<Record<string, string>> = {
  '.git': 'git on the host runs its hooks, filters and monitors',
  '.agent': 'acode’s own configuration and tasks are there',
  'agent-config.yml': 'agents take their configuration from it',
  '.vscode': 'the editor runs its tasks and settings',
  '.idea': 'the editor runs its run configurations',
  '.cursor': 'the editor’s agent runs its tools and rules',
  '.claude': 'the agent runs its hooks and settings',
  '.zed': 'the editor runs its tasks and settings',
  '.devcontainer': 'the editor runs its commands on the host',
  '.mcp.json': 'agents start the servers it names',
  '.codex': 'the agent runs its tools and settings',
  '.gemini': 'the agent runs its tools and settings',
  '.windsurf': 'the editor’s agent runs its tools and rules',
  '.aider.conf.yml': 'the agent runs the commands it names',
  '.husky': 'git on the host runs its hooks',
  [APPLY_AREA]: 'an interrupted apply keeps the files there that it replaced',
};

// What of a repository git on the host executes or takes commands from. Read-only as it is, a second name of such a file
// elsewhere in the workspace would still change it.
const TRUSTED_OF_GIT = ['config', 'config.worktree', 'info/attributes'];
const MAX_HOOKS = 64;

/** A part of a workspace that is, or would be, protected: by its name at the top of the workspace. */
export function protectedPaths(root: string): string[] {
  return Object.keys(PROTECTED).map(name => join(root, name));
}

/**
 * Who on the host trusts a path below a workspace; null where nobody is known to. A git directory is trusted at any depth, and so are the
 * directories of hooks that the workspace’s own repository names.
 *
 * @param path relative to the workspace.
 */
export function protectionsIn(root: string): (path: string) => string | null {
  const hooks = new Set(hooksAtTop(root, join(root, '.git')));
  return path => {
    // Tools compare some of these names without regard to case, and some file systems do.
    const names = path.toLowerCase().split('/');
    const [top = ''] = names;
    if (names.includes('.git')) return PROTECTED['.git'] ?? null;
    if (Object.hasOwn(PROTECTED, top)) return PROTECTED[top] ?? null;
    return hooks.has(path.split('/')[0] ?? '') ? 'git on the host runs its hooks' : null;
  };
}

/** The read-only mounts over a writable directory. What does not exist is not mounted: that would leave a stub on the host. */
export async function protectParts(root: string, target: string): Promise<MountSpec[]> {
  const mounts = await Promise.all(Object.keys(PROTECTED).map(name => protectPart(root, target, name)));
  return [...mounts.filter(mount => mount !== null), ...(await protectHooks(root, target, join(root, '.git')))];
}

/**
 * The read-only mounts over the directories of hooks that a repository's own configuration names (`core.hooksPath`), where they
 * lie at the top of a writable directory. Something deeper could be exchanged by renaming a directory above it: that is scanned
 * after the run.
 *
 * @param gitdir the git directory whose configuration git on the host reads for `root`.
 */
export async function protectHooks(root: string, target: string, gitdir: string): Promise<MountSpec[]> {
  const names = hooksAtTop(root, gitdir).filter(name => !Object.hasOwn(PROTECTED, name));
  const mounts = await Promise.all(names.map(name => protectHooksIn(root, target, name)));
  return mounts.filter(mount => mount !== null);
}

async function protectHooksIn(root: string, target: string, name: string): Promise<MountSpec | null> {
  const source = join(root, name);
  const found = lstatIfThere(source);
  if (!found || (!found.isDirectory() && !found.isSymbolicLink())) return null;
  refuseTricks(source, name, found);
  for (const hook of await someNames(source)) {
    const path = join(source, hook);
    const file = lstatIfThere(path);
    if (file) refuseSecondName(path, file, 'git on the host executes it');
  }
  const inside = posix.join(target, name);
  return { purpose: 'protected', source, target: inside, readOnly: true, identity: identityOf(found) };
}

/** The read-only mount over one part of a writable directory, or null where there is none. */
export async function protectPart(root: string, target: string, name: string): Promise<MountSpec | null> {
  const source = join(root, name);
  const found = lstatIfThere(source);
  if (!found) return null;
  refuseTricks(source, name, found);
  // Under another name than the listed ones, it is the directory of a repository that `.git` leads to.
  if (found.isDirectory() && (name === '.git' || !Object.hasOwn(PROTECTED, name))) await refuseSecondNames(source);
  return {
    purpose: 'protected',
    source,
    target: posix.join(target, name),
    readOnly: true,
    identity: identityOf(found),
  };
}

/**
 * The read-only mount over acode’s own installation in a writable directory, or null where it is elsewhere. It lies deeper
 * than the others, so a sandbox can rename a directory above it. That makes no difference to this session, which has loaded
 * what it needs; the next one would load what it finds, and the plan lists it.
 */
export async function protectInstallation(
  root: string,
  target: string,
  installation: string,
): Promise<MountSpec | null> {
  if (!isWithin(installation, root)) return null;
  const found = lstatIfThere(installation);
  if (installation === root || !found?.isDirectory()) {
    const remedy = 'Install acode outside of this directory, or run with a read-only workspace.';
    throw refusal(installation, 'ProtectedPath', 'acode itself runs from there, and it cannot be protected', {
      remedy,
    });
  }
  const inside = posix.join(target, ...relative(root, installation).split(sep));
  return { purpose: 'protected', source: installation, target: inside, readOnly: true, identity: identityOf(found) };
}

// A mount follows a link to whatever it names, and a second name of a file is a way round the first.
function refuseTricks(path: string, name: string, found: Stats): void {
  const why = (Object.hasOwn(PROTECTED, name) ? PROTECTED[name] : undefined) ?? 'git on the host trusts it';
  const remedy = `Make ${name} an ordinary file or directory, or run with a read-only workspace.`;
  if (found.isSymbolicLink())
    throw refusal(path, 'ProtectedPath', `it is a link, and cannot be protected although ${why}`, { remedy });
  if (!found.isFile() && !found.isDirectory())
    throw refusal(path, 'ProtectedPath', `it is neither a file nor a directory, although ${why}`, { remedy });
  refuseSecondName(path, found, why);
}

function refuseSecondName(path: string, found: Stats, why: string): void {
  if (!found.isFile() || found.nlink <= 1) return;
  throw refusal(path, 'ProtectedPath', `it has a second name (hard link) to be changed by, although ${why}`, {
    remedy:
      'Copy the file over itself, so that it has one name (`cp -p x x.new && mv x.new x`, with its path for x), or run with a read-only workspace.',
  });
}

async function refuseSecondNames(repository: string): Promise<void> {
  const hooks = await someNames(join(repository, 'hooks'));
  for (const name of [...TRUSTED_OF_GIT, ...hooks.map(hook => join('hooks', hook))]) {
    const path = join(repository, name);
    const found = lstatIfThere(path);
    if (found) refuseSecondName(path, found, 'git on the host executes it or what it names');
  }
}

// As many as a person has; a directory of more is not looked through before each run.
async function someNames(directory: string): Promise<string[]> {
  const found = lstatIfThere(directory);
  const names: string[] = [];
  if (!found?.isDirectory()) return names;
  try {
    for await (const { name } of await opendir(directory, { bufferSize: MAX_HOOKS })) {
      names.push(name);
      if (names.length >= MAX_HOOKS) break;
    }
  } catch (cause) {
    throw refusal(directory, 'ProtectedPath', 'acode cannot list it, and so cannot protect it', { cause });
  }
  return names;
}

// Without a pause: there are many to ask for before each command, and what the kernel answers at once is quicker asked so.
function lstatIfThere(path: string): Stats | null {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) ?? null;
  } catch (cause) {
    if (cause instanceof Error && 'code' in cause && (cause.code === 'ENOENT' || cause.code === 'ENOTDIR')) return null;
    throw refusal(path, 'ProtectedPath', 'acode cannot inspect it, and so cannot protect it', { cause });
  }
}
