// The user’s docker configuration, as far as it says how to log in to a registry. Pure.

import * as z from 'zod';
import type { RegistryLogin } from '../../contract/images.ts';

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
  if (helper && !HELPER.test(helper)) throw new UnusableConfig('names a credential helper that is no plain word');
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
