// Credentials in a request: which of its headers and query keys hold one, and whether each holds the placeholder. Pure.
//
// On a host that gets a credential, a request with any other one is refused: with a key of an attacker’s own, a listed host is a way out.

import type { PlannedCredential } from '../../contract/credentials.ts';

/** The parts of a request that can hold a credential. */
export interface RequestParts {
  /** The path and the query as they were sent. */
  readonly target: string;
  /** Names and values in turn. */
  readonly headers: readonly string[];
}

// Headers that name a credential: `Authorization`, `Cookie`, `X-Api-Key`, `X-Goog-Api-Key`, `Private-Token`, `X-Amz-Security-Token` …
const HEADER =
  /(?:^|[-_])(?:authorization|authentication|auth|cookie2?|token|secret|passwd|password|credentials?|jwt|bearer|apikey|authkey|(?:api|access|account|auth|secret|private|subscription|functions|service|session|master|admin)[-_]?key)$|authorization|(?:auth|access|api|session|security|private|refresh|id)[-_]?token/;
const KEYS: ReadonlySet<string> = new Set(
  [
    'key apikey token auth authorization accesstoken authtoken apitoken privatetoken oauthtoken idtoken refreshtoken',
    'securitytoken sessiontoken jobtoken bearer jwt secret clientsecret apisecret secretkey password passwd pwd accesskey',
    'authkey subscriptionkey sig signature awsaccesskeyid xamzsignature xamzcredential xamzsecuritytoken xgoogsignature',
    'xgoogcredential xapikey ocpapimsubscriptionkey session',
  ].flatMap(line => line.split(' ')),
);

/** Whether a request holds a credential that is not the placeholder. */
export function carriesForeign({ target, headers }: RequestParts, credential: PlannedCredential | null): boolean {
  const isForeign = (value: string): boolean => value !== '' && !isPlaceholder(value, credential?.placeholder);
  return (
    headerPairs(headers).some(([name, value]) => isCredentialHeader(name, credential) && isForeign(value.trim())) ||
    queryPairs(target).some(({ key, value }) => isCredentialKey(key, credential) && isForeign(decoded(value)))
  );
}

/** A request without its placeholders, and without empty headers and keys where a credential would stand. */
export function withoutCredentials({ target, headers }: RequestParts, credential: PlannedCredential): RequestParts {
  const [path, query] = splitOnce(target, '?');
  const parts = queryParts(query ?? '');
  const kept = parts.filter(part => !isCredentialKey(keyOf(part), credential));
  return {
    target: kept.length === parts.length ? target : [path, ...(kept.length > 0 ? [kept.join('&')] : [])].join('?'),
    headers: headerPairs(headers)
      .filter(([name]) => !isCredentialHeader(name, credential))
      .flat(),
  };
}

function isCredentialHeader(name: string, credential: PlannedCredential | null): boolean {
  const lower = name.toLowerCase();
  const form = credential?.as;
  return HEADER.test(lower) || (typeof form === 'object' && 'header' in form && form.header.toLowerCase() === lower);
}

function isCredentialKey(key: string, credential: PlannedCredential | null): boolean {
  const form = credential?.as;
  // Servers differ in whether `api_key`, `api-key` and `Api.Key` are one.
  return (
    KEYS.has(key.toLowerCase().replaceAll(/[-_.[\] ]/g, '')) ||
    (typeof form === 'object' && 'query' in form && form.query === key)
  );
}

function isPlaceholder(value: string, placeholder: string | undefined): boolean {
  if (placeholder === undefined) return false;
  const [scheme, rest = ''] = splitOnce(value, ' ');
  if (/^basic$/i.test(scheme)) return isPassword(rest.trim(), placeholder);
  return value === placeholder || (/^(?:bearer|token)$/i.test(scheme) && rest.trim() === placeholder);
}

// With any user name, or in place of the user name.
function isPassword(basic: string, placeholder: string): boolean {
  const [user, password = ''] = splitOnce(Buffer.from(basic, 'base64').toString('latin1'), ':');
  return password === placeholder || (user === placeholder && ['', 'x-oauth-basic'].includes(password));
}

function headerPairs(headers: readonly string[]): [string, string][] {
  return headers.flatMap((name, at) => (at % 2 === 0 ? [[name, headers[at + 1] ?? ''] as [string, string]] : []));
}

// Some servers take `;` for `&`.
function queryParts(query: string): string[] {
  return query.split(/[&;]/).filter(part => part !== '');
}

function queryPairs(target: string): { readonly key: string; readonly value: string }[] {
  const [, query = ''] = splitOnce(target, '?');
  return queryParts(query).map(part => ({ key: keyOf(part), value: splitOnce(part, '=')[1] ?? '' }));
}

function keyOf(part: string): string {
  return decoded(splitOnce(part, '=')[0] ?? '');
}

function decoded(text: string): string {
  const plain = text.replaceAll('+', ' ');
  try {
    return decodeURIComponent(plain);
  } catch {
    // Not UTF-8: byte by byte.
    return plain.replaceAll(/%[0-9a-f]{2}/gi, sign => String.fromCharCode(Number.parseInt(sign.slice(1), 16)));
  }
}

function splitOnce(text: string, at: string): [string, string?] {
  const index = text.indexOf(at);
  return index === -1 ? [text] : [text.slice(0, index), text.slice(index + 1)];
}
