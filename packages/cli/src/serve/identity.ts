// Which server a call belongs to: one that would read the same configuration and reach the same engine for the same workspace.

import { homedir, tmpdir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';
import { ownVersion } from '../version.ts';
import { PROTOCOL } from './frames.ts';
import type { Where } from './words.ts';

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
export const LOOK_VARIABLES: readonly string[] = ['ACODE_LOG_LEVEL', 'COLUMNS', 'FORCE_COLOR', 'NO_COLOR', 'TERM'];

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
}

/** The identity of a call, or of a server for such calls. */
export function identityOf({ root, cwd, env, uid, config, socket }: IdentityParts): Identity {
  const names = Object.keys(env).filter(name => name.startsWith('ACODE_') && !LOOK_VARIABLES.includes(name));
  const text = JSON.stringify([
    PROTOCOL,
    ownVersion(),
    uid,
    root,
    config === undefined ? null : resolve(cwd, config),
    socket === undefined ? null : enginePath(cwd, socket),
    [...names, ...READ_VARIABLES].sort().map(name => [name, env[name] ?? null]),
  ]);
  return { text, socketName: `serve-${hash(text, 0x811c9dc5)}${hash(text, 0x01000193)}.sock` };
}

/** An engine’s socket as it was named on the command line, seen from anywhere. */
export function enginePath(cwd: string, socket: string): string {
  return socket.includes('://') ? socket : resolve(cwd, socket);
}

/** The directory of the user’s sockets. The library decides the same; it is not loaded where a server does the work. */
export function runtimeDirectory(env: Environment, uid: number): string {
  const named = env['XDG_RUNTIME_DIR'];
  return named && isAbsolute(named) ? join(named, 'acode') : join(tmpdir(), `acode-${uid}`);
}

/** The user’s own configuration file. */
export function userConfigFile(env: Environment): string {
  const named = env['XDG_CONFIG_HOME'];
  return join(named && isAbsolute(named) ? named : join(homedir(), '.config'), 'acode', 'config.yml');
}

// FNV-1a. A cryptographic one would take longer to load than the whole call takes, and nothing rests on it.
function hash(text: string, seed: number): string {
  let value = seed;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  return (value >>> 0).toString(16).padStart(8, '0');
}
