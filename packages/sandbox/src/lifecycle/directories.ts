// acode’s own directories, and the private files in them.
//
// Directories: never inside a workspace, where untrusted code could write them. Files: written whole under a temporary name and then
// renamed, read back only if no other user can have written them.

import {
  lstatSync,
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  linkSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { chmod, lstat, mkdir, open } from 'node:fs/promises';
import { homedir, tmpdir, userInfo } from 'node:os';
import { isAbsolute, join, dirname } from 'node:path';
import { randomBytes } from 'node:crypto';
import type { Stats } from 'node:fs';
import { AcodeError } from '../contract/errors.ts';
import { codeOf } from '../contract/system-error.ts';

/** The directories of one user. */
export interface Directories {
  /** The home directory. */
  readonly home: string;
  /** Configuration. */
  readonly config: string;
  /** What outlives a process: audit log, forks, leases. */
  readonly state: string;
  /** Sockets and locks, which end with the machine. */
  readonly runtime: string;
}

/** Where acode searches for the directories of a user. */
export interface DirectoriesHost {
  /** The environment: XDG variables. */
  readonly env: NodeJS.ProcessEnv;
  /** The user’s home directory. */
  readonly home: string;
  /** The user. */
  readonly uid: number;
  /** Where the system has the runtime directories of logged-in users; `/run/user` unless named. */
  readonly logins?: string;
}

/**
 * The user’s home directory: HOME where it is absolute, else the account’s. An empty or relative HOME would make the current
 * directory, which may be anybody’s, the place of the user’s own configuration.
 */
export function homeOf(env: NodeJS.ProcessEnv): string {
  // Windows has no HOME; what it has instead is absolute.
  const named = process.platform === 'win32' ? homedir() : env['HOME'];
  const home = named && isAbsolute(named) ? named : accountHome();
  if (home !== null && isAbsolute(home)) return home;
  throw new AcodeError('ACODE-SBX-013', {
    source: 'environment',
    key: 'HOME',
    reason: 'is not an absolute path, and this account has no home directory',
    remedy: 'Set HOME to a directory of yours: `export HOME=/home/…`.',
  });
}

function accountHome(): string | null {
  try {
    return userInfo().homedir;
  } catch {
    // A uid without an entry in the list of users, as in many containers.
    return null;
  }
}

/** The directories for an environment and a user. Looks at whose the runtime directories are; makes nothing. */
export function directoriesOf(host: DirectoriesHost): Directories {
  // The XDG rules say that relative values are to be ignored; following one would put state wherever the caller stands.
  const xdg = (name: string, otherwise: string): string => {
    const value = host.env[name];
    return value && isAbsolute(value) ? value : otherwise;
  };
  const named = xdg('XDG_RUNTIME_DIR', '');
  const state = join(xdg('XDG_STATE_HOME', join(host.home, '.local', 'state')), 'acode');
  return {
    home: host.home,
    config: join(xdg('XDG_CONFIG_HOME', join(host.home, '.config')), 'acode'),
    state,
    runtime: named === '' ? unnamedRuntime(host, state) : join(named, 'acode'),
  };
}

/** The runtime directory for those whose usual one another user has taken. */
export function fallbackRuntime(state: string): string {
  return join(state, 'run');
}

// Every process of a user has to come to the same answer, or it would not find the sockets of the others. So the answer
// depends only on what is on the disk, and it changes only when the directory in use is removed:
// 1. `acode-<uid>` in the temporary directory, unless it is another user’s. No other user can take it while it is ours.
// 2. `run` in the state directory, if another acode process had to use it before.
// 3. The directory of the login session, which is removed with that session: so it comes after the second.
// 4. `run` in the state directory.
// What was made while another directory was the answer has another host identity, and so is never taken for orphaned.
function unnamedRuntime({ uid, logins = '/run/user' }: DirectoriesHost, state: string): string {
  const shared = join(temporaryDirectory(), `acode-${uid}`);
  const found = look(shared);
  if (found === null || (found.isDirectory && found.uid === uid)) return shared;
  const fallback = fallbackRuntime(state);
  if (look(fallback)?.uid === uid) return fallback;
  const login = join(logins, String(uid));
  return isPrivate(look(login), uid) ? join(login, 'acode') : fallback;
}

function temporaryDirectory(): string {
  const named = tmpdir();
  return isAbsolute(named) ? named : '/tmp';
}

interface Seen {
  readonly isDirectory: boolean;
  readonly uid: number;
  readonly mode: number;
}

function isPrivate(seen: Seen | null, uid: number): boolean {
  return seen !== null && seen.isDirectory && seen.uid === uid && (seen.mode & 0o777) === 0o700;
}

// A directory that cannot be inspected counts as absent: creating it then fails with the reason.
function look(path: string): Seen | null {
  try {
    const found = lstatSync(path);
    return { isDirectory: found.isDirectory(), uid: found.uid, mode: found.mode };
  } catch {
    return null;
  }
}

const ATTEMPTS = 3;

/** The directories of a user, with a runtime directory that is there and theirs alone. */
export async function ownDirectories(host: DirectoriesHost): Promise<Directories> {
  for (let attempt = 1; ; attempt += 1) {
    const directories = directoriesOf(host);
    try {
      await ensurePrivateDirectory(directories.runtime, host.uid, RUNTIME_REMEDY);
      return directories;
    } catch (error) {
      // Another user may have taken it since acode checked; then the answer is a different one now.
      if (attempt === ATTEMPTS || directoriesOf(host).runtime === directories.runtime) throw error;
    }
  }
}

const RUNTIME_REMEDY =
  'Set XDG_RUNTIME_DIR to a directory that only you can enter: `mkdir -m 700 ~/.acode-run && export XDG_RUNTIME_DIR=~/.acode-run`.';

/** Makes a directory only its owner can enter, and refuses one that another user put there first. */
export async function ensurePrivateDirectory(path: string, uid: number, remedy?: string): Promise<void> {
  const refused = (reason: string, cause?: unknown): AcodeError =>
    new AcodeError(
      'ACODE-SBX-013',
      { source: path, key: '', reason, ...(remedy === undefined ? {} : { remedy }) },
      { cause },
    );
  await mkdir(path, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    // A path that exists and is not a directory is reported below.
    if (isCode(error, 'EEXIST')) return;
    if (remedy !== undefined && ['EACCES', 'ENOTDIR', 'EROFS'].some(code => isCode(error, code)))
      throw refused('cannot be created', error);
    throw error;
  });
  const found = await lstat(path);
  if (!found.isDirectory() || found.uid !== uid) throw refused('is not a directory of the current user');
  if ((found.mode & 0o077) !== 0) await chmod(path, 0o700);
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code;
}

// Without O_NONBLOCK, opening a FIFO waits for a writer that may never come.
const READ = constants.O_RDONLY | constants.O_NONBLOCK;
const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const PRIVATE = 0o600;

/** The content and the owner of a file that was read. */
export interface BoundedFile {
  /** The content as UTF-8. */
  readonly text: string;
  /** The bytes as they are, where text could hide a difference. */
  readonly bytes: Buffer;
  /** Size of the whole file, in bytes. */
  readonly size: number;
  /** The owner. */
  readonly uid: number;
  /** Type and permissions. */
  readonly mode: number;
  /** When it changed last, in milliseconds since the epoch. */
  readonly mtimeMs: number;
}

/** Conditions of a private file that is read. */
export interface PrivateRead {
  /** A longer file is refused. */
  readonly maxBytes: number;
  /** The owner that the file must have; the user of this process unless given. */
  readonly uid?: number;
}

/** How a private file is written. */
export interface PrivateWrite {
  /** The mode of the file whatever the umask; 0600 unless given. */
  readonly mode?: number;
  /**
   * Whether the content is on the disk before the file has its name; `false` is for what may be lost, `'name'` for what must be
   * there under its name when this returns. Default `true`.
   */
  readonly durable?: boolean | 'name';
}

/**
 * Reads the first `maxBytes` bytes of a file that anybody may have written; throws where it is not an ordinary file: reading
 * a FIFO or a device might never end.
 */
export async function readBoundedFile(path: string, maxBytes: number, flags = 0): Promise<BoundedFile> {
  const file = await open(path, READ | flags);
  try {
    const found = await file.stat();
    assertOrdinary(found, path);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(maxBytes, found.size)), 0);
    return boundedFile(found, buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}

/**
 * Reads a file that only this user can have written. Null where there is none, where it is a link, belongs to another user,
 * is open to others, or is too long: what others could have written is not trusted.
 */
export function readPrivateFile(path: string, { maxBytes, uid = process.getuid?.() }: PrivateRead): BoundedFile | null {
  let descriptor: number;
  try {
    descriptor = openSync(path, READ | constants.O_NOFOLLOW);
  } catch {
    return null;
  }
  try {
    const found = fstatSync(descriptor);
    const isOwn = uid === undefined || found.uid === uid;
    if (!found.isFile() || !isOwn || (found.mode & 0o077) !== 0 || found.size > maxBytes) return null;
    const buffer = Buffer.alloc(found.size);
    return boundedFile(found, buffer.subarray(0, readSync(descriptor, buffer, 0, found.size, 0)));
  } finally {
    closeSync(descriptor);
  }
}

/** Writes a file in place of the one that is there: a reader sees the old content or the new, never half of either. */
export function writePrivateFile(path: string, content: string | Buffer, options: PrivateWrite = {}): void {
  const draft = writeDraft(path, content, options);
  try {
    renameSync(draft, path);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  }
  if (options.durable === 'name') syncDirectory(dirname(path));
}

// A name is on the disk when its directory is.
function syncDirectory(path: string): void {
  const descriptor = openSync(path, constants.O_RDONLY);
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Writes a file where there is none. Of two processes that do so at once, both find what the first one wrote. */
export function createPrivateFile(path: string, content: string | Buffer, options: PrivateWrite = {}): void {
  const draft = writeDraft(path, content, options);
  try {
    linkSync(draft, path);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

// The name is random and must be new, so that acode never writes through a link that another process put there.
function writeDraft(path: string, content: string | Buffer, { mode = PRIVATE, durable = true }: PrivateWrite): string {
  const draft = `${path}.${randomBytes(8).toString('hex')}`;
  const descriptor = openSync(draft, CREATE, mode);
  try {
    writeFileSync(descriptor, content);
    if (mode !== PRIVATE) fchmodSync(descriptor, mode);
    if (durable !== false) fsyncSync(descriptor);
  } catch (error) {
    rmSync(draft, { force: true });
    throw error;
  } finally {
    closeSync(descriptor);
  }
  return draft;
}

function assertOrdinary(found: Stats, path: string): void {
  if (!found.isFile()) throw new Error(`${path} is not an ordinary file`);
}

function boundedFile({ size, uid, mode, mtimeMs }: Stats, bytes: Buffer): BoundedFile {
  return { text: bytes.toString('utf8'), bytes, size, uid, mode, mtimeMs };
}
