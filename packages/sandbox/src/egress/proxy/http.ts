// HTTP of one sandbox: each request is read, decided and written anew, over connections upstream that no other sandbox has.

import { Agent, STATUS_CODES, createServer, request as httpRequest } from 'node:http';
import type { ClientRequest, ClientRequestArgs, IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import type { PlannedCredential } from '../../contract/credentials.ts';
import type { EgressLimits, EgressRefusal, EgressRule } from '../../contract/egress.ts';
import { codeOf } from '../../contract/system-error.ts';
import { MAX_TOKEN_REQUEST } from '../credentials/login.ts';
import { Refused } from './dial.ts';
import {
  endToEndHeaders,
  framingFault,
  framingHeaders,
  headBytes,
  splitAuthority,
  targetOf,
  valuesOf,
} from './request-head.ts';
import { copy, join } from './streams.ts';
import type { Direction, Take } from './streams.ts';
import { countTokens } from './token-count.ts';

/** What a connection with HTTP on it is: one to the proxy, which may ask for any host, or one to a single host. */
export type HttpRole = { readonly kind: 'proxy' } | OriginRole;

/** A connection that has one host behind it. */
export interface OriginRole {
  readonly kind: 'origin';
  readonly host: string;
  readonly port: number;
  /** How the client came to it. */
  readonly via: Via;
  /** Authorities that a client may name in Host besides the host itself. */
  readonly aliases: readonly string[];
}

/** How a client asks for a host. */
export type Via = 'connect' | 'http' | 'socks' | 'name' | 'git' | 'base-url';

/** A request that was decided upon. */
interface Decided {
  readonly rule: EgressRule;
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly via: Via;
  /** Whether the credential of the rule is added to it. */
  readonly isLent: boolean;
}

/** A request as it is sent to the server. */
interface Outgoing {
  readonly path: string;
  /** Names and values in turn. */
  readonly headers: readonly string[];
  /** What happens to the answer of a host that gets a credential; null for every other. */
  readonly brokered: Brokered | null;
}

/** What becomes of a request to a host that gets a credential, and of its answer. */
export interface Brokered {
  readonly target: string;
  /** Names and values in turn. */
  readonly headers: readonly string[];
  /** Hears the status of the answer. */
  answered(status: number): void;
  /** Why the answer cannot be passed on; null where it can. */
  answerFault(incoming: IncomingMessage): string | null;
  /** The headers of the answer as the sandbox gets them. */
  shown(headers: readonly string[]): string[];
  /** The body of the answer as the sandbox gets it. */
  body(incoming: IncomingMessage): Readable;
}

/** What the proxy of a sandbox does for its HTTP. Each throws `Refused`. */
export interface Gate {
  readonly limits: EgressLimits;
  /** The rule that allows a host, and the host as the rules know it: its text is read here, once. */
  decide(host: string, port: number, via: Via): { readonly rule: EgressRule; readonly host: string };
  /** Whether the credential of the rule is added to the request. */
  decideRequest(rule: EgressRule, asked: AskedRequest): boolean;
  /** What becomes of a request to a host that gets a credential; null for every other host. */
  broker(
    rule: EgressRule,
    request: { target: string; headers: readonly string[] },
    isLent: boolean,
  ): Promise<Brokered | null>;
  /** How a request for the tokens of a login is answered, which goes to no server; null for every other request. */
  tokens(rule: EgressRule, asked: Pick<AskedRequest, 'host' | 'port' | 'target' | 'method'>): AnswerTokens | null;
  /** A connection to the host, encrypted if the rule says so. */
  connect(rule: EgressRule, host: string, port: number): Promise<Duplex>;
  /** Opens the account of a request; returns the meter of its bytes and how to end it. */
  account(client: Duplex, rule: EgressRule, host: string, port: number): RequestAccount;
  /** Counts a refusal; null if the connection is to be closed without an answer, which it then is. */
  refuse(client: Duplex, asked: { host: string; port: number }, refused: Refused): string | null;
  /** A client asked for a tunnel. */
  tunnel(client: Duplex, host: string, port: number): Promise<void>;
}

/** Answers a request for tokens by its body and the type of that. Throws `Refused`. */
export type AnswerTokens = (body: string, contentType: string) => Promise<string>;

/** A request to decide upon. */
export interface AskedRequest {
  readonly method: string;
  /** The path and the query as they were sent. */
  readonly target: string;
  readonly host: string;
  readonly port: number;
  /** Names and values in turn. */
  readonly headers: readonly string[];
  /** The credential that the plan has for the rule. */
  readonly credential?: PlannedCredential | null;
}

/** The account of one request. */
export interface RequestAccount {
  take(direction: Direction): Take;
  /** Adds tokens that its answer counts. */
  addTokens(tokens: number): void;
  end(): void;
}

// A client can send requests faster than they are answered: each takes a connection upstream.
const MAX_PIPELINED = 16;
const MAX_AGENTS = 256;
// Shorter than servers keep idle connections: one that is used again was not just closed.
const IDLE_UPSTREAM_MS = 4000;
const MAX_ATTEMPTS = 3;
const HTTP_PORT = 80;
const TLS_PORT = 443;

/** Answers by reason. What is not here is 403. */
const STATUS: Partial<Readonly<Record<EgressRefusal, number>>> = {
  'bad-host': 400,
  'bad-request': 400,
  'host-differs': 421,
  unresolved: 502,
  unreachable: 502,
  'untrusted-server': 502,
  'no-credential': 502,
  'compressed-answer': 502,
  'base-url-only': 421,
  limit: 429,
};

/** The HTTP server and the connections upstream of one sandbox. */
export class HttpRelay {
  readonly #gate: Gate;
  readonly #server: Server;
  readonly #roles = new WeakMap<Duplex, HttpRole>();
  readonly #pending = new WeakMap<Duplex, number>();
  readonly #agents = new Map<string, UpstreamAgent>();

  constructor(gate: Gate) {
    this.#gate = gate;
    this.#server = createServer({
      maxHeaderSize: gate.limits.headerBytes,
      insecureHTTPParser: false,
      requireHostHeader: false,
      // These need a listening server: the sandbox’s own sweep ends what is idle.
      headersTimeout: 0,
      requestTimeout: 0,
      keepAliveTimeout: 0,
      noDelay: false,
    });
    // A client that has sent its last request may end its side, and still gets the answer.
    Object.assign(this.#server, { httpAllowHalfOpen: true });
    this.#server.on('request', (request, response) => void this.#serve(request, response));
    this.#server.on('checkContinue', (request, response) => void this.#serve(request, response));
    this.#server.on('connect', (request, client, head) => void this.#connect(request, client, head));
    this.#server.on('upgrade', (request, client, head) => void this.#upgrade(request, client, head));
    this.#server.on('clientError', (error, client) => this.#unreadable(error, client));
  }

  /** Serves HTTP on a connection. */
  serve(client: Duplex, role: HttpRole): void {
    this.#roles.set(client, role);
    this.#server.emit('connection', client);
    // It was paused while its first bytes were read; the parser takes what was put back, then what follows.
    client.resume();
  }

  /** Closes the connections upstream that wait for their next request. */
  closeIdle(): void {
    for (const agent of this.#agents.values()) agent.destroy();
    this.#agents.clear();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const client = request.socket;
    const asked = { host: '', port: 0 };
    request.on('error', () => {});
    response.on('error', () => {});
    try {
      this.#countPending(client, response);
      const decided = this.#decided(request, asked);
      if (request.headers.upgrade !== undefined) throw new Refused('upgrade', decided.rule.id);
      const { rule, host, port, path } = decided;
      const tokens = this.#gate.tokens(rule, { host, port, target: path, method: request.method ?? '' });
      if (tokens) await this.#answerTokens(request, response, { decided, tokens });
      else await this.#forward(request, response, decided);
    } catch (error) {
      this.#refuse(client, response, asked, refusedBy(error));
    }
  }

  #countPending(client: Duplex, response: ServerResponse): void {
    const pending = (this.#pending.get(client) ?? 0) + 1;
    this.#pending.set(client, pending);
    response.once('close', () => this.#pending.set(client, (this.#pending.get(client) ?? 1) - 1));
    if (pending > MAX_PIPELINED) throw new Refused('limit');
  }

  /** Reads where a request goes, once, and decides; `asked` is filled in for a refusal. */
  #decided(request: IncomingMessage, asked: { host: string; port: number }): Decided {
    const { method = '', url = '', rawHeaders } = request;
    const role = this.#roles.get(request.socket) ?? { kind: 'proxy' };
    if (role.kind === 'origin') Object.assign(asked, { host: role.host, port: role.port });
    const fault = framingFault({ method, url, rawHeaders });
    if (fault !== null) throw new Refused('bad-request', null, fault);
    const { path, via, ...named } =
      role.kind === 'origin' ? originTarget(role, url, rawHeaders) : proxyTarget(url, rawHeaders, asked);
    Object.assign(asked, named);
    const { rule, host } = this.#gate.decide(named.host, named.port, via);
    asked.host = host;
    if (role.kind === 'proxy') assertProtocol(rule, via);
    const { port } = named;
    // The client names the listener, which has this host behind it.
    const headers = via === 'base-url' ? withHost(rawHeaders, `${host}:${port}`) : rawHeaders;
    const isLent = this.#gate.decideRequest(rule, { method, target: path, host, port, headers });
    return { rule, host, port, path, via, isLent };
  }

  async #forward(request: IncomingMessage, response: ServerResponse, decided: Decided): Promise<void> {
    const account = this.#gate.account(request.socket, decided.rule, decided.host, decided.port);
    response.once('close', () => account.end());
    account.take('out')(headBytes(request.rawHeaders, request.url ?? ''));
    const outgoing = await this.#outgoing(request, decided);
    for (let attempt = 1; attempt < MAX_ATTEMPTS; attempt += 1) {
      const isDone = await this.#send(request, response, { decided, outgoing, account });
      if (isDone) return;
    }
    throw new Refused('unreachable', decided.rule.id);
  }

  async #answerTokens(
    request: IncomingMessage,
    response: ServerResponse,
    { decided: { rule, host, port }, tokens }: { readonly decided: Decided; readonly tokens: AnswerTokens },
  ): Promise<void> {
    const account = this.#gate.account(request.socket, rule, host, port);
    response.once('close', () => account.end());
    account.take('out')(headBytes(request.rawHeaders, request.url ?? ''));
    if (request.headers.expect !== undefined) response.writeContinue();
    const body = await bodyOf(request, rule.id, this.#gate.limits.connectMs);
    const text = await tokens(body, request.headers['content-type'] ?? '');
    account.take('in')(text.length);
    response.writeHead(200, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store', Pragma: 'no-cache' });
    response.end(text);
  }

  async #outgoing({ rawHeaders }: IncomingMessage, { rule, path, isLent }: Decided): Promise<Outgoing> {
    const brokered = await this.#gate.broker(rule, { target: path, headers: rawHeaders }, isLent);
    if (!brokered) return { path, headers: rawHeaders, brokered };
    return { path: brokered.target, headers: brokered.headers, brokered };
  }

  /** Sends a request once. False if nothing of it was read and it can be sent again. */
  #send(
    request: IncomingMessage,
    response: ServerResponse,
    { decided, outgoing, account }: { decided: Decided; outgoing: Outgoing; account: RequestAccount },
  ): Promise<boolean> {
    const upstream = this.#request(request, decided, outgoing);
    const { brokered } = outgoing;
    response.once('close', () => {
      if (!response.writableFinished) upstream.destroy();
    });
    return new Promise((resolve, reject) => {
      upstream.on('continue', () => response.writeContinue());
      upstream.once('response', incoming => {
        brokered?.answered(incoming.statusCode ?? 0);
        const fault = brokered?.answerFault(incoming) ?? null;
        if (fault === null) {
          answer(request, response, incoming, { account, brokered });
          resolve(true);
        } else {
          upstream.on('error', () => {}).destroy();
          reject(new Refused('compressed-answer', decided.rule.id, fault));
        }
      });
      // Not asked for: `upgrade` is never among the headers that are written.
      upstream.once('upgrade', (_incoming, socket) => socket.destroy());
      upstream.once('error', error => {
        if (response.headersSent) response.destroy();
        if (isStale(upstream, error, request)) resolve(false);
        else reject(error);
      });
      if (request.headers.expect !== undefined) upstream.flushHeaders();
      copy(request, upstream, account.take('out'));
    });
  }

  #request(
    request: IncomingMessage,
    decided: Decided,
    { path, headers }: Pick<Outgoing, 'path' | 'headers'>,
    more: readonly string[] = [],
  ): ClientRequest {
    const { method = 'GET', url = '', rawHeaders } = request;
    const head = { method, url, rawHeaders };
    return httpRequest({
      agent: this.#agent(decided),
      host: decided.host,
      port: decided.port,
      method,
      path,
      setHost: false,
      maxHeaderSize: this.#gate.limits.headerBytes,
      headers: [
        'Host',
        authorityOf(decided),
        ...endToEndHeaders(headers, ['host', 'content-length']),
        ...framingHeaders(head),
        ...more,
      ],
    });
  }

  #agent({ rule, host, port, via }: Decided): UpstreamAgent {
    const key = `${host}:${port} ${rule.protocol} ${rule.mode} ${rule.credential ?? ''}`;
    const known = this.#agents.get(key);
    if (known) return known;
    const [oldest] = this.#agents;
    if (oldest && this.#agents.size >= MAX_AGENTS) {
      oldest[1].destroy();
      this.#agents.delete(oldest[0]);
    }
    // The rule is looked up again for each connection: the plan may have changed since.
    const agent = new UpstreamAgent(this.#gate.limits.connections, () => {
      const current = this.#gate.decide(host, port, via === 'base-url' ? via : 'connect');
      return this.#gate.connect(current.rule, host, port);
    });
    this.#agents.set(key, agent);
    return agent;
  }

  async #connect(request: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    const asked = { host: request.url ?? '', port: 0 };
    try {
      client.on('error', () => {});
      if (this.#roles.get(client)?.kind !== 'proxy') throw new Refused('upgrade');
      const target = connectTarget(request);
      Object.assign(asked, target);
      if (head.length > 0) client.unshift(head);
      await this.#gate.tunnel(client, target.host, target.port);
    } catch (error) {
      this.refuseRaw(client, asked, refusedBy(error));
    }
  }

  async #upgrade(request: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    const asked = { host: '', port: 0 };
    try {
      client.on('error', () => {});
      const decided = this.#decided(request, asked);
      const isWebSocket = request.headers.upgrade?.toLowerCase() === 'websocket' && request.method === 'GET';
      if (!isWebSocket || decided.rule.websocket !== true || hasBody(request))
        throw new Refused('upgrade', decided.rule.id);
      if (head.length > 0) client.unshift(head);
      await this.#webSocket(request, client, decided);
    } catch (error) {
      this.refuseRaw(client, asked, refusedBy(error));
    }
  }

  #webSocket(request: IncomingMessage, client: Duplex, decided: Decided): Promise<void> {
    const account = this.#gate.account(client, decided.rule, decided.host, decided.port);
    client.once('close', () => account.end());
    const { path } = decided;
    const outgoing = { path, headers: request.rawHeaders };
    const upstream = this.#request(request, decided, outgoing, ['Connection', 'Upgrade', 'Upgrade', 'websocket']);
    client.once('close', () => upstream.destroy());
    return new Promise((resolve, reject) => {
      upstream.once('error', reject);
      upstream.once('upgrade', (incoming, server, head) => {
        if (head.length > 0) server.unshift(head);
        const more = ['Connection', 'Upgrade', 'Upgrade', 'websocket'];
        client.write(rawHead(101, [...endToEndHeaders(incoming.rawHeaders, ['content-length']), ...more]));
        void join(client, server, direction => account.take(direction));
        resolve();
      });
      upstream.once('response', incoming => {
        client.write(
          rawHead(incoming.statusCode ?? 502, [...endToEndHeaders(incoming.rawHeaders), 'Connection', 'close']),
        );
        copy(incoming, client, account.take('in'));
        incoming.once('error', () => client.destroy());
        resolve();
      });
      upstream.end();
    });
  }

  #refuse(client: Duplex, response: ServerResponse, asked: { host: string; port: number }, refused: Refused): void {
    if (response.headersSent || response.destroyed) return void response.destroy();
    const text = this.#gate.refuse(client, asked, refused);
    if (text === null) return;
    const isUnclear = refused.reason === 'bad-request' || refused.reason === 'limit';
    response.writeHead(STATUS[refused.reason] ?? 403, {
      ...refusalHeaders(refused, text),
      // What follows on the connection may be a part of what could not be read.
      ...(isUnclear ? { Connection: 'close' } : {}),
    });
    response.write(text);
    endAfterRequest(response);
  }

  /** Refuses on a connection that has no response object. */
  refuseRaw(client: Duplex, asked: { host: string; port: number }, refused: Refused): void {
    if (client.destroyed) return;
    const text = this.#gate.refuse(client, asked, refused);
    if (text === null) return;
    const headers = Object.entries(refusalHeaders(refused, text)).flat();
    client.end(`${rawHead(STATUS[refused.reason] ?? 403, [...headers, 'Connection', 'close'])}${text}`);
    lingering(client);
  }

  #unreadable(error: Error, client: Duplex): void {
    if (client.destroyed || !client.writable || codeOf(error) === 'ECONNRESET') return void client.destroy();
    const role = this.#roles.get(client);
    const asked = role?.kind === 'origin' ? role : { host: '', port: 0 };
    const isHttp = codeOf(error) === 'HPE_HEADER_OVERFLOW' || role?.kind !== 'origin';
    this.refuseRaw(client, asked, new Refused(isHttp ? 'bad-request' : 'not-http', null, codeOf(error)));
  }
}

const LINGER_MS = 2000;

/** Reads what the client still sends for a while: closed at once, it would lose the answer. */
export function lingering(client: Duplex): void {
  client.resume();
  const timer = setTimeout(() => client.destroy(), LINGER_MS);
  client.once('close', () => clearTimeout(timer));
  client.once('end', () => client.destroy());
}

// A client that still sends its body when the connection is closed may lose the answer, too.
function endAfterRequest(response: ServerResponse): void {
  const { req: request } = response;
  if (request.complete) return void response.end();
  const timer = setTimeout(() => response.end(), LINGER_MS);
  const end = (): void => {
    clearTimeout(timer);
    response.end();
  };
  request.once('end', end);
  request.once('close', end);
  request.resume();
}

// The whole body of a request that is answered here.
async function bodyOf(request: IncomingMessage, rule: string, ms: number): Promise<string> {
  const timer = setTimeout(() => request.destroy(), ms);
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > MAX_TOKEN_REQUEST) throw new Refused('limit', rule);
      chunks.push(chunk);
    }
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Connections to one host with one credential. */
class UpstreamAgent extends Agent {
  readonly #connect: () => Promise<Duplex>;

  constructor(maxSockets: number, connect: () => Promise<Duplex>) {
    super({ keepAlive: true, timeout: IDLE_UPSTREAM_MS, maxSockets });
    this.#connect = connect;
  }

  override createConnection(
    _options: ClientRequestArgs,
    created: (error: Error | null, stream?: Duplex) => void,
  ): undefined {
    this.#connect().then(
      stream => created(null, stream),
      (error: unknown) => created(refusedBy(error)),
    );
  }
}

function refusedBy(error: unknown): Refused {
  return error instanceof Refused ? error : new Refused('unreachable', null, codeOf(error));
}

function originTarget(role: OriginRole, url: string, rawHeaders: readonly string[]): Target {
  const target = targetOf(url);
  if (target === null || target.authority !== null) throw new Refused('bad-request', null, 'not an origin-form target');
  const [host = ''] = valuesOf(rawHeaders, 'host');
  const isSame = role.via === 'base-url' ? role.aliases.includes(host.toLowerCase()) : isSameHost(host, role);
  if (!isSame) throw new Refused('host-differs');
  return { host: role.host, port: role.port, path: target.path, via: role.via };
}

// Some clients (wget of BusyBox) ask a proxy for https in absolute form. The proxy encrypts the connection to the server then, and
// the request comes to it over the sandbox’s own loopback.
function proxyTarget(url: string, rawHeaders: readonly string[], asked: { host: string; port: number }): Target {
  const target = targetOf(url);
  if (target === null || target.authority === null)
    throw new Refused('bad-request', null, 'not the absolute-form target of a proxy');
  const standard = target.isEncrypted ? TLS_PORT : HTTP_PORT;
  const named = splitAuthority(target.authority, standard);
  if (named === null) throw new Refused('bad-host');
  Object.assign(asked, named);
  const [host = ''] = valuesOf(rawHeaders, 'host');
  const same = splitAuthority(host, standard);
  if (same?.host.toLowerCase() !== named.host.toLowerCase() || same.port !== named.port)
    throw new Refused('host-differs');
  return { ...named, path: target.path, via: target.isEncrypted ? 'connect' : 'http' };
}

function assertProtocol({ id, protocol }: EgressRule, via: Via): void {
  // Any bytes may be a request.
  if (via === 'http' && protocol !== 'http' && protocol !== 'tcp') throw new Refused('not-tls', id);
  if (via === 'connect' && protocol !== 'tls') throw new Refused('not-http', id);
}

interface Target {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  readonly via: Via;
}

function connectTarget(request: IncomingMessage): { host: string; port: number } {
  const { rawHeaders } = request;
  const named = splitAuthority(request.url ?? '', null);
  if (named === null) throw new Refused('bad-host');
  if (hasBody(request) || rawHeaders.some(text => /[\0\r\n]/.test(text))) throw new Refused('bad-request');
  const hosts = valuesOf(rawHeaders, 'host');
  if (hosts.length > 1) throw new Refused('bad-request');
  const [host] = hosts;
  const same = host === undefined ? named : splitAuthority(host, named.port);
  if (same?.host.toLowerCase() !== named.host.toLowerCase() || same.port !== named.port)
    throw new Refused('host-differs');
  return named;
}

function isSameHost(text: string, { host, port, aliases }: OriginRole): boolean {
  const name = text.toLowerCase();
  const isStandard = port === HTTP_PORT || port === TLS_PORT;
  return name === `${host}:${port}` || (isStandard && name === host) || aliases.includes(name);
}

function authorityOf({ rule, host, port }: Decided): string {
  return port === (rule.protocol === 'http' ? HTTP_PORT : TLS_PORT) ? host : `${host}:${port}`;
}

function hasBody({ rawHeaders }: IncomingMessage): boolean {
  return valuesOf(rawHeaders, 'content-length').length + valuesOf(rawHeaders, 'transfer-encoding').length > 0;
}

// An idle connection that the server closed just then: nothing of the request was read.
function isStale(upstream: ClientRequest, error: unknown, request: IncomingMessage): boolean {
  return (
    upstream.reusedSocket &&
    ['ECONNRESET', 'EPIPE'].includes(codeOf(error)) &&
    ['GET', 'HEAD', 'OPTIONS'].includes(request.method ?? '') &&
    !hasBody(request)
  );
}

// Language models are asked by POST, and count no tokens of what they refuse.
function isModel({ method }: IncomingMessage, status: number): boolean {
  return method === 'POST' && status >= 200 && status < 300;
}

function answer(
  request: IncomingMessage,
  response: ServerResponse,
  incoming: IncomingMessage,
  { account, brokered }: { readonly account: RequestAccount; readonly brokered: Brokered | null },
): void {
  const status = incoming.statusCode ?? 502;
  account.take('in')(headBytes(incoming.rawHeaders, ''));
  response.sendDate = false;
  // The reason phrase is text of the server’s that no client needs.
  const headers = endToEndHeaders(incoming.rawHeaders);
  response.writeHead(status, STATUS_CODES[status] ?? 'Unknown', brokered?.shown(headers) ?? headers);
  response.flushHeaders();
  incoming.once('error', () => response.destroy());
  const body = brokered?.body(incoming) ?? incoming;
  if (brokered && isModel(request, status)) countTokens(body, tokens => account.addTokens(tokens));
  copy(body, response, account.take('in'));
}

function withHost(rawHeaders: readonly string[], host: string): string[] {
  return rawHeaders.map((text, at) => (at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === 'host' ? host : text));
}

function refusalHeaders({ reason, rule }: Refused, text: string): Record<string, string> {
  return {
    'Content-Type': 'text/plain; charset=utf-8',
    'Content-Length': String(Buffer.byteLength(text)),
    'Acode-Refusal': rule === null ? reason : `${reason}; rule=${rule}`,
  };
}

function rawHead(status: number, rawHeaders: readonly string[]): string {
  const lines = rawHeaders.flatMap((value, at) => (at % 2 === 1 ? [`${rawHeaders[at - 1]}: ${value}`] : []));
  return [`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Unknown'}`, ...lines, '', ''].join('\r\n');
}
