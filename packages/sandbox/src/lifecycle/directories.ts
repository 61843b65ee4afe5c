// Directories of acode: never inside a workspace, where untrusted code could write them.

import { lstatSync } from 'node:fs';
import { chmod, lstat, mkdir } from 'node:fs/promises';
import { homedir, tmpdir, userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';

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
