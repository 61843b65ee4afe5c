// Registry logins: the user’s own docker configuration and credential helpers, and nothing that untrusted code could
// have written.

import { realpath } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import * as z from 'zod';
import { readBoundedFile } from '../../lifecycle/directories.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { RegistryLogin } from '../../contract/images.ts';
import { isWithin } from '../../workspace/file-identity.ts';
import { findProgram, runProgram } from '../../workspace/trusted-program.ts';
import type { Clock } from '../../contract/ports.ts';

/** Whose configuration is read, and what it must not lie in. */
export interface LoginSurroundings extends HelperSurroundings {
  readonly home: string;
}

/** A login and its source, which may be logged. */
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
    if ('failed' in answer)
      throw unusable(file, `the credentials of ${registry} could not be obtained: ${answer.failed}`);
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
  if (found.uid !== uid && found.uid !== 0) throw unusable(file, 'it belongs to another user');
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

/** What a configuration says about one registry, the strongest word first. */
export interface LoginPlaces {
  /** The name of the helper that keeps the credentials, as in `docker-credential-<name>`. */
  readonly helper: string | null;
  /** What is written in the file itself. */
  readonly written: RegistryLogin | null;
}

const configSchema = z.lazy(() =>
  z.looseObject({
    auths: z
      .record(
        z.string(),
        z.looseObject({
          auth: z.string().optional(),
          username: z.string().optional(),
          password: z.string().optional(),
          identitytoken: z.string().optional(),
        }),
      )
      .nullish(),
    credsStore: z.string().nullish(),
    credHelpers: z.record(z.string(), z.string()).nullish(),
  }),
);

// The name under which Docker Hub has always been written down.
const HUB = 'https://index.docker.io/v1/';
// A word and never a path: it becomes part of the name of a program.
const HELPER = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** The name by which a helper, and the engine, know a registry. */
export function serverOf(registry: string): string {
  return registry === 'docker.io' ? HUB : registry;
}

/** Why a configuration cannot be used, in a clause. */
export class UnusableConfig extends Error {
  override readonly name = 'UnusableConfig';
}

/** What the text of a configuration says about the registry at a host and port; throws {@link UnusableConfig} where it is none. */
export function loginPlaces(text: string, registry: string): LoginPlaces {
  const config = parsed(text);
  const names = namesOf(registry);
  const helper = names.map(name => config.credHelpers?.[name]).find(found => found !== undefined) ?? config.credsStore;
  if (helper && !HELPER.test(helper)) throw new UnusableConfig('names a credential helper that is not a plain name');
  const auths = Object.entries(config.auths ?? {});
  const exact = auths.find(([key]) => names.includes(key));
  const entry = (exact ?? auths.find(([key]) => names.includes(hostOf(key))))?.[1];
  return { helper: helper || null, written: entry ? writtenLogin(entry, registry) : null };
}

function parsed(text: string): z.infer<typeof configSchema> {
  try {
    return configSchema.parse(JSON.parse(text));
  } catch {
    // Without the reason: a parser quotes what it could not read, and that may be a password.
    throw new UnusableConfig('is not a docker configuration');
  }
}

function namesOf(registry: string): string[] {
  return registry === 'docker.io' ? [HUB, 'docker.io', 'index.docker.io', 'registry-1.docker.io'] : [registry];
}

// Keys are hosts, or addresses with a scheme and the path of the API; under other paths stands what is no login.
function hostOf(key: string): string {
  return key
    .replace(/^https?:\/\//, '')
    .replace(/\/(?:v[12]\/?)?$/, '')
    .toLowerCase();
}

type Entry = NonNullable<z.infer<typeof configSchema>['auths']>[string];

function writtenLogin({ auth, username, password, identitytoken }: Entry, registry: string): RegistryLogin | null {
  const serveraddress = serverOf(registry);
  const pair = auth === undefined ? { username, password } : decoded(auth);
  if (identitytoken) return { identitytoken, serveraddress, ...(pair.username ? { username: pair.username } : {}) };
  if (!pair.username || !pair.password) return null;
  return { username: pair.username, password: pair.password, serveraddress };
}

function decoded(auth: string): { username: string | undefined; password: string | undefined } {
  const text = Buffer.from(auth, 'base64').toString('utf8').replace(/\0+$/, '');
  const colon = text.indexOf(':');
  if (colon <= 0) return { username: undefined, password: undefined };
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

const answerSchema = z.looseObject({ Username: z.string(), Secret: z.string().min(1) });
// What helpers say for credentials that are a token and no password.
const TOKEN = '<token>';

/** The login in a helper’s answer; null where it is none. */
export function helpersLogin(answer: string, registry: string): RegistryLogin | null {
  try {
    const { Username: username, Secret: secret } = answerSchema.parse(JSON.parse(answer));
    const serveraddress = serverOf(registry);
    return username === TOKEN
      ? { identitytoken: secret, serveraddress }
      : { username, password: secret, serveraddress };
  } catch {
    return null;
  }
}

/** Directories searched for helpers, and the user who asks. */
export interface HelperSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  /** What untrusted code can write: no program is taken from there. */
  readonly workspace: string;
  readonly clock: Clock;
}

/** What came of asking: an answer, that it knows of none, or why there is no answer. */
export type HelperAnswer = { readonly text: string } | { readonly unknown: true } | { readonly failed: string };

const NOT_FOUND = /credentials not found|no credentials|not found in/i;
// What keyrings and password stores of the user’s are found by; nothing else is passed on.
const PASSED_ON = [
  'HOME',
  'USER',
  'LOGNAME',
  'LANG',
  'XDG_RUNTIME_DIR',
  'DBUS_SESSION_BUS_ADDRESS',
  'DISPLAY',
  'GNUPGHOME',
  'PASSWORD_STORE_DIR',
];

/** Asks `docker-credential-<name> get` for a server. What it prints is never part of a failure: it may be the secret. */
async function askHelper(
  name: string,
  server: string,
  around: HelperSurroundings,
  signal: AbortSignal,
): Promise<HelperAnswer> {
  const program = await findProgram(`docker-credential-${name}`, around);
  if (program === null)
    return { failed: `docker-credential-${name} is in no directory of PATH that only you and root can write` };
  const env = Object.fromEntries(
    PASSED_ON.flatMap(key => {
      const value = around.env[key];
      return value === undefined ? [] : [[key, value]];
    }),
  );
  const output = await runProgram(
    program.path,
    ['get'],
    { env: { ...env, PATH: program.searched }, input: `${server}\n`, clock: around.clock },
    signal,
  );
  return 'failed' in output ? output : answerOf(program.path, output.code, output.text);
}

function answerOf(program: string, code: number | null, text: string): HelperAnswer {
  if (code === 0) return { text };
  return NOT_FOUND.test(text) ? { unknown: true } : { failed: `${program} ended with ${code ?? 'a signal'}` };
}
