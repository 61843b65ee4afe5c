// Authorisation server of a test’s own: rotates refresh tokens, and knows when a client has lost one.

import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:https';
import type { Server } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { LoginDefinition } from '../../contract/credentials.ts';
import { SandboxAuthority } from '../proxy/certificates.ts';

/** How a server treats its refresh tokens. */
export interface TokenServerOptions {
  /** For how long a refresh token that was replaced is still taken; 0 ends the login when one comes again. Default 0. */
  readonly graceMs?: number;
  /** For how long an access token is valid, in seconds. Default an hour. */
  readonly expiresIn?: number;
  /** The port; a free one unless given. */
  readonly port?: number;
  readonly name?: string;
}

/** What happens to a request for tokens, for a test to stand in its way. */
export interface Crossing {
  /** Before the server has done anything. */
  readonly arrived?: () => Promise<void>;
  /** The refresh token is replaced, and nothing is answered yet. */
  readonly rotated?: () => Promise<void>;
}

interface Issued {
  readonly access: string;
  readonly refresh: string;
}

/** A server that needs its access tokens, and gives them. */
export class TokenServer implements AsyncDisposable {
  readonly definition: LoginDefinition;
  readonly pem: string;
  readonly port: number;
  /** Every refresh token that came, in turn. */
  readonly came: string[] = [];
  /** Paths that were asked for. */
  readonly seen: string[] = [];
  rotations = 0;
  /** Whether the login has ended, because a token came again that had been replaced. */
  isLoggedOut = false;
  crossing: Crossing = {};
  /** Answers with this status in place of tokens. */
  failing: number | null = null;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #options: Required<Pick<TokenServerOptions, 'graceMs' | 'expiresIn'>>;
  readonly #access = new Map<string, number>();
  readonly #codes = new Map<string, { readonly challenge: string; readonly redirect: string }>();
  #current: Issued;
  readonly #replaced = new Map<string, number>();

  private constructor(server: Server, pem: string, { graceMs = 0, expiresIn = 3600, name }: TokenServerOptions) {
    this.#server = server;
    this.#options = { graceMs, expiresIn };
    this.pem = pem;
    this.port = (server.address() as AddressInfo).port;
    const origin = `https://${name ?? 'localhost'}:${this.port}`;
    this.definition = {
      authorizeUrl: `${origin}/authorize`,
      tokenUrl: `${origin}/oauth/token`,
      clientId: 'acode-test',
      scopes: ['models'],
      revokeUrl: `${origin}/oauth/revoke`,
      refusedUrls: [`${origin}/logout`],
    };
    this.#current = this.#issue();
    server.on('connection', (socket: Socket) => this.#sockets.add(socket.on('error', () => undefined)));
    server.on('request', (request, response) => void this.#serve(request, response));
  }

  static async start(options: TokenServerOptions = {}): Promise<TokenServer> {
    const { name = 'localhost', port = 0 } = options;
    const authority = new SandboxAuthority([name]);
    const context = authority.context(name);
    const server = createServer({ SNICallback: (_name, done) => done(null, context) });
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return new TokenServer(server, authority.pem, options);
  }

  /** The tokens that count now, as a login begins with them. */
  get current(): Issued {
    return this.#current;
  }

  /** How many clients are connected. */
  get connections(): number {
    return [...this.#sockets].filter(({ destroyed }) => !destroyed).length;
  }

  /** Whether an access token is taken. */
  takes(access: string): boolean {
    return !this.isLoggedOut && (this.#access.get(access) ?? 0) > Date.now();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #issue(): Issued {
    const [access, refresh] = [`at-${randomBytes(20).toString('hex')}`, `rt-${randomBytes(20).toString('hex')}`];
    this.#access.set(access, Date.now() + this.#options.expiresIn * 1000);
    return { access, refresh };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'https://server.test');
    this.seen.push(pathname);
    let body = '';
    for await (const chunk of request) body += String(chunk);
    if (pathname === '/authorize') return this.#authorize(searchParams, response);
    if (pathname === '/oauth/token') return this.#token(fieldsOf(request, body), response);
    if (pathname === '/oauth/revoke' || pathname === '/logout') {
      this.isLoggedOut = true;
      return void response.end();
    }
    const [, access = ''] = /^Bearer (.+)$/.exec(request.headers.authorization ?? '') ?? [];
    response.writeHead(this.takes(access) ? 200 : 401).end(this.takes(access) ? `answer ${access}\n` : 'log in\n');
  }

  // A person who agrees at once.
  #authorize(query: URLSearchParams, response: ServerResponse): void {
    const code = randomBytes(12).toString('hex');
    const redirect = query.get('redirect_uri') ?? '';
    this.#codes.set(code, { challenge: query.get('code_challenge') ?? '', redirect });
    const target = new URL(redirect);
    target.search = String(new URLSearchParams({ code, state: query.get('state') ?? '' }));
    response.writeHead(302, { Location: target.href }).end();
  }

  async #token(fields: Readonly<Record<string, unknown>>, response: ServerResponse): Promise<void> {
    await this.crossing.arrived?.();
    // The client has gone before its request was read.
    if (response.destroyed) return;
    if (this.failing !== null) return void response.writeHead(this.failing).end('{"error":"temporarily_unavailable"}');
    if (fields['grant_type'] === 'authorization_code') return this.#exchange(fields, response);
    const token = String(fields['refresh_token']);
    this.came.push(token);
    if (!this.#takesRefresh(token)) {
      // As servers do that take it for theft.
      this.isLoggedOut = true;
      return void response.writeHead(400).end('{"error":"invalid_grant"}');
    }
    this.#replaced.set(this.#current.refresh, Date.now());
    this.#current = this.#issue();
    this.rotations += 1;
    const issued = this.#current;
    await this.crossing.rotated?.();
    this.#answer(issued, response);
  }

  #takesRefresh(token: string): boolean {
    if (this.isLoggedOut) return false;
    if (token === this.#current.refresh) return true;
    const replaced = this.#replaced.get(token);
    return replaced !== undefined && Date.now() - replaced < this.#options.graceMs;
  }

  #exchange(
    { code, code_verifier: verifier, redirect_uri: redirect }: Readonly<Record<string, unknown>>,
    response: ServerResponse,
  ): void {
    const known = this.#codes.get(String(code));
    this.#codes.delete(String(code));
    const challenge = createHash('sha256').update(String(verifier)).digest('base64url');
    if (known?.challenge !== challenge || known.redirect !== redirect)
      return void response.writeHead(400).end('{"error":"invalid_grant"}');
    this.isLoggedOut = false;
    this.#current = this.#issue();
    this.#answer(this.#current, response);
  }

  #answer({ access, refresh }: Issued, response: ServerResponse): void {
    const body = {
      access_token: access,
      refresh_token: refresh,
      token_type: 'Bearer',
      expires_in: this.#options.expiresIn,
    };
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
  }
}

function fieldsOf(request: IncomingMessage, body: string): Readonly<Record<string, unknown>> {
  return request.headers['content-type'] === 'application/json'
    ? (JSON.parse(body) as Record<string, unknown>)
    : Object.fromEntries(new URLSearchParams(body));
}
