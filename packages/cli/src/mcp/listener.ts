// MCP over HTTP on 127.0.0.1: one endpoint, a token, and a session for each client. Refuses calls without the token and from web pages.

import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { AcodeError } from '@acode/sandbox';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { isInitializeRequest } from '@modelcontextprotocol/sdk/types.js';
import { MAX_MESSAGE, NOT_A_REQUEST, NOT_JSON, REFUSED, refusalOf } from './messages.ts';
import { serverFor } from './server.ts';
import type { Lanes } from './server.ts';
import { Session } from './session.ts';
import type { ToolHost } from './host.ts';
import type { WorkspacePaths } from './paths.ts';
import { mcpError } from './errors.ts';

const ADDRESS = '127.0.0.1';
const MAX_SESSIONS = 16;
// High enough that a client with too many calls gets an error and is not just cut off.
const MAX_CONNECTIONS = 2048;
// What is being read of all bodies together.
const MAX_READING = 16 * MAX_MESSAGE;
const BODY_MS = 30_000;
const IDLE_MS = 30 * 60_000;
const LOOK_MS = 60_000;

/** What a listener needs. */
export interface ListenerParts {
  readonly host: ToolHost;
  readonly workspace: WorkspacePaths;
  readonly lanes: Lanes;
  /** 0 for any that is free. */
  readonly port: number;
  readonly token: string;
}

interface Client {
  readonly session: Session;
  readonly transport: StreamableHTTPServerTransport;
  /** Requests in progress, including an open event stream. */
  open: number;
  usedAt: number;
}

/** A server that listens. */
export class Listener implements AsyncDisposable {
  readonly #parts: ListenerParts;
  readonly #server: Server;
  readonly #clients = new Map<string, Client>();
  readonly #look: NodeJS.Timeout;
  #arriving = 0;
  #reading = 0;
  #port = 0;

  private constructor(parts: ListenerParts) {
    this.#parts = parts;
    this.#server = createServer({ requestTimeout: BODY_MS, headersTimeout: BODY_MS }, (request, response) => {
      // What fails here failed for this one request.
      this.#handle(request, response).catch((error: unknown) => refuse(response, 500, REFUSED, unexpected(error)));
    });
    this.#server.maxConnections = MAX_CONNECTIONS;
    this.#look = setInterval(() => this.#closeIdle(), LOOK_MS).unref();
  }

  /** Begins to listen. */
  static async listen(parts: ListenerParts): Promise<Listener> {
    const listener = new Listener(parts);
    try {
      listener.#server.listen(parts.port, ADDRESS);
      await once(listener.#server, 'listening');
    } catch (error) {
      clearInterval(listener.#look);
      const taken = error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
      const reason = taken ? 'something else listens on it' : error instanceof Error ? error.message : String(error);
      throw mcpError('ACODE-MCP-014', { port: parts.port, reason }, { cause: error });
    }
    const address = listener.#server.address();
    listener.#port = typeof address === 'object' && address !== null ? address.port : parts.port;
    return listener;
  }

  /** Where clients find it. */
  get url(): string {
    return `http://${ADDRESS}:${this.#port}${ENDPOINT}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#look);
    this.#server.close();
    await Promise.allSettled([...this.#clients.keys()].map(id => this.#close(id)));
    this.#server.closeAllConnections();
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { host, origin, authorization } = request.headers;
    const path = (request.url ?? '').split('?', 1)[0] ?? '';
    const away = turnedAway({ path, host, origin, authorization }, this.#port, this.#parts.token);
    if (away) return refuse(response, away.status, REFUSED, mcpError('ACODE-MCP-008', { reason: away.reason }));
    if (request.method !== 'POST') return this.#pass(request, response);
    const body = await this.#bodyOf(request);
    if (body instanceof AcodeError) return refuse(response, body.code === 'ACODE-MCP-007' ? 413 : 503, REFUSED, body);
    let message: unknown;
    try {
      message = JSON.parse(body);
    } catch {
      return refuse(response, 400, NOT_JSON, mcpError('ACODE-MCP-013', { reason: 'it is not JSON' }));
    }
    return this.#pass(request, response, message);
  }

  // What is more than may be sent is not read any further.
  async #bodyOf(request: IncomingMessage): Promise<string | AcodeError> {
    const tooLarge = mcpError('ACODE-MCP-007', { limit: '4 MiB' });
    if (Number(request.headers['content-length'] ?? 0) > MAX_MESSAGE) return tooLarge;
    const chunks: Uint8Array[] = [];
    let size = 0;
    const stream: AsyncIterable<unknown> = request.iterator({ destroyOnReturn: false });
    try {
      for await (const chunk of stream) {
        if (!(chunk instanceof Uint8Array)) continue;
        size += chunk.length;
        this.#reading += chunk.length;
        if (size > MAX_MESSAGE) return tooLarge;
        if (this.#reading > MAX_READING) return this.#busy();
        chunks.push(chunk);
      }
      return Buffer.concat(chunks).toString('utf8');
    } finally {
      this.#reading -= size;
    }
  }

  #busy(): AcodeError {
    const running = [...this.#clients.values()].reduce((sum, { open }) => sum + open, 0);
    return mcpError('ACODE-MCP-003', { running, waiting: 0 });
  }

  async #pass(request: IncomingMessage, response: ServerResponse, message?: unknown): Promise<void> {
    const id = request.headers['mcp-session-id'];
    const known = typeof id === 'string' ? this.#clients.get(id) : undefined;
    if (id !== undefined && !known)
      return refuse(response, 404, -32_001, mcpError('ACODE-MCP-013', { reason: 'its session has ended' }));
    if (!known && !isInitializeRequest(message))
      return refuse(
        response,
        400,
        NOT_A_REQUEST,
        mcpError('ACODE-MCP-013', { reason: 'it belongs to no session; a session begins with `initialize`' }),
        message,
      );
    if (!known && this.#clients.size + this.#arriving >= MAX_SESSIONS)
      return refuse(response, 503, REFUSED, tooManySessions(), message);
    const client = known ?? (await this.#arrive());
    client.open += 1;
    response.once('close', () => {
      client.open -= 1;
      client.usedAt = performance.now();
    });
    await client.transport.handleRequest(request, response, message);
  }

  async #arrive(): Promise<Client> {
    this.#arriving += 1;
    const session = new Session(this.#parts.host, this.#parts.workspace);
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: id => void this.#clients.set(id, client),
      onsessionclosed: id => this.#close(id),
    });
    const client: Client = { session, transport, open: 0, usedAt: performance.now() };
    try {
      await serverFor(session, this.#parts.lanes).connect(transport);
      return client;
    } finally {
      this.#arriving -= 1;
    }
  }

  async #close(id: string): Promise<void> {
    const client = this.#clients.get(id);
    if (!client) return;
    this.#clients.delete(id);
    await Promise.allSettled([client.session.close(), client.transport.close()]);
  }

  #closeIdle(): void {
    for (const [id, { open, usedAt }] of this.#clients)
      if (open === 0 && performance.now() - usedAt > IDLE_MS) void this.#close(id);
  }
}

// Whoever is refused may still be sending: the rest is thrown away, for as long as any body may take. To cut them off would be to
// take the answer from them.
function refuse(response: ServerResponse, status: number, code: number, error: AcodeError, about?: unknown): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const body = JSON.stringify(refusalOf(code, error, about));
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
    ...(status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {}),
  });
  response.end(body);
  response.req.resume();
}

function tooManySessions(): AcodeError {
  return mcpError('ACODE-MCP-010', {
    what: 'sessions',
    limit: MAX_SESSIONS,
    remedy: 'End one, or let it idle for half an hour.',
  });
}

function isKnown(error: unknown): error is AcodeError {
  return error instanceof AcodeError;
}

function unexpected(error: unknown): AcodeError {
  if (isKnown(error)) return error;
  return mcpError('ACODE-MCP-013', { reason: 'it could not be handled' }, { cause: error });
}

/** The path of the one endpoint. */
const ENDPOINT = '/mcp';

/** What is known of a request before its body is read. */
export interface Arrival {
  readonly path: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly authorization: string | undefined;
}

/** Why a request is turned away, and the status of HTTP for it. */
export interface TurnedAway {
  readonly status: 401 | 403 | 404;
  readonly reason: string;
}

/** Null for a request that may come in. */
export function turnedAway(arrival: Arrival, port: number, token: string): TurnedAway | null {
  const names = [`127.0.0.1:${port}`, `localhost:${port}`];
  // A name that another user’s server gave this address is how a page reaches it: that name stands here.
  if (arrival.host === undefined || !names.includes(arrival.host.toLowerCase()))
    return { status: 403, reason: 'the Host header does not name this server' };
  if (arrival.origin !== undefined && !names.includes(arrival.origin.toLowerCase().replace(/^http:\/\//, '')))
    return { status: 403, reason: 'the Origin header names another site' };
  if (!isToken(arrival.authorization, token)) return { status: 401, reason: 'the token is missing or wrong' };
  return arrival.path === ENDPOINT ? null : { status: 404, reason: `there is nothing here but ${ENDPOINT}` };
}

/** Whether an Authorization header carries the token. Takes as long whatever it carries. */
export function isToken(authorization: string | undefined, token: string): boolean {
  const [, presented = ''] = /^Bearer +(\S+)$/i.exec(authorization ?? '') ?? [];
  return timingSafeEqual(digestOf(presented), digestOf(token)) && presented !== '';
}

// Digests have one length, and comparing needs that.
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
