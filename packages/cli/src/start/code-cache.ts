// Code cache: what V8 compiled of this build in an earlier process, so that the next one need not compile it again. V8 runs such
// a file as it is. Therefore it is read only from a directory that is the user’s alone and that no sandbox is ever given.

import { closeSync, constants, fstatSync, lstatSync, mkdirSync, openSync, readSync } from 'node:fs';
import { realpathSync, renameSync, rmSync, writeSync } from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { stateDirectory } from '../serve/identity.ts';
import { SocketDirectory } from '../serve/socket-path.ts';

const DIRECTORY = 'code-cache';
const OTHERS = 0o077;
const MAX_BYTES = 32 * 1024 ** 2;
/** Three files for each build of acode and version of Node.js in use. */
const MAX_FILES = 9;
const UNFINISHED_MS = 60_000;

/** The process that asks. */
export interface CacheUser {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Null on systems without user ids, where there is no cache. */
  readonly uid: number | null;
  readonly cwd: string;
  readonly argv: readonly string[];
}

/** A directory for code, and the user whose alone it must be. */
export interface OwnCache {
  readonly directory: string;
  readonly uid: number;
}

/** Where this user’s code cache is; null where there is none, or where a sandbox might have written it. */
export function cacheOf({ env, uid, cwd, argv }: CacheUser): OwnCache | null {
  // acode runs nothing for root, and root’s files in another user’s home would be in that user’s way.
  if (uid === null || uid === 0) return null;
  const directory = join(stateDirectory(env), DIRECTORY);
  const places = workspaces(cwd, argv);
  return [directory, realPath(directory)].some(path => mayBeShared(path, places)) ? null : { directory, uid };
}

/** What is stored under a name; null where there is nothing, or nothing that only this user can have written. */
export function readCache({ directory, uid }: OwnCache, name: string): Buffer | null {
  try {
    const opened = SocketDirectory.open(directory, uid);
    if ('unsafe' in opened) return null;
    using held = opened;
    const stored = readPrivate(held.path(name), uid);
    return stored && sameTwice(stored);
  } catch {
    return null;
  }
}

/**
 * Stores data under a name, and removes the oldest files where there are more than a few. Makes no directory but its own: where
 * acode has stored nothing yet, it stores no code either. Where it fails, the next process compiles again.
 */
export function writeCache({ directory, uid }: OwnCache, name: string, data: Uint8Array): void {
  try {
    makeDirectory(directory);
    const opened = SocketDirectory.open(directory, uid);
    if ('unsafe' in opened) return;
    using held = opened;
    writePrivate(held, name, data);
    removeOld(held, name);
  } catch {
    // A full disk, or one that cannot be written.
  }
}

function readPrivate(path: string, uid: number): Buffer | null {
  // Without waiting, should it be a pipe.
  const file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const found = fstatSync(file);
    const isOwn = found.isFile() && found.uid === uid && (found.mode & OTHERS) === 0 && found.nlink === 1;
    if (!isOwn || found.size === 0 || found.size > MAX_BYTES) return null;
    const data = Buffer.allocUnsafeSlow(found.size);
    return readSync(file, data, 0, data.length, 0) === data.length ? data : null;
  } finally {
    closeSync(file);
  }
}

// V8 does not check what it is given: one wrong bit, and the process hangs. Comparing two copies takes a tenth of the time that it
// takes to load a checksum.
function sameTwice(stored: Buffer): Buffer | null {
  const [one, other] = [stored.subarray(0, stored.length / 2), stored.subarray(stored.length / 2)];
  return one.equals(other) ? one : null;
}

function writePrivate(held: SocketDirectory, name: string, data: Uint8Array): void {
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
  // Two processes may write at once: the last one to finish is right.
  const unfinished = held.path(`${name}.${process.pid}-${Math.random().toString(36).slice(2)}`);
  const file = openSync(unfinished, O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY, 0o600);
  try {
    for (const part of [data, data]) for (let at = 0; at < part.length;) at += writeSync(file, part, at);
    renameSync(unfinished, held.path(name));
  } catch (error) {
    rmSync(unfinished, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
}

function makeDirectory(directory: string): void {
  try {
    mkdirSync(directory, { mode: 0o700 });
  } catch {
    // It is there already, or cannot be: opening it tells.
  }
}

function removeOld(held: SocketDirectory, own: string): void {
  const files = held
    .names()
    .filter(name => name !== own)
    .flatMap(name => {
      const found = lstatSync(held.path(name), { throwIfNoEntry: false });
      return found ? [{ name, mtimeMs: found.mtimeMs, isFinished: name.endsWith('.bin') }] : [];
    })
    .sort((one, other) => other.mtimeMs - one.mtimeMs);
  const old = files.filter(({ isFinished }) => isFinished).slice(MAX_FILES - 1);
  // Of a process that was ended while it wrote.
  const abandoned = files.filter(({ isFinished, mtimeMs }) => !isFinished && Date.now() - mtimeMs > UNFINISHED_MS);
  for (const { name } of [...old, ...abandoned]) rmSync(held.path(name), { force: true });
}

// What this call may give to a sandbox. The parser decides which of them it is; here every one counts.
function workspaces(cwd: string, argv: readonly string[]): string[] {
  const named = argv.flatMap((word, at) => {
    if (word === '--workspace') return [argv[at + 1] ?? ''];
    return word.startsWith('--workspace=') ? [word.slice('--workspace='.length)] : [];
  });
  const all = [cwd, ...named.map(path => resolve(cwd, path))];
  return [...all, ...all.map(realPath)];
}

/**
 * Whether a sandbox may be given a directory around this path, or may have been given one earlier, when other variables named
 * other directories: a workspace of this call, or any project. The library refuses the user’s home and what is around it in any
 * environment, so a repository of dotfiles there is none.
 */
function mayBeShared(path: string, places: readonly string[]): boolean {
  for (let here = path; ; here = dirname(here)) {
    if ((places.includes(here) || isProject(here)) && !isAroundHome(here)) return true;
    if (dirname(here) === here) return false;
  }
}

function isProject(directory: string): boolean {
  return isThere(join(directory, '.git')) || isThere(join(directory, '.agent', 'config.yml'));
}

// Of the account: the variable HOME may lead anywhere.
function isAroundHome(directory: string): boolean {
  try {
    const home = userInfo().homedir;
    return [home, realPath(home)].some(one => `${one}/`.startsWith(directory === '/' ? '/' : `${directory}/`));
  } catch {
    return false;
  }
}

function isThere(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}

// Of what does not exist yet, as much as exists.
function realPath(path: string): string {
  try {
    return realpathSync.native(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), path.slice(parent.length));
  }
}
