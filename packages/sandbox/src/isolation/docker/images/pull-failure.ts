// What a failed pull means: whether trying again can help, and what a person should do. Engines say most of it in words.

import type { RegistryLogin } from '../../../contract/images.ts';
import { EngineError } from '../engine/error.ts';
import { reasonOf } from '../failure.ts';

/**
 * Why a pull failed.
 *
 * - `unreachable`: the registry or the engine could not be reached, or the connection broke off; trying again may help
 * - `unauthorised`: the registry wants other credentials, or any
 * - `absent`: the registry has no such image
 * - `damaged`: what came is not what its digest says
 * - `other`: everything that trying again does not change
 */
export type PullFailureKind = 'unreachable' | 'unauthorised' | 'absent' | 'damaged' | 'other';

/** A failed pull, understood. */
export interface PullFailure {
  readonly kind: PullFailureKind;
  /** A clause for people, in the words of whoever refused. */
  readonly reason: string;
}

// In this order: a message that names an authorisation service may also say that it timed out. The words may be those of a
// registry nobody trusts yet: no expression may look further than a little way for its end.
const WORDS: readonly (readonly [PullFailureKind, RegExp])[] = [
  [
    'damaged',
    /verification failed|invalid checksum|digest (?:invalid|mismatch)|unexpected (?:commit )?digest|digest.{0,100} (?:did|does) not match|does not match (?:the )?(?:provided manifest )?digest/i,
  ],
  [
    'unreachable',
    /timeout|timed out|connection (?:refused|reset)|broken pipe|\bEOF\b|no such host|temporary failure|network is unreachable|no route to host|handshake|unexpected HTTP status:? 5\d\d|status(?: code)?:? 5\d\d|server misbehaving|closed network connection/i,
  ],
  [
    'unauthorised',
    /unauthorized|authentication required|no basic auth credentials|incorrect username or password|\bdenied\b|status:? 40[13]|forbidden/i,
  ],
  [
    'absent',
    /manifest unknown|not found|name unknown|no such (?:image|manifest)|repository does not exist|does not exist/i,
  ],
];

// A megabyte of words says nothing that is not in their beginning; and what is shown is for people.
const MAX_READ = 4096;
const MAX_SHOWN = 600;

/** What the error of one try means. Its reason is as it came, of any length: {@link shownReason} is for people. */
export function understand(error: unknown): PullFailure {
  const reason = reasonOf(error);
  const read = reason.slice(0, MAX_READ);
  const known = WORDS.find(([, words]) => words.test(read));
  return { kind: known?.[0] ?? kindOf(error), reason };
}

function kindOf(error: unknown): PullFailureKind {
  if (!(error instanceof EngineError)) return 'other';
  if (error.kind === 'status') return error.status === 404 ? 'absent' : 'other';
  return ['unreachable', 'timeout', 'disconnected'].includes(error.kind) ? 'unreachable' : 'other';
}

/** What to do about it. */
export function remedyFor(
  kind: PullFailureKind,
  {
    registry,
    hadLogin,
    byDigest,
  }: { readonly registry: string; readonly hadLogin: boolean; readonly byDigest: boolean },
): string {
  if (kind === 'unauthorised')
    return hadLogin
      ? `The registry did not take the credentials of your docker configuration: \`docker login ${registry}\` renews them.`
      : `Log in once with \`docker login ${registry}\`: acode uses the credentials of your own docker configuration. A name that does not exist can look the same.`;
  if (kind === 'absent')
    return byDigest
      ? 'Check the name and the digest: the registry has nothing with this digest under this name. A digest that `docker images` or a publisher shows for another repository, or an image’s id, is not one of it.'
      : 'Check the name and the tag: the registry has no such image.';
  if (kind === 'damaged')
    return 'Nothing of it is used. Try again; where it stays so, whoever looks after the registry should know.';
  if (kind === 'unreachable')
    return `Check the way to ${registry} from the engine’s machine, then try again; or name an image that the engine already has (--image).`;
  return 'The engine’s own log says more.';
}

/** A reason as it may be shown and logged. Cut last: half a secret would not be known for one. */
export function shownReason(reason: string, login: RegistryLogin | null): string {
  return withoutSecrets(reason, secretsOf(login)).slice(0, MAX_SHOWN);
}

// What a registry or an engine gets, and so could repeat: the secrets, the pair that basic authentication sends, and the
// whole of what the engine is handed.
function secretsOf(login: RegistryLogin | null): string[] {
  if (!login) return [];
  const { username = '', password, identitytoken } = login;
  const secrets = [password, identitytoken].filter(secret => secret !== undefined).filter(secret => secret !== '');
  return [...secrets.flatMap(secret => [secret, `${username}:${secret}`]), JSON.stringify(login)];
}

/** The text without what must not be shown, should anybody have repeated it. */
export function withoutSecrets(text: string, secrets: readonly string[]): string {
  const written = [...new Set(secrets.flatMap(waysToWrite))].filter(secret => secret.length > 0);
  // The longest first: what contains another secret must not be broken up by it.
  return written
    .sort((one, other) => other.length - one.length)
    .reduce((shown, secret) => shown.replaceAll(secret, '[redacted]'), text);
}

function waysToWrite(secret: string): string[] {
  const bytes = Buffer.from(secret);
  const base64 = bytes.toString('base64');
  return [
    secret,
    JSON.stringify(secret).slice(1, -1),
    // By way of the bytes: half a character cannot be written in an address.
    encodeURIComponent(bytes.toString()),
    base64,
    base64.replace(/=+$/, ''),
    bytes.toString('base64url'),
  ];
}
