// Workspace: the one directory of the host that a sandbox is given, validated against the directories that none may
// have, and the languages that it is written in, by the names of files in its top directory.

import { lstatSync, realpathSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { dirname, isAbsolute, join, relative, resolve } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { MountViolation } from '../contract/error-table.ts';
import type { FileIdentity } from '../contract/spec.ts';
import type { Directories } from '../lifecycle/directories.ts';
import { identityOf, isBelow, isWithin, thoseThere, stampOf } from './file-identity.ts';
import type { Entry } from './file-identity.ts';
import type { Language, LanguageFound } from '../contract/languages.ts';
import { DirectoryLook, fromText, toText } from './directory-look.ts';

/** A directory that was checked, and which one it was. */
export interface Workspace {
  readonly root: string;
  readonly identity: FileIdentity;
  /** The places of the host it was held against; whatever else is mounted is held against the same. */
  readonly places: Places;
}

/** The nearest ancestor of `from` that holds `.agent/config.yml` or `.git`, else `from` itself. */
export async function locateWorkspace(from: string): Promise<string> {
  const start = resolve(from);
  for (let here = start; ; here = dirname(here)) {
    if (await exists(join(here, '.agent', 'config.yml'))) return here;
    if (await exists(join(here, '.git'))) return here;
    if (dirname(here) === here) return start;
  }
}

/**
 * Resolves a workspace to the real directory and refuses one that would give a sandbox more than a project.
 *
 * @param more the engine’s socket, and the environment that says where agents listen.
 */
export async function validateWorkspace(
  path: string,
  directories: Directories,
  more: Partial<Omit<PlaceFacts, 'directories'>> = {},
): Promise<Workspace> {
  const root = real(path);
  const places = knownPlaces({ environment: {}, ...more, directories });
  // Not followed: a link that has taken the place of the directory since it was resolved must not lend it its identity.
  const found = lstatSync(root);
  if (!found.isDirectory()) throw refuse(path, 'NotADirectory', 'it is not a directory');
  const broken = trespass(root, places);
  if (broken) throw refuse(root, broken.violation, broken.reason);
  return { root, identity: identityOf(found), places };
}

/** The directory inside the sandbox for a `cwd` relative to the workspace. */
export function workdirFor(cwd: string | undefined, target: string): string {
  if (cwd?.includes('\0')) throw new AcodeError('ACODE-SBX-017', { field: 'cwd', reason: 'holds a NUL character' });
  const inside = resolve('/', target, cwd ?? '.');
  if (!isWithin(inside, target)) {
    throw new AcodeError('ACODE-SBX-003', {
      path: cwd ?? '.',
      violation: 'HostPathEscape',
      workdir: true,
      reason: 'is not inside the workspace',
      remedy: `Name a directory of the workspace, such as src. To start in a directory of the image: \`acode run "cd ${wordFor(cwd)} && …"\`.`,
    });
  }
  return inside;
}

// As it can be typed into a shell; what holds anything else is not repeated.
function wordFor(cwd: string | undefined): string {
  return cwd !== undefined && /^\/[\w@%+=:,./-]*$/.test(cwd) ? cwd : '/directory';
}

// Without a pause, like every look on the way of a command: the kernel answers in less time than a turn of the loop takes.
function real(path: string): string {
  try {
    return realpathSync.native(resolve(path));
  } catch (cause) {
    throw new AcodeError(
      'ACODE-SBX-003',
      { path, violation: 'Missing', reason: 'it does not exist or cannot be reached' },
      { cause },
    );
  }
}

/** Whether there is anything at a path, be it a link that leads nowhere. */
export async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch {
    return false;
  }
}

function refuse(path: string, violation: MountViolation, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-003', { path, violation, reason });
}

/** Why a path may not be given to a sandbox. */
export interface Trespass {
  readonly violation: MountViolation;
  readonly reason: string;
}

/** A place that may be neither given, nor lie in what is given, nor hold it. */
interface Place extends Trespass, Entry {
  /** The path as written: `..` after a link leads elsewhere than the text says. */
  readonly named: string;
}

/** What is known of the host, every path both as it is written and as it really is. */
export interface Places {
  readonly homes: readonly string[];
  readonly closed: readonly Place[];
}

// The system’s own directories: any of them would hand a sandbox the host.
const SYSTEM = new Set([
  '/',
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/home',
  '/lib',
  '/lib32',
  '/lib64',
  '/media',
  '/mnt',
  '/opt',
  '/proc',
  '/root',
  '/run',
  '/sbin',
  '/srv',
  '/sys',
  '/tmp',
  '/usr',
  '/var',
  '/var/lib',
  '/var/run',
  '/var/tmp',
  '/Users',
  '/System',
  '/Library',
  '/private',
]);
// Nothing below these is ever a project.
const SYSTEM_TREES = [
  '/bin',
  '/boot',
  '/dev',
  '/etc',
  '/lib',
  '/lib32',
  '/lib64',
  '/proc',
  '/run',
  '/sbin',
  '/sys',
  '/usr',
  '/var/lib/containerd',
  '/var/lib/containers',
  '/var/lib/docker',
  '/var/lib/kubelet',
  '/var/log',
  '/var/run',
  '/System',
];

/** Of every home: what opens other machines, accounts, wallets or the browser’s sessions. */
export const CREDENTIALS: readonly string[] = [
  '.ssh',
  '.aws',
  '.kube',
  '.gnupg',
  '.docker',
  '.azure',
  '.netrc',
  '.npmrc',
  '.yarnrc.yml',
  '.pypirc',
  '.git-credentials',
  '.password-store',
  '.pgpass',
  '.vault-token',
  '.terraform.d',
  '.config/gcloud',
  '.config/gh',
  '.config/git/credentials',
  '.config/containers',
  '.config/rclone',
  '.config/op',
  '.config/acode',
  // Also where another state directory is named: compiled code of acode’s own is there, and runs on the host.
  '.local/state/acode',
  '.local/share/keyrings',
  '.local/share/containers',
  '.cargo/credentials.toml',
  '.gem/credentials',
  '.m2/settings.xml',
  '.gradle/gradle.properties',
  '.mozilla',
  '.thunderbird',
  '.config/google-chrome',
  '.config/chromium',
  '.config/BraveSoftware',
  '.config/microsoft-edge',
  '.config/vivaldi',
  'snap/firefox',
  'snap/chromium',
  '.var/app/org.mozilla.firefox',
  'Library/Keychains',
  'Library/Application Support/Google/Chrome',
  'Library/Application Support/Firefox',
];

const ENGINE_SOCKETS = [
  '/var/run/docker.sock',
  '/run/docker.sock',
  '/run/podman/podman.sock',
  '/var/run/podman/podman.sock',
  '/run/containerd/containerd.sock',
  '/var/run/containerd/containerd.sock',
  '/run/crio/crio.sock',
  '/run/buildkit/buildkitd.sock',
];

const ENGINES = ENGINE_SOCKETS.map(engine);

let accountHome: string | null = null;

/** What the places of a host are found from. */
export interface PlaceFacts {
  readonly directories: Directories;
  readonly engineSocket?: string;
  /** Says where agents and runtime directories are. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Finds the places of this host. A link leads to a place as surely as its name does, so each counts both ways. */
function knownPlaces({ directories, engineSocket, environment }: PlaceFacts): Places {
  // HOME is whatever the environment says; the home of the account is what it is.
  accountHome ??= userInfo().homedir;
  const named = [...new Set([directories.home, accountHome])];
  const homes = bothWays(named.map(path => ({ path }))).map(({ path }) => path);
  const own = bothWays([...ownPlaces(directories), ...(engineSocket ? [engine(engineSocket)] : [])]);
  const others = bothWaysIfThere([
    ...homes.flatMap(credentials),
    ...agents(environment),
    ...ENGINES,
    ...rootless(environment).map(engine),
  ]);
  return { homes, closed: [...own, ...others] };
}

/** The first rule that a resolved path breaks, or null. */
export function trespass(path: string, { homes, closed }: Places): Trespass | null {
  if (SYSTEM.has(path) || SYSTEM_TREES.some(tree => isWithin(path, tree))) {
    return { violation: 'ForbiddenPath', reason: 'it is a directory of the system' };
  }
  if (homes.includes(path)) return { violation: 'ForbiddenPath', reason: 'it is your home directory' };
  if (homes.some(home => isWithin(home, path)))
    return { violation: 'ForbiddenPath', reason: 'it contains your home directory' };
  const met = closed.find(place => isBelow(path, place.path) || isBelow(place.path, path));
  return met ? { violation: met.violation, reason: met.reason } : null;
}

/**
 * The real path of what exists, with the rest of the name after it. Without a pause: dozens are asked for before each
 * command, and the kernel answers each of them in less time than a turn of the loop takes.
 */
export function nearestReal(path: string): string {
  try {
    return realpathSync.native(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(nearestReal(parent), relative(parent, path));
  }
}

function ownPlaces({ config, state, runtime }: Directories): Place[] {
  return [config, state, runtime].map(path => placeAt(path, 'ForbiddenPath', `acode keeps its own files in ${path}`));
}

// Of a few homes: nearly always they are the same.
const known = new Map<string, readonly Place[]>();
const MAX_HOMES = 8;

function credentials(home: string): readonly Place[] {
  const before = known.get(home);
  if (before) return before;
  const places = CREDENTIALS.map(name => sensitive(join(home, name), `${name} holds credentials`));
  if (known.size >= MAX_HOMES) known.clear();
  known.set(home, places);
  return places;
}

function engine(path: string): Place {
  return placeAt(path, 'DockerSocketMounted', `the engine’s socket ${path} is as good as root`);
}

function agents(environment: PlaceFacts['environment']): Place[] {
  const { SSH_AUTH_SOCK: ssh, GNUPGHOME: gnupg, XDG_RUNTIME_DIR: runtime } = environment;
  const found: Place[] = [];
  if (isNamed(ssh)) found.push(sensitive(ssh, 'the SSH agent listens there'));
  if (isNamed(gnupg)) found.push(sensitive(gnupg, 'GnuPG keeps its keys there'));
  if (isNamed(runtime)) found.push(sensitive(runtime, 'sockets of your session are there'));
  return found;
}

function rootless({ XDG_RUNTIME_DIR: runtime, DOCKER_HOST: host }: PlaceFacts['environment']): string[] {
  const named = host?.startsWith('unix://') ? host.slice('unix://'.length) : undefined;
  return [
    ...(isNamed(runtime) ? ['docker.sock', 'podman/podman.sock'].map(name => join(runtime, name)) : []),
    ...(isNamed(named) ? [named] : []),
  ];
}

function isNamed(path: string | undefined): path is string {
  return path !== undefined && isAbsolute(path);
}

function sensitive(path: string, reason: string): Place {
  return placeAt(path, 'SensitivePathAccess', reason);
}

function placeAt(named: string, violation: MountViolation, reason: string): Place {
  const path = resolve(named);
  return { path, named, directory: dirname(path), violation, reason };
}

// Most credentials of the list do not exist, and what does not exist leads nowhere; asking costs less than resolving. What is
// behind a directory that may not be entered is resolved as far as it can be.
function bothWaysIfThere(items: readonly Place[]): Place[] {
  const there = [...thoseThere(items.filter(isAsWritten)), ...items.filter(item => !isAsWritten(item))];
  return [...items, ...bothWays(there).slice(there.length)];
}

function isAsWritten({ path, named }: Place): boolean {
  return path === named;
}

function bothWays<Item extends { readonly path: string; readonly named?: string }>(items: readonly Item[]): Item[] {
  const resolved = items.map(item => ({ ...item, path: nearestReal(item.named ?? item.path) }));
  return [...items, ...resolved.filter(({ path }, index) => path !== items[index]?.path)];
}

// The first of a language that is there speaks for it.
const NAMES: readonly (readonly [file: string, language: Language])[] = [
  ['global.json', 'dotnet'],
  ['go.mod', 'go'],
  ['package.json', 'node'],
  ['pyproject.toml', 'python'],
  ['requirements.txt', 'python'],
  ['setup.py', 'python'],
  ['Cargo.toml', 'rust'],
];

const PROJECT = /\.(?:sln|slnx|csproj|fsproj)$/i;

// Names with any beginning need the directory to be read, and an attacker may have put a million files there.
const MAX_ENTRIES = 1000;

let recognised: { readonly root: string; readonly stamp: string; readonly found: readonly LanguageFound[] } | null =
  null;

/**
 * The languages of a workspace, in the order of the alphabet, each once. It is asked before each command: whatever comes into
 * a directory or leaves it changes the directory’s own time, so one that has the same is not looked into again.
 */
export function recogniseLanguages(root: string): readonly LanguageFound[] {
  const stamp = stampOf(root);
  if (stamp !== null && recognised?.stamp === stamp && recognised.root === root) return recognised.found;
  const found = lookFor(root);
  if (stamp !== null) recognised = { root, stamp, found };
  return found;
}

function lookFor(root: string): LanguageFound[] {
  const opened = DirectoryLook.open(fromText(root));
  if (typeof opened === 'string') return [];
  using top = opened;
  const found = new Map<Language, string>();
  const project = projectFile(top);
  if (project !== null) found.set('dotnet', project);
  for (const [file, language] of NAMES)
    if (!found.has(language) && top.lstat(file)?.isFile() === true) found.set(language, file);
  return [...found].map(([language, file]) => ({ language, file })).sort((a, b) => (a.language < b.language ? -1 : 1));
}

// The first by name of those that were seen, so that one workspace has one answer whatever the file system’s order.
function projectFile(top: DirectoryLook): string | null {
  const seen: string[] = [];
  for (let count = 0; count < MAX_ENTRIES; count += 1) {
    const entry = top.next();
    if (entry === null || entry === 'unreadable') break;
    if (PROJECT.test(entry.name) && top.lstat(entry.name)?.isFile() === true) seen.push(toText(entry.name));
  }
  return seen.sort()[0] ?? null;
}
