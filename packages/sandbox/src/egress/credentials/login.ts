// Logins behind a proxy: where a sandbox would refresh or end one, and what it is answered. Pure.

import type {
  EgressCredential,
  LoginDefinition,
  LoginEndpoint,
  PlannedCredential,
} from '../../contract/credentials.ts';
import type { EgressRule } from '../../contract/egress.ts';
import { decideHost } from '../decide.ts';

const TLS_PORT = 443;
/** The longest body of a request for tokens. */
export const MAX_TOKEN_REQUEST = 64 * 1024;

/** The address that a URL of a login names. */
export function endpointOf(url: string): LoginEndpoint {
  const { hostname, port, pathname } = new URL(url);
  return { host: hostname, port: port === '' ? TLS_PORT : Number(port), path: pathname };
}

/** The addresses of a login that are refused inside. */
export function refusedEndpoints({ revokeUrl, refusedUrls = [] }: LoginDefinition): readonly LoginEndpoint[] {
  return [...(revokeUrl === undefined ? [] : [revokeUrl]), ...refusedUrls].map(endpointOf);
}

/**
 * Rules with which the proxy reads what a sandbox asks the servers of its logins. The address for tokens needs none of the user’s: no
 * request goes there. A server that is allowed anyway is read from then on, and one that is denied stays so.
 */
export function withLoginHosts(
  rules: readonly EgressRule[],
  credentials: readonly EgressCredential[],
): readonly EgressRule[] {
  return credentials.reduce((all, { name, login, setBy }) => {
    if (!login) return all;
    const token = endpointOf(login.tokenUrl);
    const read = [token, ...refusedEndpoints(login)].reduce(inspectedAt, all);
    const decision = decideHost({ rules: read }, { ...token, via: 'any' });
    if (decision.allowed || decision.reason === 'denied-by-rule') return read;
    const rule: EgressRule = {
      id: `login:${name}/${token.host}`,
      verdict: 'allow',
      host: token.host,
      port: token.port,
      protocol: 'tls',
      mode: 'inspect',
      requests: [{ methods: ['POST'], path: `${token.path}$` }],
      setBy,
    };
    return [...read, rule];
  }, rules);
}

function inspectedAt(rules: readonly EgressRule[], { host, port }: LoginEndpoint): readonly EgressRule[] {
  const decision = decideHost({ rules }, { host, port, via: 'any' });
  if (!decision.allowed || decision.rule.protocol !== 'tls' || decision.rule.mode !== 'pass') return rules;
  const read: EgressRule = { ...decision.rule, host, mode: 'inspect' };
  // Below a suffix, the one host has a rule of its own beside it.
  return decision.rule.host === host ? rules.map(rule => (rule === decision.rule ? read : rule)) : [...rules, read];
}

/** What a request does to a login: asks for new tokens, or would end it. Null for anything else. */
export function loginRequest(
  credentials: readonly PlannedCredential[] | undefined,
  asked: { readonly host: string; readonly port: number; readonly target: string },
): { readonly does: 'refresh' | 'end'; readonly credential: PlannedCredential } | null {
  const path = comparable(asked.target.replace(/[?].*$/, ''));
  const isAt = ({ host, port, path: known }: LoginEndpoint): boolean =>
    host === asked.host && port === asked.port && comparable(known) === path;
  for (const credential of credentials ?? []) {
    if (credential.login?.refused.some(isAt)) return { does: 'end', credential };
    if (credential.login && isAt(credential.login.token)) return { does: 'refresh', credential };
  }
  return null;
}

// Servers differ in which of these are one address. What is read as one too many is refused or answered here, and goes nowhere.
function comparable(path: string): string {
  const plain = path.replaceAll(/%[0-9a-f]{2}/gi, sign => String.fromCharCode(Number.parseInt(sign.slice(1), 16)));
  return plain
    .replaceAll(/;[^/]*/g, '')
    .replaceAll(/\/+/g, '/')
    .replace(/\/$/, '')
    .toLowerCase();
}

/** What a sandbox asks for with a request for tokens. */
export type TokenRequestKind =
  /** New tokens, with the placeholder of the refresh token. */
  | 'refresh'
  /** New tokens, with a refresh token that is not acode’s. */
  | 'foreign'
  /** Something else, such as tokens for a code. */
  | 'other';

/** Reads the body of a request for tokens, as a form or as JSON. */
export function tokenRequestKind(body: string, contentType: string, refreshPlaceholder: string): TokenRequestKind {
  const { grant_type: grant, refresh_token: token } = /^application\/json\b/i.test(contentType.trim())
    ? jsonFields(body)
    : Object.fromEntries(new URLSearchParams(body));
  if (grant !== 'refresh_token') return 'other';
  return token === refreshPlaceholder ? 'refresh' : 'foreign';
}

function jsonFields(body: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

// A program that is told nothing would take an hour or a second for it.
const UNSAID_SECONDS = 3600;

/** The answer to a request for tokens: placeholders, valid for as long as the value that they stand for. */
export function tokenAnswer({ placeholder, login }: PlannedCredential, validMs: number | undefined): string {
  const seconds = validMs === undefined ? UNSAID_SECONDS : Math.max(1, Math.floor(validMs / 1000));
  return JSON.stringify({
    access_token: placeholder,
    ...(login ? { refresh_token: login.refreshPlaceholder } : {}),
    token_type: 'Bearer',
    expires_in: seconds,
  });
}
