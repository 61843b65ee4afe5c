// Mounts of a sandbox: the workspace, its protected parts over it, worktrees and further directories, each validated.

import { constants, lstatSync, opendirSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { lstat, open, realpath } from 'node:fs/promises';
import { basename, dirname, join, posix, resolve } from 'node:path';
import type { MountRequest } from '../contract/policy.ts';
import { settingText } from '../contract/setting.ts';
import type { FileIdentity, MountSpec } from '../contract/spec.ts';
import { codeOf } from '../contract/system-error.ts';
import { text as textOf } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { comparable, identityOf, installationRoot, isWithin, refusal, stampOf } from './file-identity.ts';
import { nearestReal, trespass } from './locate.ts';
import type { Places, Workspace } from './locate.ts';
import { protectHooks, protectInstallation, protectPart, protectParts, protectedPaths } from './protected-paths.ts';

/** What mounts are planned from. */
export interface MountFacts {
  readonly workspace: Workspace;
  /** Where the workspace is inside. */
  readonly target: string;
  readonly readOnly: boolean;
  readonly additional: readonly MountRequest[];
  /** Directories outside the workspace that the user allows mounts from. */
  readonly hostRoots: readonly string[];
  readonly uid: number;
  /** Where acode itself is; found out where it is not given. */
  readonly installation?: string;
}

/** The mounts of a sandbox, in the order they are made. */
export interface MountPlan {
  readonly mounts: readonly MountSpec[];
  /** What a reader of the plan should know, such as a git worktree that will not work and why. */
  readonly notes: readonly string[];
}

const INSTALLED_INSIDE =
  'acode is installed inside the workspace, where it is read-only to the command. What lies around it is not, such as what starts it: an installation outside of the workspace is safer.';

/** Validates everything a sandbox is to be given; throws ACODE-SBX-003 at the first thing it may not have. */
export async function planMounts(facts: MountFacts): Promise<MountPlan> {
  const { workspace, target, readOnly } = facts;
  const { root, places } = workspace;
  const roots = facts.hostRoots.map(nearestReal);
  refuseSockets(root);
  const installation = facts.installation ?? (await installationRoot());
  const protecting = readOnly ? [] : await protectParts(root, target);
  const own = readOnly ? null : await protectInstallation(root, target, installation);
  const sealed = protecting.map(({ source }) => source);
  const additional = await planAdditional({ ...facts, installation, sealed }, { places, workspace: root, roots });
  const git = await planGit(facts, roots, additional);
  const whole: MountSpec = {
    purpose: 'workspace',
    source: root,
    target,
    readOnly,
    identity: comparable(workspace.identity, readOnly),
  };
  const mounts = [whole, ...protecting, ...(own ? [own] : []), ...git.mounts, ...additional];
  return { mounts, notes: [...(own ? [INSTALLED_INSIDE] : []), ...git.notes] };
}

async function planGit(
  { workspace: { root, places }, target, readOnly, hostRoots, uid }: MountFacts,
  roots: readonly string[],
  additional: readonly MountSpec[],
): Promise<MountPlan> {
  const found = await findWorktree({ root, target, uid, places, roots: [...hostRoots, ...roots] });
  if (!found) return { mounts: [], notes: [] };
  if ('note' in found) return { mounts: [], notes: [found.note] };
  if ('inside' in found) return readOnly ? { mounts: [], notes: [] } : protectInside(found.inside, root, target);
  const { mount } = found;
  const met = additional.find(other => isWithin(mount.target, other.target) || isWithin(other.target, mount.target));
  const hooks = readOnly ? [] : await protectHooks(root, target, mount.source);
  if (!met) return { mounts: [...hooks, mount], notes: [] };
  return { mounts: hooks, notes: [`The repository of this worktree is not mounted: ${met.target} is in its place.`] };
}

// A git directory under another name, in the workspace itself: what git on the host trusts is there and not in `.git`.
async function protectInside(gitdir: string, root: string, target: string): Promise<MountPlan> {
  if (protectedPaths(root).includes(gitdir)) return { mounts: [], notes: [] };
  const mount = dirname(gitdir) === root ? await protectPart(root, target, basename(gitdir)) : null;
  const hooks = await protectHooks(root, target, gitdir);
  if (mount) return { mounts: [mount, ...hooks.filter(({ source }) => source !== mount.source)], notes: [] };
  return {
    mounts: hooks,
    notes: [
      `The repository ${gitdir} cannot be protected where it is: the command can change what git on the host runs.`,
    ],
  };
}

type AdditionalFacts = MountFacts & { readonly installation: string; readonly sealed: readonly string[] };

async function planAdditional(facts: AdditionalFacts, rules: SourceRules): Promise<MountSpec[]> {
  const planned: MountSpec[] = [];
  const targets: string[] = [];
  for (const request of facts.additional) {
    const readOnly = request.readOnly ?? true;
    const source = await validateSource(request.source, rules, readOnly);
    const target = validateTarget(request.target, facts.target);
    refuseOverlap(target, targets);
    if (!readOnly) refuseWayRound(source.path, facts.workspace.root, [...facts.sealed, facts.installation]);
    targets.push(target);
    planned.push({
      purpose: 'additional',
      source: source.path,
      target,
      readOnly,
      identity: comparable(source.identity, readOnly),
    });
    // Another project that may be written is trusted by the host in the same places.
    if (readOnly || !source.isDirectory) continue;
    const own = await protectInstallation(source.path, target, facts.installation);
    planned.push(...(await protectParts(source.path, target)), ...(own ? [own] : []));
  }
  return planned;
}

// What is read-only in the workspace would be writable through the other mount.
function refuseWayRound(source: string, root: string, sealed: readonly string[]): void {
  const remedy = 'Mount it read-only.';
  if (isWithin(root, source)) throw refusal(source, 'ProtectedPath', 'it is, or contains, the workspace', { remedy });
  const met = [...protectedPaths(root), ...sealed].find(path => isWithin(source, path));
  if (met) throw refusal(source, 'ProtectedPath', `it is a part of ${met}, which is read-only inside`, { remedy });
}

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
const ROOTS = 'sandbox.mounts.allowed_host_roots';

class NotFollowed extends Error {}

/** Looks at the `.git` of a workspace; null where it is not a file, so that there is nothing to follow. */
async function findWorktree(facts: WorktreeFacts): Promise<Worktree> {
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
  if (!isAllowed(written, facts)) throw new NotFollowed(outside(written, repositoryOf(written)));
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
  if (!isAllowed(common, facts)) throw new NotFollowed(outside(common, dirname(common)));
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

function outside(path: string, root: string): string {
  return `${path} lies outside the directories you allow; if it is yours: ${settingText({ key: ROOTS, value: [root], add: true })}`;
}

// `<repository>/.git/worktrees/<name>`, as git writes it; anything else is named as it is.
function repositoryOf(gitdir: string): string {
  const common = dirname(dirname(gitdir));
  return basename(common) === '.git' ? dirname(common) : gitdir;
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

/** A source that was checked, and which file or directory it was. */
export interface Source {
  readonly path: string;
  readonly identity: FileIdentity;
  readonly isDirectory: boolean;
}

/** What sources are judged by. */
export interface SourceRules {
  readonly places: Places;
  readonly workspace: string;
  /** Directories outside the workspace that mounts may come from, resolved. */
  readonly roots: readonly string[];
}

const MISSING = 'it does not exist or cannot be reached';
const REMEDY = 'Leave the mount out, or name a directory that holds nothing but what the command needs.';
// Most entries of a directory that acode checks for sockets: more than directories made by a person have.
const MAX_ENTRIES = 4096;

/** Resolves a source, relative to the workspace, and refuses it unless the sandbox may have it. */
async function validateSource(source: string, rules: SourceRules, readOnly: boolean): Promise<Source> {
  refuseForeignNotation(source);
  const path = await resolved(source, rules.workspace);
  const found = await lstat(path).catch((cause: unknown) => {
    // Gone, or swapped, since it was resolved.
    throw refusal(source, 'Missing', MISSING, { remedy: REMEDY, cause });
  });
  refuseSpecial(path, found);
  const broken = readOnly && isPublic(path) ? null : trespass(path, rules.places);
  if (broken) throw refusal(path, broken.violation, broken.reason, { remedy: REMEDY });
  if (![rules.workspace, ...rules.roots].some(root => isWithin(path, root))) {
    throw refusal(path, 'OutsideAllowedRoots', 'it lies outside the workspace and every directory you allow', {
      remedy: textOf`For once, copy what is needed into the workspace. To let every sandbox have it from now on: ${{ setting: { key: ROOTS, value: [found.isDirectory() ? path : dirname(path)], add: true } }}.`,
    });
  }
  if (found.isDirectory()) refuseSockets(path);
  return { path, identity: identityOf(found), isDirectory: found.isDirectory() };
}

// Where systems have the CA certificates that everybody may read. A user who allows one of them in their own file may have it
// mounted, to be read: nothing else of the system is there.
const CERTIFICATES = [
  '/etc/ssl/certs',
  '/etc/pki/tls/certs',
  '/etc/pki/ca-trust/extracted',
  '/usr/share/ca-certificates',
  '/usr/local/share/ca-certificates',
];

function isPublic(path: string): boolean {
  return CERTIFICATES.some(tree => isWithin(path, tree));
}

// Of one directory at a time: the workspace is asked for before each command.
let known: { readonly directory: string; readonly stamp: string } | null = null;

/** Refuses a directory with a socket in it: the sandbox could reach the process that listens there, under any name. */
function refuseSockets(directory: string): void {
  const stamp = stampOf(directory);
  if (stamp !== null && known?.stamp === stamp && known.directory === directory) return;
  lookForSockets(directory);
  known = stamp === null ? null : { directory, stamp };
}

function lookForSockets(directory: string): void {
  const opened = opendirSync(directory, { bufferSize: 256 });
  try {
    for (let looked = 0; looked < MAX_ENTRIES; looked += 1) {
      const entry = opened.readSync();
      if (!entry) return;
      if (!entry.isSocket()) continue;
      throw refusal(directory, 'DockerSocketMounted', `it holds the socket ${entry.name}`, {
        remedy: `Remove ${join(directory, entry.name)} if nothing uses it, or move it out of the directory.`,
      });
    }
  } finally {
    opened.closeSync();
  }
}

// On this system they would be ordinary characters of a name; a user who writes them means a path of another.
function refuseForeignNotation(source: string): void {
  if (source.includes('\0')) throw refusal(source, 'HostPathEscape', 'it holds a NUL character', { remedy: REMEDY });
  if (process.platform === 'win32') return;
  if (source.includes('\\') || /^[A-Za-z]:(?:\/|$)/.test(source)) {
    throw refusal(source, 'HostPathEscape', 'it is written as a path of another system', {
      remedy: 'Write it with slashes and without a drive letter.',
    });
  }
}

async function resolved(source: string, workspace: string): Promise<string> {
  try {
    return await realpath(resolve(workspace, source));
  } catch (cause) {
    const isForbidden = codeOf(cause) === 'EACCES';
    throw refusal(source, 'Missing', isForbidden ? 'you may not look into a directory above it' : MISSING, {
      remedy: isForbidden
        ? 'Name a directory that you can read yourself, or have its owner let you in: `namei -l <path>` shows where it ends.'
        : 'Make it first; acode never makes anything on the host for a mount.',
      cause,
    });
  }
}

function refuseSpecial(path: string, found: Stats): void {
  if (found.isFile() || found.isDirectory()) return;
  if (found.isSocket()) throw refusal(path, 'DockerSocketMounted', 'it is a socket', { remedy: REMEDY });
  throw refusal(path, 'ForbiddenPath', 'it is neither a file nor a directory', { remedy: REMEDY });
}

// A mount over the kernel’s own file systems is how runtimes were broken out of.
const KERNEL = ['/proc', '/sys', '/dev'];
// What programs of the image are loaded from and configured by.
const SYSTEM = ['/bin', '/sbin', '/usr', '/etc', '/boot', '/run', '/var/run'];
// File systems in memory of every sandbox, and where the caches of package managers are.
const OWN = ['/tmp', '/home/sandbox', '/cache'];
const TARGET_REMEDY = 'Choose a directory of its own, such as /mnt/data.';

/** Refuses a target of an additional mount that is not a plain path of its own; gives it back normalised. */
function validateTarget(target: string, workspace: string): string {
  const normal = plain(target);
  const reason = taken(normal, [...KERNEL, ...SYSTEM, ...OWN, workspace]);
  if (reason) throw refusal(target, 'ForbiddenTarget', reason, { remedy: TARGET_REMEDY });
  return normal;
}

// For the artifacts of a command.
const OUT = '/out';

/**
 * Where a workspace is inside: at a path of its own, or with `same` where it is on the host, if that is none that a sandbox has
 * otherwise.
 *
 * @param setBy who asks for it
 */
export function workspaceTarget(asked: string, root: string, setBy: () => Text): string {
  const isSame = asked === 'same';
  const normal = plain(isSame ? root : asked);
  // Directories of the host’s /tmp are placed in the sandbox’s own.
  const own = isSame && normal !== '/tmp' ? OWN.filter(place => place !== '/tmp') : OWN;
  const reason = taken(normal, [...KERNEL, ...SYSTEM, ...own, OUT]);
  if (reason === null) return normal;
  throw refusal(normal, 'ForbiddenTarget', reason, {
    remedy: textOf`Choose another path for the workspace inside, such as /workspace (set by ${setBy()}).`,
  });
}

/** Why the repository of a worktree may not appear at a target, or null: it has to be where git looks for it. */
function repositoryTargetProblem(target: string, workspace: string): string | null {
  return taken(target, [...KERNEL, ...SYSTEM, '/home/sandbox', workspace]);
}

/** Refuses two mounts on one target, and one inside another: the runtime would make its mount point on the host, as root. */
function refuseOverlap(target: string, others: readonly string[]): void {
  if (others.includes(target)) {
    throw refusal(target, 'DuplicateTarget', 'another mount has the same target', { remedy: TARGET_REMEDY });
  }
  const other = others.find(name => isWithin(target, name) || isWithin(name, target));
  if (other !== undefined) {
    throw refusal(target, 'ForbiddenTarget', `it overlaps the mount at ${other}`, { remedy: TARGET_REMEDY });
  }
}

function plain(target: string): string {
  if (target.includes('\0') || target.includes('\\'))
    throw refusal(target, 'ForbiddenTarget', 'it holds a NUL or a backslash', { remedy: TARGET_REMEDY });
  if (!target.startsWith('/'))
    throw refusal(target, 'ForbiddenTarget', 'it is not absolute', { remedy: TARGET_REMEDY });
  if (target.split('/').includes('..'))
    throw refusal(target, 'ForbiddenTarget', 'it contains `..`', { remedy: TARGET_REMEDY });
  // `//x` and a trailing slash are the same place, and must not look like another.
  return posix.resolve(target);
}

function taken(target: string, places: readonly string[]): string | null {
  if (target === '/') return 'it would replace the root of the sandbox';
  if (/^\/lib[^/]*(?:\/|$)/.test(target)) return 'programs of the image are loaded from there';
  const place = places.find(name => isWithin(target, name) || isWithin(name, target));
  return place === undefined ? null : `it would lie over or inside ${place}, which every sandbox has`;
}
