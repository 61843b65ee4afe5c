// The authorisation code flow with PKCE (RFC 6749, 7636, 8252): a page for the user’s browser, a code, and tokens for that. In acode’s own
// process: neither the code nor a token is ever in a sandbox.

import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { LoginDefinition } from '../../contract/credentials.ts';
import type { EgressRule, UpstreamProxy } from '../../contract/egress.ts';
import { dial, Refused, resolveHere } from '../proxy/dial.ts';
import { UpstreamTrust } from '../proxy/trust.ts';
import { endpointOf } from './login.ts';
import { valueFault } from './provider.ts';

/** A login that has begun: what the browser opens, and what proves that the code is for this process. */
export interface Authorization {
  readonly url: string;
  readonly redirectUri: string;
  readonly state: string;
  readonly verifier: string;
}

/** Tokens as a server gave them. */
export interface GrantedTokens {
  readonly access: string;
  readonly refresh: string | null;
  readonly expiresInSeconds: number | null;
}

/** How the server is reached. */
export interface ServerWay {
  /** Certificate authorities besides those of this host, as PEM. */
  readonly extraRoots: string;
  readonly proxy?: UpstreamProxy | undefined;
  readonly signal: AbortSignal;
}

/** Why a login failed, as a clause that holds nothing secret. */
export class AuthorizationError extends Error {
  override readonly name = 'AuthorizationError';
}

const ANY_PORT = 'http://127.0.0.1:0/callback';
const CALL_MS = 20_000;
const MAX_BYTES = 64 * 1024;
const MAX_CODE = 4096;

/** Where the browser is to bring the code. */
export function redirectOf({ redirectUri = ANY_PORT }: LoginDefinition): {
  readonly uri: string;
  readonly isHere: boolean;
} {
  return { uri: redirectUri, isHere: /^http:\/\/(?:127\.0\.0\.1|localhost):/.test(redirectUri) };
}

/** Begins a login at a server, which sends the browser to `redirectUri`. */
export function authorizationOf(definition: LoginDefinition, redirectUri: string): Authorization {
  const { authorizeUrl = '', clientId, scopes = [] } = definition;
  const [state, verifier] = [randomBytes(32).toString('base64url'), randomBytes(48).toString('base64url')];
  const url = new URL(authorizeUrl);
  const fields = {
    response_type: 'code',
    client_id: clientId,
    redirect_uri: redirectUri,
    state,
    ...(scopes.length > 0 ? { scope: scopes.join(' ') } : {}),
    code_challenge: createHash('sha256').update(verifier).digest('base64url'),
    code_challenge_method: 'S256',
  };
  for (const [name, value] of Object.entries(fields)) url.searchParams.set(name, value);
  return { url: url.href, redirectUri, state, verifier };
}

/** The code in what the user pasted, a code, `code#state`, or an address; throws where it is for another login. */
export function codeIn(text: string, { state }: Authorization): string {
  const given = text.trim();
  const query = /^https?:\/\//.test(given) && URL.canParse(given) ? new URL(given).searchParams : null;
  if (query) return codeFrom(query, state);
  const [code = '', claimed = state] = given.split('#');
  if (claimed !== state) throw new AuthorizationError('the code is of another login: begin anew');
  if (code === '' || code.length > MAX_CODE || !/^[\x21-\x7e]+$/.test(code))
    throw new AuthorizationError('that is not a code');
  return code;
}

function codeFrom(query: URLSearchParams, state: string): string {
  if (query.get('state') !== state) throw new AuthorizationError('the answer is of another login: begin anew');
  const error = query.get('error');
  if (error !== null) throw new AuthorizationError(`the server refused (${word(error) || 'no reason'})`);
  const code = query.get('code') ?? '';
  if (code === '' || code.length > MAX_CODE) throw new AuthorizationError('the answer has no code');
  return code;
}

/** A page of this host that waits for the browser. */
export interface WaitingPage extends AsyncDisposable {
  readonly uri: string;
  /** The address that the browser came with. */
  readonly came: Promise<string>;
}

/** Waits on this host’s loopback for the browser. */
export async function waitForBrowser(redirectUri: string): Promise<WaitingPage> {
  const wanted = new URL(redirectUri);
  let arrive: (address: string) => void = () => undefined;
  const came = new Promise<string>(resolve => (arrive = resolve));
  const server = createServer({ requestTimeout: CALL_MS, headersTimeout: CALL_MS }, (request, response) => {
    const url = new URL(request.url ?? '/', wanted);
    const isIt = request.method === 'GET' && url.pathname === wanted.pathname && url.searchParams.has('state');
    response
      .writeHead(isIt ? 200 : 404, { 'Content-Type': 'text/plain; charset=utf-8', Connection: 'close' })
      .end(isIt ? 'acode has what it needs. You can close this page.\n' : 'acode waits here for a login.\n');
    if (isIt) arrive(url.href);
  });
  server.listen({ host: '127.0.0.1', port: Number(wanted.port) });
  await once(server, 'listening').catch(() => {
    throw new AuthorizationError(`another program listens on port ${wanted.port}, where the browser would come`);
  });
  const address = server.address();
  if (typeof address === 'object' && address) wanted.port = String(address.port);
  return {
    uri: wanted.href,
    came,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise<void>(resolve => void server.close(() => resolve()));
    },
  };
}

/** Exchanges a code for tokens. */
export async function exchangeCode(
  definition: LoginDefinition,
  { redirectUri, verifier, state }: Authorization,
  code: string,
  way: ServerWay,
): Promise<GrantedTokens> {
  const { clientId, tokenUrl, tokenRequest = 'form' } = definition;
  const fields = {
    grant_type: 'authorization_code',
    code,
    redirect_uri: redirectUri,
    client_id: clientId,
    code_verifier: verifier,
  };
  const isJson = tokenRequest === 'json';
  const { status, text } = await post(tokenUrl, isJson ? { ...fields, state } : fields, { isJson, way });
  const tokens = objectIn(text);
  const { access_token: access, refresh_token: refresh, expires_in: seconds } = tokens;
  if (status !== 200) {
    const reason = typeof tokens['error'] === 'string' ? word(tokens['error']) : '';
    throw new AuthorizationError(`the server answered ${status}${reason === '' ? '' : ` (${reason})`}`);
  }
  if (!isToken(access)) throw new AuthorizationError('the server answered without a token that acode can use');
  return {
    access,
    refresh: isToken(refresh) ? refresh : null,
    expiresInSeconds: Number(seconds) > 0 ? Number(seconds) : null,
  };
}

/** Tells a server that a token is not used any more (RFC 7009). Whether it heard that. */
export async function revokeToken(
  { clientId, revokeUrl }: LoginDefinition & { readonly revokeUrl: string },
  token: string,
  way: ServerWay,
): Promise<boolean> {
  const sent = post(revokeUrl, { token, client_id: clientId }, { isJson: false, way });
  const { status } = await sent.catch(() => ({ status: 0 }));
  return status >= 200 && status < 300;
}

async function post(
  url: string,
  fields: Readonly<Record<string, string>>,
  { isJson, way: { extraRoots, proxy, signal } }: { readonly isJson: boolean; readonly way: ServerWay },
): Promise<{ readonly status: number; readonly text: string }> {
  const { host, port, path } = endpointOf(url);
  const body = isJson ? JSON.stringify(fields) : String(new URLSearchParams(fields));
  const rule: EgressRule = {
    id: 'login',
    verdict: 'allow',
    host,
    port,
    protocol: 'tls',
    mode: 'pass',
    // The user’s own file names the server. Without a proxy it is reached wherever its name leads.
    private: proxy === undefined,
    setBy: { layer: 'user', where: 'login' },
  };
  const until = AbortSignal.any([signal, AbortSignal.timeout(CALL_MS)]);
  const options = { resolve: resolveHere, check: () => undefined, connectMs: CALL_MS, signal: until, upstream: proxy };
  const stream = await dial(rule, host, port, options)
    .then(socket => new UpstreamTrust(extraRoots).secure(socket, host, CALL_MS))
    .catch((error: unknown) => {
      const reason = error instanceof Refused ? error.message : 'it failed';
      throw new AuthorizationError(`the server ${host} cannot be reached (${reason})`);
    });
  try {
    const sent = httpRequest({
      createConnection: () => stream,
      method: 'POST',
      path,
      headers: {
        Host: port === 443 ? host : `${host}:${port}`,
        'Content-Type': isJson ? 'application/json' : 'application/x-www-form-urlencoded',
        'Content-Length': String(Buffer.byteLength(body)),
        Accept: 'application/json',
        'Accept-Encoding': 'identity',
        Connection: 'close',
      },
      signal: until,
    });
    const answered = new Promise<IncomingMessage>((resolve, reject) => {
      sent.once('response', resolve).once('error', reject);
    });
    sent.end(body);
    const response = await answered;
    return { status: response.statusCode ?? 0, text: await textOf(response) };
  } catch {
    throw new AuthorizationError(`the server ${host} did not answer`);
  } finally {
    stream.destroy();
  }
}

async function textOf(response: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response) {
    length += chunk.length;
    if (length > MAX_BYTES) throw new AuthorizationError('the server answered too much');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function objectIn(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

function isToken(value: unknown): value is string {
  return typeof value === 'string' && valueFault(value) === null;
}

// What a server says is shown only where it is a word.
function word(text: string): string {
  return /^[\w.-]{1,60}$/.test(text) ? text : '';
}
