// HTTP of one sandbox: each request is read, decided and written anew, over connections upstream that no other sandbox has.

import { Agent, STATUS_CODES, createServer, request as httpRequest } from 'node:http';
import type { ClientRequest, ClientRequestArgs, IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { EgressLimits, EgressRefusal, EgressRule } from '../../contract/egress.ts';
import { codeOf } from '../../contract/system-error.ts';
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
export type Via = 'connect' | 'http' | 'socks' | 'name';

/** A request that was decided upon. */
interface Decided {
  readonly rule: EgressRule;
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

/** What the proxy of a sandbox does for its HTTP. Each throws `Refused`. */
export interface Gate {
  readonly limits: EgressLimits;
  /** The rule that allows a host, and the host as the rules know it: its text is read here, once. */
  decide(host: string, port: number, via: Via): { readonly rule: EgressRule; readonly host: string };
  decideRequest(rule: EgressRule, asked: AskedRequest): void;
  /** A connection to the host, encrypted if the rule says so. */
  connect(rule: EgressRule, host: string, port: number): Promise<Duplex>;
  /** Opens the account of a request; returns the meter of its bytes and how to end it. */
  account(client: Duplex, rule: EgressRule, host: string, port: number): RequestAccount;
  /** Counts a refusal; null if the connection is to be closed without an answer, which it then is. */
  refuse(client: Duplex, asked: { host: string; port: number }, refused: Refused): string | null;
  /** A client asked for a tunnel. */
  tunnel(client: Duplex, host: string, port: number): Promise<void>;
}

/** A request to decide upon. */
export interface AskedRequest {
  readonly method: string;
  /** The path and the query as they were sent. */
  readonly target: string;
  readonly host: string;
  readonly port: number;
  /** Names and values in turn. */
  readonly headers: readonly string[];
}

/** The account of one request. */
export interface RequestAccount {
  take(direction: Direction): Take;
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
      await this.#forward(request, response, decided);
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
    this.#gate.decideRequest(rule, { method, target: path, host, port, headers: rawHeaders });
    return { rule, host, port, path };
  }

  async #forward(request: IncomingMessage, response: ServerResponse, decided: Decided): Promise<void> {
    const account = this.#gate.account(request.socket, decided.rule, decided.host, decided.port);
    response.once('close', () => account.end());
    account.take('out')(headBytes(request.rawHeaders, request.url ?? ''));
    for (let attempt = 1; attempt < MAX_ATTEMPTS; attempt += 1) {
      const isDone = await this.#send(request, response, decided, account);
      if (isDone) return;
    }
    throw new Refused('unreachable', decided.rule.id);
  }

  /** Sends a request once. False if nothing of it was read and it can be sent again. */
  #send(
    request: IncomingMessage,
    response: ServerResponse,
    decided: Decided,
    account: RequestAccount,
  ): Promise<boolean> {
    const upstream = this.#request(request, decided);
    response.once('close', () => {
      if (!response.writableFinished) upstream.destroy();
    });
    return new Promise((resolve, reject) => {
      upstream.on('continue', () => response.writeContinue());
      upstream.once('response', incoming => {
        answer(response, incoming, account);
        resolve(true);
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

  #request(request: IncomingMessage, decided: Decided, more: readonly string[] = []): ClientRequest {
    const { method = 'GET', url = '', rawHeaders } = request;
    const head = { method, url, rawHeaders };
    return httpRequest({
      agent: this.#agent(decided),
      host: decided.host,
      port: decided.port,
      method,
      path: decided.path,
      setHost: false,
      maxHeaderSize: this.#gate.limits.headerBytes,
      headers: [
        'Host',
        authorityOf(decided),
        ...endToEndHeaders(rawHeaders, ['host', 'content-length']),
        ...framingHeaders(head),
        ...more,
      ],
    });
  }

  #agent({ rule, host, port }: Decided): UpstreamAgent {
    const key = `${host}:${port} ${rule.protocol} ${rule.credential ?? ''}`;
    const known = this.#agents.get(key);
    if (known) return known;
    const [oldest] = this.#agents;
    if (oldest && this.#agents.size >= MAX_AGENTS) {
      oldest[1].destroy();
      this.#agents.delete(oldest[0]);
    }
    // The rule is looked up again for each connection: the plan may have changed since.
    const agent = new UpstreamAgent(this.#gate.limits.connections, () => {
      const current = this.#gate.decide(host, port, 'connect');
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
    const upstream = this.#request(request, decided, ['Connection', 'Upgrade', 'Upgrade', 'websocket']);
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
    response.end(text);
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
  if (!isSameHost(host, role)) throw new Refused('host-differs');
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
  if (via === 'http' && protocol !== 'http') throw new Refused('not-tls', id);
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

function answer(response: ServerResponse, incoming: IncomingMessage, account: RequestAccount): void {
  const status = incoming.statusCode ?? 502;
  account.take('in')(headBytes(incoming.rawHeaders, ''));
  response.sendDate = false;
  // The reason phrase is text of the server’s that no client needs.
  response.writeHead(status, STATUS_CODES[status] ?? 'Unknown', endToEndHeaders(incoming.rawHeaders));
  response.flushHeaders();
  incoming.once('error', () => response.destroy());
  copy(incoming, response, account.take('in'));
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
