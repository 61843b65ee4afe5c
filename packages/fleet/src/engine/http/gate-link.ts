// Gate over HTTP: one POST for each request of a tenant, who is known by a token. For fleets whose server has no accounts for tenants.

import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { Agent as HttpAgent, createServer, request as plainRequest } from 'node:http';
import type { IncomingMessage, RequestOptions, Server, ServerResponse } from 'node:http';
import { Agent as TlsAgent, createServer as createTlsServer, request as tlsRequest } from 'node:https';
import type { AddressInfo } from 'node:net';
import { FLEET_ERRORS } from '../../errors.ts';
import { isLoopback } from '../address.ts';
import { MAX_GATE_MESSAGE } from '../link.ts';
import type { GateHandler, GateLink } from '../link.ts';
import { reasonOf } from '../retry.ts';

const PATH = '/gate/1';
const TYPE = 'application/octet-stream';
const ANSWER_MS = 15_000;
const CONNECT_MS = 5000;
const HEADERS_MS = 10_000;
const IDLE_MS = 65_000;
const MAX_CONNECTIONS = 4096;
const MAX_SOCKETS = 64;
const CLOSE_MS = 2000;
const TOKEN = /^acode-gate-[A-Za-z0-9_-]{43}$/;

/** A new token, and what the gate keeps of it: nobody who reads that can ask as the tenant. */
export function makeToken(): { readonly token: string; readonly digest: string } {
  const token = `acode-gate-${randomBytes(32).toString('base64url')}`;
  return { token, digest: digestOf(token) };
}

/** Whether a text has the form of a token. */
export function isToken(text: string): boolean {
  return TOKEN.test(text);
}

function digestOf(token: string): string {
  return `sha256:${createHash('sha256').update(token).digest('hex')}`;
}

/** How gates are reached over HTTP. */
export interface HttpLinkOptions {
  /** Addresses of gates, such as `https://gate.example:7443`. */
  readonly urls: readonly string[];
  /** The tenant’s token. */
  readonly token: string;
  /** A file with the certificates that the gates’ own are checked against. */
  readonly caFile?: string | undefined;
}

/** The way of a tenant to the gates of its fleet. It stays with one gate for as long as that answers. */
export class HttpGateLink implements GateLink {
  readonly #urls: readonly URL[];
  readonly #token: string;
  readonly #agents: { readonly http: HttpAgent; readonly https: TlsAgent };
  #at = 0;

  private constructor(urls: readonly URL[], token: string, ca: string | undefined) {
    this.#urls = urls;
    this.#token = token;
    const shared = { keepAlive: true, maxSockets: MAX_SOCKETS };
    this.#agents = {
      http: new HttpAgent(shared),
      https: new TlsAgent({ ...shared, minVersion: 'TLSv1.2', ...(ca === undefined ? {} : { ca }) }),
    };
  }

  /** Reads the certificates. It connects with the first call. */
  static async open({ urls, token, caFile }: HttpLinkOptions): Promise<HttpGateLink> {
    const parsed = urls.map(checkedUrl);
    const ca = caFile === undefined ? undefined : await readFile(caFile, 'utf8');
    return new HttpGateLink(parsed, token, ca);
  }

  async call(message: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    signal.throwIfAborted();
    const url = this.#urls[this.#at % this.#urls.length];
    if (!url) throw FLEET_ERRORS.create('ACODE-FLT-030', { reason: 'no gate is named' });
    try {
      return await this.#post(url, message, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof Error && error.name === 'AcodeError') throw error;
      // Another one may answer.
      this.#at += 1;
      throw FLEET_ERRORS.create('ACODE-FLT-030', { reason: `${url.host}: ${reasonOf(error)}` }, { cause: error });
    }
  }

  close(): Promise<void> {
    this.#agents.http.destroy();
    this.#agents.https.destroy();
    return Promise.resolve();
  }

  #post(url: URL, message: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const options: RequestOptions = {
      method: 'POST',
      path: PATH,
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? undefined : url.port,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': TYPE, 'content-length': message.length },
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]),
    };
    return new Promise((resolve, reject) => {
      const sent =
        url.protocol === 'https:'
          ? tlsRequest({ ...options, agent: this.#agents.https })
          : plainRequest({ ...options, agent: this.#agents.http });
      sent.once('socket', socket => {
        if (!socket.connecting) return;
        const late = setTimeout(() => sent.destroy(new Error('no connection in time')), CONNECT_MS);
        socket.once('connect', () => clearTimeout(late));
        socket.once('close', () => clearTimeout(late));
      });
      sent.once('error', reject);
      sent.once('response', response => {
        if (response.statusCode === 200) bodyOf(response, MAX_GATE_MESSAGE).then(resolve, reject);
        else {
          response.destroy();
          reject(refusalOf(response.statusCode ?? 0));
        }
      });
      sent.end(message);
    });
  }
}

function checkedUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url?.protocol === 'http:';
  if (url && (url.protocol === 'https:' || isPlain) && url.pathname === '/' && url.username === '') {
    if (isPlain && !isLoopback(url.hostname)) throw FLEET_ERRORS.create('ACODE-FLT-023', { engine: url.origin });
    return url;
  }
  throw FLEET_ERRORS.create('ACODE-FLT-030', {
    reason: `${JSON.stringify(text)} is no address such as https://gate:7443`,
  });
}

function refusalOf(status: number): Error {
  if (status === 401)
    return FLEET_ERRORS.create('ACODE-FLT-031', { tenant: 'yours', reason: 'its token is not known' });
  if (status === 429) return FLEET_ERRORS.create('ACODE-FLT-032', { tenant: 'yours', reason: 'too many requests' });
  return new Error(`it answered with status ${status}`);
}

async function bodyOf(stream: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  const chunks: AsyncIterable<Buffer> = stream;
  for await (const bytes of chunks) {
    size += bytes.length;
    if (size > maxBytes) throw new RangeError(`more than ${maxBytes} bytes`);
    parts.push(bytes);
  }
  return Buffer.concat(parts);
}

/** Where a gate listens, and how it knows a tenant. */
export interface HttpDoorOptions {
  /** The address that it listens on. */
  readonly host: string;
  /** The port; 0 for any free one. */
  readonly port: number;
  /** Files with certificate and key; without them it listens on the loopback only. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string } | undefined;
  /** Digests of tokens with their tenants, as they are now. */
  readonly tokens: () => ReadonlyMap<string, string>;
}

/** A gate’s own HTTP server. */
export class HttpDoor implements AsyncDisposable {
  readonly #options: HttpDoorOptions;
  readonly #handler: GateHandler;
  readonly #server: Server;

  private constructor(options: HttpDoorOptions, handler: GateHandler) {
    this.#options = options;
    this.#handler = handler;
    const limits = { headersTimeout: HEADERS_MS, requestTimeout: 2 * ANSWER_MS, keepAliveTimeout: IDLE_MS };
    const answer = (request: IncomingMessage, response: ServerResponse): void => void this.#answer(request, response);
    const { tls } = options;
    this.#server = tls
      ? createTlsServer(
          { ...limits, cert: readFileSync(tls.certFile), key: readFileSync(tls.keyFile), minVersion: 'TLSv1.2' },
          answer,
        )
      : createServer(limits, answer);
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** Answers the requests of all tenants until it is disposed. */
  static async open(options: HttpDoorOptions, handler: GateHandler): Promise<HttpDoor> {
    const { host, port, tls } = options;
    const address = `${host}:${port}`;
    if (!tls && !isLoopback(host)) throw FLEET_ERRORS.create('ACODE-FLT-023', { engine: address });
    let door: HttpDoor;
    try {
      door = new HttpDoor(options, handler);
    } catch (cause) {
      throw FLEET_ERRORS.create('ACODE-FLT-033', { file: 'http', reason: reasonOf(cause) }, { cause });
    }
    await new Promise<void>((resolve, reject) => {
      door.#server.once('error', cause =>
        reject(FLEET_ERRORS.create('ACODE-FLT-033', { file: `http: ${address}`, reason: cause.message }, { cause })),
      );
      door.#server.listen({ host, port }, resolve);
    });
    return door;
  }

  /** The port that it listens on. */
  get port(): number {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on an address and a port
    return (this.#server.address() as AddressInfo | null)?.port ?? 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>(resolve => void this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    const late = setTimeout(() => this.#server.closeAllConnections(), CLOSE_MS);
    await closed;
    clearTimeout(late);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    try {
      const tenant = this.#tenantOf(request.headers.authorization);
      if (tenant === null) return ended(request, response, 401);
      if (request.method !== 'POST' || request.url !== PATH) return ended(request, response, 404);
      const answer = await this.#handler(tenant, await bodyOf(request, MAX_GATE_MESSAGE));
      if (answer === null) return ended(request, response, 429);
      response.writeHead(200, { 'content-type': TYPE, 'content-length': answer.length });
      response.end(answer);
    } catch (error) {
      ended(request, response, error instanceof RangeError ? 413 : 400);
    }
  }

  // The digest is looked up, so that the time it takes says nothing of the tokens there are.
  #tenantOf(header = ''): string | null {
    const token = /^Bearer (\S+)$/.exec(header)?.[1] ?? '';
    return isToken(token) ? (this.#options.tokens().get(digestOf(token)) ?? null) : null;
  }
}

// What is left of a body is not read: the connection ends with the answer.
function ended(request: IncomingMessage, response: ServerResponse, status: number): void {
  if (response.headersSent) return void response.destroy();
  const headers = { 'content-length': 0, ...(request.complete ? {} : { connection: 'close' }) };
  response.writeHead(status, headers).end();
}
