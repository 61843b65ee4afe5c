// Where acode keeps its own things: never inside a workspace, where untrusted code could write them.

import { chmod, lstat, mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';

/** The directories of one user. */
export interface Directories {
  readonly home: string;
  readonly config: string;
  readonly state: string;
  readonly runtime: string;
}

/** The directories for an environment and a user; reads nothing, makes nothing. */
export function directoriesOf(host: { env: NodeJS.ProcessEnv; home: string; uid: number }): Directories {
  // The XDG rules say that relative values are to be ignored; following one would put state wherever the caller stands.
  const xdg = (name: string, otherwise: string): string => {
    const value = host.env[name];
    return value && isAbsolute(value) ? value : otherwise;
  };
  const runtime = xdg('XDG_RUNTIME_DIR', '');
  return {
    home: host.home,
    config: join(xdg('XDG_CONFIG_HOME', join(host.home, '.config')), 'acode'),
    state: join(xdg('XDG_STATE_HOME', join(host.home, '.local', 'state')), 'acode'),
    runtime: runtime === '' ? join(tmpdir(), `acode-${host.uid}`) : join(runtime, 'acode'),
  };
}

/** Makes a directory only its owner can enter, and refuses one that another user put there first. */
export async function ensurePrivateDirectory(path: string, uid: number): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  const found = await lstat(path);
  if (!found.isDirectory() || found.uid !== uid) {
    throw new AcodeError('ACODE-SBX-013', { source: path, key: '', reason: 'is not a directory of the current user' });
  }
  if ((found.mode & 0o077) !== 0) await chmod(path, 0o700);
}
