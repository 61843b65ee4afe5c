// The way to one engine: negotiates the API version, encodes paths, and makes every call obey a deadline, a signal and a schema.

import {
  Agent,
  type ClientRequest,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
} from 'node:http';
import { type Duplex, finished, Readable } from 'node:stream';
import type * as z from 'zod';
import {
  type ApiVersion,
  atLeast,
  classifyTransportError,
  EngineError,
  isExpected,
  negotiate,
  parseJson,
  readAll,
  refusalOf,
  type Verdict,
} from './protocol.ts';
import { CallLifetime, EngineReadable, HijackedStream, LiveCalls } from './streams.ts';

const replyCap = 16 * 1024 * 1024;
const pingReplyCap = 64 * 1024;
const defaultPingDeadlineMs = 5000;
// The address of a unix socket is a fixed field; a longer path would be cut and name another socket.
const longestSocketPath = process.platform === 'linux' ? 107 : 103;

// Builds request paths so that an id or a name can never become another path or a query.

/** A request path whose variable parts are encoded. Only {@link path} makes one. */
export class EnginePath {
  readonly text: string;

  private constructor(text: string) {
    this.text = text;
  }

  /** What the tag {@link path} does. */
  static fromTemplate(strings: readonly string[], values: readonly string[]): EnginePath {
    return new EnginePath(strings.reduce((text, part, index) => text + encodeSegment(values[index - 1] ?? '') + part));
  }
}

/**
 * Tag for request paths: every substitution is one encoded segment.
 *
 * @example path`/containers/${id}/json`
 */
export function path(strings: TemplateStringsArray, ...values: readonly string[]): EnginePath {
  return EnginePath.fromTemplate(strings, values);
}

/** The engine cleans `.`, `..` and empty segments away after decoding, which would lead to another endpoint. */
function encodeSegment(value: string): string {
  const cleanedAway = value.split('/').some(segment => segment === '' || segment === '.' || segment === '..');
  // Half a character has no encoding.
  if (cleanedAway || /\p{Surrogate}/u.test(value)) {
    throw new EngineError({
      kind: 'protocol',
      operation: 'build a path',
      detail: `${JSON.stringify(value)} is not a name an engine knows`,
    });
  }
  return encodeURIComponent(value);
}

/** A query string with its question mark, or nothing; what is undefined is left out. */
export function queryString(query: Readonly<Record<string, string | number | boolean | undefined>> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text === '' ? '' : `?${text}`;
}

/** One request to the engine. */
export interface EngineCall {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE';
  readonly path: EnginePath;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  /** Bytes and streams are sent as they are, any other object as JSON. A stream is always used up or destroyed. */
  readonly body?: object;
  readonly headers?: OutgoingHttpHeaders;
  /** The statuses that mean success; without it any 2xx. */
  readonly expect?: readonly number[];
  /** For `json` and `empty` the time for the whole call, for `stream` and `hijack` the time until the headers of the answer. */
  readonly deadlineMs: number;
  readonly signal: AbortSignal;
}

/** A call whose answer is a stream. */
export interface EngineStreamCall extends EngineCall {
  /** The longest silence after the headers while the reader wants data; without it there is no limit. */
  readonly idleMs?: number;
}

/** A streamed answer. Destroying `body` closes the connection. */
export interface EngineReply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: EngineReadable;
}

/** An answer that has begun. */
export interface PendingReply<T> {
  /** Safe to leave unawaited. */
  readonly reply: Promise<T>;
}

/** What every method of the narrow clients takes last. */
export interface CallOptions {
  readonly signal: AbortSignal;
  /** In place of the method's own deadline. */
  readonly deadlineMs?: number;
}

/** How to open an {@link EngineConnection}. */
export interface ConnectionOptions {
  readonly socketPath: string;
  readonly signal: AbortSignal;
  /** For the first contact; 5 s without it. */
  readonly deadlineMs?: number;
}

/**
 * A way to one engine. Every call has a connection of its own, so none can inherit the failure of another
 * and nothing idle keeps the process alive.
 */
export class EngineConnection implements Disposable {
  readonly socketPath: string;
  /** The version that both sides speak, such as `1.41`. */
  readonly apiVersion: ApiVersion;
  /** Whether this is Podman, which answers as Docker does but not everywhere the same. */
  readonly isPodman: boolean;
  readonly #agent: Agent;
  readonly #liveCalls: LiveCalls;
  #closed = false;

  private constructor(socketPath: string, offered: Offered, agent: Agent, liveCalls: LiveCalls) {
    this.socketPath = socketPath;
    this.apiVersion = offered.apiVersion;
    this.isPodman = offered.isPodman;
    this.#agent = agent;
    this.#liveCalls = liveCalls;
  }

  /** Asks the engine for its API version and settles on one; rejects when there is none that both know. */
  static async open({
    socketPath,
    signal,
    deadlineMs = defaultPingDeadlineMs,
  }: ConnectionOptions): Promise<EngineConnection> {
    const call: EngineCall = { method: 'GET', path: path`/_ping`, deadlineMs, signal };
    const operation = operationOf(call);
    if (Buffer.byteLength(socketPath) > longestSocketPath) {
      const detail = `the path of the socket is longer than ${longestSocketPath} bytes`;
      throw new EngineError({ kind: 'unreachable', operation, detail });
    }
    const agent = new Agent({ keepAlive: false });
    const liveCalls = new LiveCalls();
    const reply = await perform({ call, socketPath, agent, liveCalls, prefix: '', upgrade: false });
    await readAll(await requireBody(reply, call), pingReplyCap, operation);
    const apiVersion = negotiate(reply.headers['api-version'], operation);
    const isPodman = reply.headers['libpod-api-version'] !== undefined;
    return new EngineConnection(socketPath, { apiVersion, isPodman }, agent, liveCalls);
  }

  /** Whether the negotiated version is at least this one. */
  supports(version: ApiVersion): boolean {
    return atLeast(this.apiVersion, version);
  }

  /** A call whose answer is one JSON document, checked against `schema`. */
  async json<T>(call: EngineCall, schema: z.ZodType<T>): Promise<T> {
    const { reply } = await this.pending(call, schema);
    return reply;
  }

  /**
   * As `json`, for an answer whose headers say that the engine has begun and whose body comes when it is done. One deadline
   * covers both, unless `bodyMs` is given: then the call’s is for the headers, and this one for the body.
   */
  async pending<T>(call: EngineCall, schema: z.ZodType<T>, bodyMs?: number): Promise<PendingReply<T>> {
    const operation = operationOf(call);
    const answer = await this.#perform(call, false);
    const body = await requireBody(answer, call);
    if (bodyMs !== undefined) answer.lifetime.restart(bodyMs);
    const reply = readAll(body, replyCap, operation).then(text => parseJson(text, schema, operation));
    // Whoever awaits it gets the error; one that nobody awaits yet must not end the process.
    reply.catch(() => undefined);
    return { reply };
  }

  /** A call whose answer does not matter beyond its status. */
  async empty(call: EngineCall): Promise<void> {
    await readAll(await requireBody(await this.#perform(call, false), call), replyCap, operationOf(call));
  }

  /** A call whose answer is read as it comes. */
  async stream(call: EngineStreamCall): Promise<EngineReply> {
    const reply = await this.#perform(call, false);
    const body = await requireBody(reply, call);
    reply.lifetime.clearDeadline();
    return { status: reply.status, headers: reply.headers, body };
  }

  /** A call that turns its connection into a two-way stream of bytes. */
  async hijack(call: EngineCall): Promise<HijackedStream> {
    const reply = await this.#perform(call, true);
    if (!reply.hijacked) throw await refusalOf(verdictOf(reply, call), reply.body);
    reply.lifetime.clearDeadline();
    return reply.hijacked;
  }

  /** Gives up every call and stream that is still open; later calls are refused. */
  close(): void {
    this.#closed = true;
    this.#liveCalls.endAll(closedReason());
    this.#agent.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #perform(call: EngineStreamCall, upgrade: boolean): Promise<Exchange> {
    if (this.#closed) {
      discardBody(call);
      return Promise.reject(givenUp(call, closedReason()));
    }
    return perform({
      call,
      socketPath: this.socketPath,
      agent: this.#agent,
      liveCalls: this.#liveCalls,
      prefix: `/v${this.apiVersion}`,
      upgrade,
    });
  }
}

/** The signal and the deadline of a call: the caller's, else the method's own. */
export function termsOf(
  { signal, deadlineMs }: CallOptions,
  defaultDeadlineMs: number,
): { readonly signal: AbortSignal; readonly deadlineMs: number } {
  return { signal, deadlineMs: deadlineMs ?? defaultDeadlineMs };
}

// What the first answer says of the engine.
interface Offered {
  readonly apiVersion: ApiVersion;
  readonly isPodman: boolean;
}

interface Attempt {
  readonly call: EngineStreamCall;
  readonly socketPath: string;
  readonly agent: Agent;
  readonly liveCalls: LiveCalls;
  readonly prefix: string;
  readonly upgrade: boolean;
}

async function perform({ call, socketPath, agent, liveCalls, prefix, upgrade }: Attempt): Promise<Exchange> {
  if (call.signal.aborted) {
    discardBody(call);
    throw givenUp(call, call.signal.reason);
  }
  const { body, type } = encodeBody(call.body);
  return exchange({
    socketPath,
    agent,
    operation: operationOf(call),
    method: call.method,
    target: prefix + call.path.text + queryString(call.query),
    headers: { ...(type === undefined ? {} : { 'Content-Type': type }), ...call.headers },
    body,
    upgrade,
    deadlineMs: call.deadlineMs,
    idleMs: call.idleMs,
    signal: call.signal,
    liveCalls,
  });
}

function encodeBody(body: object | undefined): { body: Buffer | Readable | undefined; type?: string } {
  if (body === undefined) return { body };
  if (body instanceof Readable) return { body, type: 'application/x-tar' };
  if (body instanceof Uint8Array) {
    return { body: Buffer.from(body.buffer, body.byteOffset, body.byteLength), type: 'application/x-tar' };
  }
  return { body: Buffer.from(JSON.stringify(body)), type: 'application/json' };
}

function discardBody({ body }: EngineCall): void {
  if (body instanceof Readable) body.destroy();
}

function operationOf({ method, path: { text } }: EngineCall): string {
  return `${method} ${text}`;
}

function closedReason(): Error {
  return new Error('the engine connection was closed');
}

function givenUp(call: EngineCall, cause: unknown): EngineError {
  return new EngineError({ kind: 'aborted', operation: operationOf(call), detail: 'given up by the caller', cause });
}

function verdictOf({ status }: Exchange, call: EngineCall): Verdict {
  return { operation: operationOf(call), status, expect: call.expect };
}

/** The body of a successful answer; of any other the engine's message is read and thrown. */
async function requireBody(reply: Exchange, call: EngineCall): Promise<EngineReadable> {
  const verdict = verdictOf(reply, call);
  if (reply.body && isExpected(verdict)) return reply.body;
  throw await refusalOf(verdict, reply.body);
}

// One HTTP exchange with the engine: a socket of its own, from the first byte sent until the last one read.

/** What goes over the wire; everything about paths and versions has been decided. */
interface ExchangeRequest {
  readonly socketPath: string;
  readonly agent: Agent;
  readonly operation: string;
  readonly method: string;
  readonly target: string;
  readonly headers: OutgoingHttpHeaders;
  readonly body: Buffer | Readable | undefined;
  readonly upgrade: boolean;
  readonly deadlineMs: number;
  readonly idleMs: number | undefined;
  readonly signal: AbortSignal;
  readonly liveCalls: LiveCalls;
}

/** An answer whose headers have arrived. The lifetime goes on until its body, or its hijacked stream, is over. */
interface Exchange {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly lifetime: CallLifetime;
  readonly body: EngineReadable | undefined;
  readonly hijacked: HijackedStream | undefined;
}

/** Sends the request and resolves with the headers of the answer. Always settles: by answer, deadline, abort or loss of the connection. */
function exchange(call: ExchangeRequest): Promise<Exchange> {
  return new Promise((resolve, reject) => {
    const { operation } = call;
    const request = httpRequest({
      socketPath: call.socketPath,
      agent: call.agent,
      method: call.method,
      path: call.target,
      headers: requestHeaders(call),
    });
    const lifetime = new CallLifetime({
      operation,
      signal: call.signal,
      deadlineMs: call.deadlineMs,
      liveCalls: call.liveCalls,
      giveUp: error => {
        reject(error);
        request.destroy(error);
      },
    });
    const fail = (cause: unknown) => {
      lifetime.release();
      reject(classifyTransportError(cause, operation));
    };
    request.on('error', fail);
    let isAnswered = false;
    request.once('close', () => isAnswered || fail(undefined));
    request.once('response', response => {
      isAnswered = true;
      resolve(answered({ call, request, response, lifetime }));
    });
    if (call.upgrade) {
      request.once('upgrade', (response, socket, head) => {
        isAnswered = true;
        resolve(takeOver({ call, response, lifetime, source: socket, target: socket, head }));
      });
    }
    send(call, request, lifetime);
  });
}

function requestHeaders({ body, headers, upgrade }: ExchangeRequest): OutgoingHttpHeaders {
  return {
    ...headers,
    ...(Buffer.isBuffer(body) ? { 'Content-Length': body.length } : {}),
    // Without it a refusal that comes before the upload is read would be lost: the engine closes, and our write fails before its answer is read.
    ...(body instanceof Readable ? { Expect: '100-continue' } : {}),
    ...(upgrade ? { Connection: 'Upgrade', Upgrade: 'tcp' } : {}),
  };
}

function send(call: ExchangeRequest, request: ClientRequest, lifetime: CallLifetime): void {
  const { body } = call;
  if (!(body instanceof Readable)) {
    request.end(body);
    return;
  }
  request.once('close', () => body.destroy());
  finished(body, { writable: false }, error => {
    // A body destroyed because the call was already over is no news.
    if (!error || request.destroyed) return;
    const detail = 'the source of the upload failed';
    lifetime.release();
    lifetime.giveUp(new EngineError({ kind: 'aborted', operation: call.operation, detail, cause: error }));
  });
  request.once('continue', () => body.pipe(request));
  request.flushHeaders();
}

interface Answered {
  readonly call: ExchangeRequest;
  readonly request: ClientRequest;
  readonly response: IncomingMessage;
  readonly lifetime: CallLifetime;
}

function answered({ call, request, response, lifetime }: Answered): Exchange {
  if (call.upgrade && response.statusCode === 200) {
    // Engines that ignore the upgrade answer 200 and then speak raw bytes on the same connection.
    return takeOver({ call, response, lifetime, source: response, target: response.socket, head: Buffer.alloc(0) });
  }
  const body = new EngineReadable({
    source: response,
    operation: call.operation,
    ...(call.idleMs === undefined ? {} : { idleMs: call.idleMs }),
    onClose: () => {
      lifetime.release();
      request.destroy();
    },
  });
  lifetime.giveUp = error => body.destroy(error);
  return { ...statusOf(response), lifetime, body, hijacked: undefined };
}

interface TakenOver {
  readonly call: ExchangeRequest;
  readonly response: IncomingMessage;
  readonly lifetime: CallLifetime;
  readonly source: Readable;
  readonly target: Duplex;
  readonly head: Buffer;
}

function takeOver({ call, response, lifetime, source, target, head }: TakenOver): Exchange {
  const { operation } = call;
  const hijacked = new HijackedStream({ source, target, head, operation, onClose: () => lifetime.release() });
  lifetime.giveUp = error => hijacked.destroy(error);
  return { ...statusOf(response), lifetime, body: undefined, hijacked };
}

function statusOf(response: IncomingMessage): { status: number; headers: IncomingHttpHeaders } {
  return { status: response.statusCode ?? 0, headers: response.headers };
}
