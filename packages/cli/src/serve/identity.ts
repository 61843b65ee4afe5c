// Server identity: a call belongs to the server with the same configuration, engine and workspace.

import { lstatSync, readFileSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { getPriority, homedir, tmpdir, userInfo } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { ownVersion } from '../version.ts';
import { PROTOCOL } from './frames.ts';
import type { Where } from './location-options.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Variables that the library, or a program it starts, reads. A call in other ones is not what a server would do. */
export const READ_VARIABLES: readonly string[] = [
  'DBUS_SESSION_BUS_ADDRESS',
  'DISPLAY',
  'DOCKER_CONFIG',
  'DOCKER_CONTEXT',
  'DOCKER_HOST',
  'GNUPGHOME',
  'HOME',
  'LANG',
  'LOGNAME',
  'PASSWORD_STORE_DIR',
  'PATH',
  'SSH_AUTH_SOCK',
  'TMPDIR',
  'USER',
  'XDG_CONFIG_HOME',
  'XDG_RUNTIME_DIR',
  'XDG_STATE_HOME',
];

/** Variables that say how a call looks and what it logs: they come with each call. */
export const LOOK_VARIABLES: readonly string[] = [
  'ACODE_LOG_LEVEL',
  'COLORTERM',
  'COLUMNS',
  'FORCE_COLOR',
  'LC_ALL',
  'LC_CTYPE',
  'NO_COLOR',
  'TERM',
];

/** What a server and its clients must have in common. */
export interface Identity {
  /** All of it, to be compared. */
  readonly text: string;
  /** The socket’s name. Short and not unique for certain, which is why the text is compared. */
  readonly socketName: string;
}

/** What an identity is made of. */
export interface IdentityParts extends Where {
  /** The workspace, with all links followed. */
  readonly root: string;
  readonly cwd: string;
  readonly env: Environment;
  readonly uid: number;
  /** What a process that this one starts would inherit. */
  readonly inherited: string;
}

/** The identity of a call, or of a server for such calls. */
export function identityOf({ root, cwd, env, uid, inherited, config, socket }: IdentityParts): Identity {
  const text = JSON.stringify([
    PROTOCOL,
    ownVersion(),
    uid,
    root,
    config === undefined ? null : resolve(cwd, config),
    socket === undefined ? null : enginePath(cwd, socket),
    inherited,
    [...new Set([...Object.keys(env), ...READ_VARIABLES])]
      .filter(isHashed)
      .sort()
      .map(name => [name, env[name] ?? null]),
  ]);
  return { text, socketName: `serve-${hash(text, 0x811c9dc5)}${hash(text, 0x01000193)}.sock` };
}

/** The variables of an environment that an identity has, and so all that a server is started with. */
export function hashedVariables(env: Environment): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value !== undefined && isHashed(name) ? [[name, value]] : [])),
  );
}

function isHashed(name: string): boolean {
  return READ_VARIABLES.includes(name) || (name.startsWith('ACODE_') && !LOOK_VARIABLES.includes(name));
}

// Of `/proc/self/status`. The last three are of a caller that is itself confined: a server that is not must not do its work.
const TRAITS = /^(?:Gid|Groups|Umask|NoNewPrivs|Seccomp|CapBnd):.*$/gm;

/**
 * What this process hands on to those it starts, besides its environment: groups, the mask of file modes, priority, resource
 * limits, and how it is confined. A sandbox without an engine inherits them, and the group owns what a command writes.
 */
export function inheritedTraits(): string {
  const traits = own('status').match(TRAITS) ?? [];
  return JSON.stringify([process.getgid?.(), getPriority(), ...traits, own('limits')]);
}

// On a system without such files this is unknown.
function own(name: string): string {
  try {
    return readFileSync(`/proc/self/${name}`, 'utf8');
  } catch {
    return '';
  }
}

/** An engine’s socket as it was named on the command line, seen from anywhere. */
export function enginePath(cwd: string, socket: string): string {
  return socket.includes('://') ? socket : resolve(cwd, socket);
}

/**
 * The directory of the user’s sockets. The library decides the same (config/directories.ts has the reasons); it is not loaded
 * where a server does the work.
 */
export function runtimeDirectory(env: Environment, uid: number, logins = '/run/user'): string {
  const named = absolute(env['XDG_RUNTIME_DIR']);
  if (named !== null) return join(named, 'acode');
  const shared = join(absolute(tmpdir()) ?? '/tmp', `acode-${uid}`);
  const found = look(shared);
  return !found || (found.isDirectory() && found.uid === uid) ? shared : otherRuntime(env, uid, logins);
}

function otherRuntime(env: Environment, uid: number, logins: string): string {
  const fallback = join(stateDirectory(env), 'run');
  if (look(fallback)?.uid === uid) return fallback;
  const login = join(logins, String(uid));
  return isPrivate(look(login), uid) ? join(login, 'acode') : fallback;
}

function isPrivate(found: Stats | null, uid: number): boolean {
  return found?.isDirectory() === true && found.uid === uid && (found.mode & 0o777) === 0o700;
}

/** The directory of what outlives a restart of the machine. */
export function stateDirectory(env: Environment): string {
  return join(absolute(env['XDG_STATE_HOME']) ?? join(homeDirectory(env), '.local', 'state'), 'acode');
}

/** The user’s own configuration file. */
export function userConfigFile(env: Environment): string {
  return join(absolute(env['XDG_CONFIG_HOME']) ?? join(homeDirectory(env), '.config'), 'acode', 'config.yml');
}

/** The user’s home directory, as the library decides it: never a relative one. */
export function homeDirectory(env: Environment): string {
  if (process.platform === 'win32') return homedir();
  return absolute(env['HOME']) ?? accountHome();
}

function accountHome(): string {
  try {
    return userInfo().homedir;
  } catch {
    // No such user. Nothing is found there, and the library says why.
    return '/nonexistent';
  }
}

function look(path: string): Stats | null {
  try {
    return lstatSync(path);
  } catch {
    return null;
  }
}

function absolute(path: string | undefined): string | null {
  return path && isAbsolute(path) ? path : null;
}

// FNV-1a. A cryptographic one would take longer to load than the whole call takes, and nothing rests on it.
function hash(text: string, seed: number): string {
  let value = seed;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  return (value >>> 0).toString(16).padStart(8, '0');
}
