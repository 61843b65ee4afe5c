// How to log in to a registry: what the user’s own docker configuration says, and nothing that untrusted code could have written.

import { realpath } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { readBoundedFile } from '../../lifecycle/private-file.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { RegistryLogin } from '../../contract/images.ts';
import { isWithin } from '../../workspace/within.ts';
import { askHelper } from './credential-helper.ts';
import type { HelperSurroundings } from './credential-helper.ts';
import { UnusableConfig, helpersLogin, loginPlaces, serverOf } from './docker-config.ts';

/** Whose configuration is read, and what it must not lie in. */
export interface LoginSurroundings extends HelperSurroundings {
  readonly home: string;
}

/** A login and where it is from, which may be told. */
export interface FoundLogin {
  readonly login: RegistryLogin | null;
  /** For the log: never anything of the login itself. */
  readonly source: string;
}

const MAX_BYTES = 1024 * 1024;
const ANONYMOUS: FoundLogin = { login: null, source: 'anonymous' };

/** The login for the registry at a host and port; none where the user has none. */
export async function loginFor(registry: string, around: LoginSurroundings, signal: AbortSignal): Promise<FoundLogin> {
  const file = configFile(around);
  const text = await readConfig(file, around);
  if (text === null) return ANONYMOUS;
  const { helper, written } = placesIn(file, text, registry);
  if (helper !== null) {
    const answer = await askHelper(helper, serverOf(registry), around, signal);
    signal.throwIfAborted();
    if ('failed' in answer) throw unusable(file, `the credentials of ${registry} could not be had: ${answer.failed}`);
    const login = 'text' in answer ? helpersLogin(answer.text, registry) : null;
    if (login) return { login, source: `docker-credential-${helper}` };
    if ('text' in answer) throw unusable(file, `docker-credential-${helper} gave no credentials that can be read`);
  }
  return written ? { login: written, source: file } : ANONYMOUS;
}

function configFile({ env, home }: LoginSurroundings): string {
  const directory = env['DOCKER_CONFIG'];
  if (directory === undefined || directory === '') return join(home, '.docker', 'config.json');
  // A relative one would be wherever the caller stands, and so in the workspace.
  if (!isAbsolute(directory)) throw unusable('DOCKER_CONFIG', 'it must be an absolute path');
  return join(directory, 'config.json');
}

async function readConfig(file: string, { workspace, uid }: LoginSurroundings): Promise<string | null> {
  const real = await realpath(file).catch(() => null);
  if (real === null) return null;
  if ([file, real].some(path => isWithin(path, workspace)))
    throw unusable(file, 'it lies in the workspace, where what runs in a sandbox could have written it');
  const found = await readBoundedFile(real, MAX_BYTES).catch(() => null);
  if (found === null) throw unusable(file, 'it cannot be read');
  if (found.uid !== uid && found.uid !== 0) throw unusable(file, 'it belongs to somebody else');
  if ((found.mode & 0o022) !== 0) throw unusable(file, `others can write it: chmod 600 ${file}`);
  if (found.size > MAX_BYTES) throw unusable(file, 'it is too large');
  return found.text;
}

function placesIn(file: string, text: string, registry: string): ReturnType<typeof loginPlaces> {
  try {
    return loginPlaces(text, registry);
  } catch (error) {
    throw error instanceof UnusableConfig ? unusable(file, error.message) : error;
  }
}

function unusable(source: string, reason: string): AcodeError {
  const remedy = `Correct ${source} and try again; docs/images.md says what is read of a docker configuration (Private registries).`;
  return new AcodeError('ACODE-SBX-013', { source, key: '', reason, remedy });
}
