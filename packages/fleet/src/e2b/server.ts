// HTTP server with E2B’s interface: REST calls for sandboxes, and what runs in each of E2B’s sandboxes, `envd`, as Connect calls.

import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { X509Certificate } from 'node:crypto';
import { createServer as createTlsServer } from 'node:https';
import { isIP } from 'node:net';
import type { AddressInfo } from 'node:net';
import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';
import { download, list, listSchema, makeDirectory, move, moveSchema, pathSchema, remove } from './files.ts';
import { statOf, upload, watch, watchSchema } from './files.ts';
import type { ApiKeys, E2bTenant } from './keys.ts';
import { inputSchema, selectSchema, signalSchema, startSchema, updateSchema } from './processes.ts';
import { ENVD_VERSION, checkedTimeout } from './sandboxes.ts';
import type { E2bSandbox, E2bSandboxes } from './sandboxes.ts';
import { HeldBytes, MAX_JSON_BYTES, MessageStream, envelopedMessage, invalid, messageOf } from './wire.ts';
import { refusalOf, sendConnectRefusal, sendJson, sendRefusal, sendStreamRefusal, withBody } from './wire.ts';
import type { Refusal } from './wire.ts';

const ENVD_PORT = '49983';
const USER = 'user';
const CALL_MS = 60_000;
const TRANSFER_MS = 600_000;
const DAY_MS = 86_400_000;
const MAX_CALLS = 128;
const MAX_CONNECTIONS = 2048;
const HEADERS_MS = 15_000;
const IDLE_MS = 65_000;
const CLOSE_MS = 5000;
const PAGE = 100;
// What a proxy in front would answer itself.
const PLAIN: ReadonlySet<number> = new Set([401, 421, 502]);
const LOOPBACK = ['127.0.0.1', 'localhost', '::1'];

const count = z.coerce.number();
const environment = z.record(z.string(), z.string());
const createSchema = z.strictObject({
  templateID: z.string(),
  timeout: count.optional(),
  metadata: environment.default({}),
  envVars: environment.default({}),
  secure: z.literal(true).optional(),
  allowInternetAccess: z.literal(false).optional(),
  autoPause: z.literal(false).optional(),
});
// Asked for with a value, each is refused with the reason; E2B’s SDK sends most of them without one.
const REFUSED: Readonly<Record<string, string>> = {
  allowInternetAccess: 'sandboxes have the network that the operator gave all of them (`--allow`), and no other',
  network: 'sandboxes have the network that the operator gave all of them (`--allow`), and no other',
  iam: 'sandboxes have no identity for other services',
  mcp: 'the server has no gateway for MCP',
  volumeMounts: 'there are no volumes',
  autoPause: 'a sandbox runs or is removed',
  autoPauseMemory: 'a sandbox runs or is removed',
  autoResume: 'a sandbox runs or is removed',
  secure: 'every sandbox has an access token',
};
const timeoutSchema = z.object({ timeout: count.optional() });
const refreshSchema = z.object({ duration: count.optional() });

/** What a server is made of. */
export interface E2bServerOptions {
  readonly sandboxes: E2bSandboxes;
  readonly keys: ApiKeys;
  /** The address that it listens on. */
  readonly host: string;
  /** The port; 0 for any free one. */
  readonly port: number;
  /** Certificate and key, in PEM; null for no encryption, which is for the loopback alone. */
  readonly tls: { readonly cert: string; readonly key: string } | null;
  /** Called with what went wrong in this program. */
  readonly onFault: (what: string, error: unknown) => void;
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly url: URL;
  /** Aborted when the caller has gone. */
  readonly gone: AbortSignal;
}

/** A server that listens. */
export class E2bServer implements AsyncDisposable {
  readonly #options: E2bServerOptions;
  readonly #server: Server;
  readonly #held = new HeldBytes();
  readonly #certificate: X509Certificate | null;

  private constructor(options: E2bServerOptions) {
    this.#options = options;
    const { tls } = options;
    this.#certificate = tls ? new X509Certificate(tls.cert) : null;
    const limits = { headersTimeout: HEADERS_MS, requestTimeout: TRANSFER_MS, keepAliveTimeout: IDLE_MS };
    const answer = (request: IncomingMessage, response: ServerResponse): void => void this.#answer(request, response);
    this.#server = tls
      ? createTlsServer({ ...limits, cert: tls.cert, key: tls.key, minVersion: 'TLSv1.2' }, answer)
      : createServer(limits, answer);
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** Listens. Without a certificate, on the loopback only. */
  static async listen(options: E2bServerOptions): Promise<E2bServer> {
    const { host, port, tls } = options;
    if (tls === null && !LOOPBACK.includes(host))
      throw FLEET_ERRORS.create('ACODE-FLT-040', {
        what: `--host ${host}`,
        reason: 'keys and files would cross the network without encryption',
        remedy: 'Add `--tls-cert` and `--tls-key`, or leave --host out: then only this machine reaches it.',
      });
    const server = new E2bServer(options);
    await new Promise<void>((resolve, reject) => {
      server.#server.once('error', cause =>
        reject(
          FLEET_ERRORS.create(
            'ACODE-FLT-040',
            { what: `${host}:${port}`, reason: cause.message, remedy: 'Choose another port with `--port`.' },
            { cause },
          ),
        ),
      );
      server.#server.listen({ host, port }, resolve);
    });
    return server;
  }

  /** What `E2B_API_URL` and `E2B_SANDBOX_URL` are for callers of this machine, or by the first name of the certificate. */
  get url(): string {
    const { host } = this.#options;
    const isAny = host === '0.0.0.0' || host === '::';
    const name = isAny ? (namesOf(this.#certificate)[0] ?? 'localhost') : host;
    return `${this.#certificate ? 'https' : 'http'}://${isIP(name) === 6 ? `[${name}]` : name}:${this.#port}`;
  }

  /** Ends all connections. The sandboxes are the owner’s to end. */
  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>(resolve => void this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    const late = setTimeout(() => this.#server.closeAllConnections(), CLOSE_MS);
    await closed;
    clearTimeout(late);
  }

  get #port(): number {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it listens on an address and a port
    return (this.#server.address() as AddressInfo | null)?.port ?? 0;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController();
    response.once('close', () => gone.abort(new Error('the caller has gone')));
    // A caller who breaks off is no fault of this program.
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    let isConnect = false;
    try {
      this.#checkHost(request.headers.host);
      const url = urlOf(request);
      const exchange: Exchange = { request, response, url, gone: gone.signal };
      isConnect = /^\/(?:process\.Process|filesystem\.Filesystem)\//.test(url.pathname);
      if (/^(?:\/v2)?\/(?:sandboxes|templates|snapshots|volumes|secrets)(?:\/|$)/.test(url.pathname))
        await this.#rest(exchange);
      else await this.#envd(exchange, isConnect);
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal.status === 500) this.#options.onFault(`${request.method} ${request.url?.split('?')[0] ?? ''}`, error);
      this.#refuse(request, response, refusal, isConnect);
    }
  }

  #refuse(request: IncomingMessage, response: ServerResponse, refusal: Refusal, isConnect: boolean): void {
    // What is left of a body is not read: the connection ends with the answer.
    if (!request.complete && !response.headersSent) response.setHeader('connection', 'close');
    const isStream = isConnect && request.headers['content-type']?.startsWith('application/connect+json') === true;
    if (isStream && !PLAIN.has(refusal.status)) sendStreamRefusal(response, refusal);
    else if (isConnect) sendConnectRefusal(response, refusal);
    else sendRefusal(response, refusal);
    if (!response.writableEnded) response.destroy();
  }

  // A page of a stranger whose name leads to this address (DNS rebinding) sends that name.
  #checkHost(header = ''): void {
    const [, name = '', port] = /^(\[[0-9a-f:.]+\]|[^:/@\s]+)(?::(\d+))?$/i.exec(header) ?? [];
    if (this.#isOwn(name.replace(/^\[|\]$/g, '').toLowerCase()) && this.#isOwnPort(port)) return;
    throw FLEET_ERRORS.create('ACODE-FLT-047', { host: header.slice(0, 100) });
  }

  #isOwn(host: string): boolean {
    return LOOPBACK.includes(host) || host === this.#options.host || isNamed(this.#certificate, host);
  }

  // A certificate says nothing of ports, and a proxy has another one.
  #isOwnPort(port = '80'): boolean {
    return this.#certificate !== null || Number(port) === this.#port;
  }

  #tenant({ headers }: IncomingMessage): E2bTenant {
    const key = headers['x-api-key'];
    const tenant = typeof key === 'string' ? this.#options.keys.tenantOf(key) : null;
    if (tenant) return tenant;
    throw FLEET_ERRORS.create('ACODE-FLT-041', {
      what: key === undefined ? 'API key: there is none' : 'API key',
      remedy: 'Set E2B_API_KEY to a key of this server: the operator has its file.',
    });
  }

  async #rest(exchange: Exchange): Promise<void> {
    const { request, response, url, gone } = exchange;
    const tenant = this.#tenant(request);
    const [what, id = '', verb, ...more] = url.pathname.replace(/^\/v2/, '').slice(1).split('/');
    const path = [what, id === '' ? null : ':id', verb].filter(part => part !== null && part !== undefined).join('/');
    const perform = more.length > 0 ? undefined : REST.get(`${request.method} ${path}`);
    if (!perform) throw notThere(request, url);
    const { sandboxes } = this.#options;
    const json = (): Promise<unknown> => this.#json(request);
    await perform({ tenant, id, sandboxes, response, json, query: url.searchParams, gone });
  }

  async #json(request: IncomingMessage): Promise<unknown> {
    return withBody(request, { maxBytes: MAX_JSON_BYTES, held: this.#held }, async body => messageOf(body));
  }

  async #envd(exchange: Exchange, isConnect: boolean): Promise<void> {
    const { request, response, url } = exchange;
    const id = headerOf(request, 'e2b-sandbox-id');
    if (url.pathname === '/health' && id === '') return sendJson(response, 200, {});
    const sandbox = this.#sandboxOf(request, url, id);
    if (sandbox === null) {
      // What E2B’s own proxy answers: its SDK takes it for a sandbox that is over.
      const refusal = refusalOf(FLEET_ERRORS.create('ACODE-FLT-042', { sandbox: JSON.stringify(id.slice(0, 100)) }));
      return this.#refuse(request, response, { ...refusal, status: 502, code: 'unavailable' }, isConnect);
    }
    checkUser(request, url);
    if (sandbox.calls >= MAX_CALLS)
      throw FLEET_ERRORS.create('ACODE-FLT-045', {
        what: 'calls under way in this sandbox',
        limit: MAX_CALLS,
        remedy: 'Try again when one has ended.',
      });
    sandbox.calls += 1;
    try {
      if (isConnect) await this.#connect(exchange, sandbox);
      else await this.#plain(exchange, sandbox);
    } finally {
      sandbox.calls -= 1;
    }
  }

  #sandboxOf(request: IncomingMessage, url: URL, id: string): E2bSandbox | null {
    const port = headerOf(request, 'e2b-sandbox-port');
    if (port !== '' && port !== ENVD_PORT) throw invalid('E2b-Sandbox-Port', 'is a port that is not published');
    const query = url.searchParams;
    const signature = query.get('signature');
    const { sandboxes } = this.#options;
    if (signature !== null && url.pathname === '/files') {
      const operation = request.method === 'GET' ? 'read' : 'write';
      const link = { path: query.get('path') ?? '', operation, user: query.get('username') ?? '' };
      return sandboxes.openSigned(link, { signature, expiration: query.get('signature_expiration') });
    }
    return sandboxes.open(id, headerOf(request, 'x-access-token'));
  }

  async #plain({ request, response, url, gone }: Exchange, { inner }: E2bSandbox): Promise<void> {
    const path = url.searchParams.get('path');
    const signal = AbortSignal.any([gone, AbortSignal.timeout(TRANSFER_MS)]);
    switch (`${request.method} ${url.pathname}`) {
      case 'GET /health':
        return done(response);
      case 'GET /files':
        return download(inner.files, path ?? '', response, { signal });
      case 'POST /files':
        return sendJson(response, 200, await upload(inner.files, request, path, { signal, held: this.#held }));
      default:
        throw notThere(request, url);
    }
  }

  async #connect(exchange: Exchange, sandbox: E2bSandbox): Promise<void> {
    const { request, url } = exchange;
    if (request.method !== 'POST') throw notThere(request, url);
    const type = (request.headers['content-type'] ?? '').split(';')[0]?.trim();
    if (type === 'application/connect+json') await this.#stream(exchange, sandbox);
    else if (type === 'application/json') await this.#unary(exchange, sandbox);
    else
      throw invalid(
        'Content-Type',
        'is not JSON of the Connect protocol',
        'Have the client use JSON (`useBinaryFormat: false`).',
      );
  }

  async #unary({ request, response, url, gone }: Exchange, sandbox: E2bSandbox): Promise<void> {
    const perform = UNARY.get(url.pathname);
    if (!perform) throw notThere(request, url);
    const asked = await this.#json(request);
    const ms = Math.min(timeoutOf(request) ?? CALL_MS, CALL_MS);
    const signal = AbortSignal.any([gone, AbortSignal.timeout(ms)]);
    sendJson(response, 200, await perform(asked, sandbox, { signal }));
  }

  async #stream({ request, response, url, gone }: Exchange, { inner, processes }: E2bSandbox): Promise<void> {
    const asked = await withBody(request, { maxBytes: MAX_JSON_BYTES, held: this.#held }, async body =>
      envelopedMessage(body),
    );
    const isWatch = url.pathname === '/filesystem.Filesystem/WatchDir';
    const timeoutMs = timeoutOf(request);
    const message = isWatch ? { keepalive: {} } : { event: { keepalive: {} } };
    const stream = new MessageStream(response, { everyMs: pingOf(request), message });
    try {
      if (isWatch) {
        const signal = AbortSignal.any([gone, AbortSignal.timeout(timeoutMs ?? DAY_MS)]);
        await watch(inner.files, parsed(watchSchema, asked), stream, { signal });
      } else if (url.pathname === '/process.Process/Start')
        await processes.start(parsed(startSchema, asked), stream, timeoutMs);
      else if (url.pathname === '/process.Process/Connect')
        await processes.connect(parsed(selectSchema, asked).process, stream);
      else throw notThere(request, url);
      stream.end();
    } catch (error) {
      const refusal = refusalOf(error);
      if (refusal.status === 500) this.#options.onFault(url.pathname, error);
      stream.end(refusal);
    }
  }
}

interface RestCall {
  readonly tenant: E2bTenant;
  /** The sandbox in the path; empty if there is none. */
  readonly id: string;
  readonly sandboxes: E2bSandboxes;
  readonly response: ServerResponse;
  readonly json: () => Promise<unknown>;
  readonly query: URLSearchParams;
  readonly gone: AbortSignal;
}

const REST: ReadonlyMap<string, (call: RestCall) => Promise<void>> = new Map([
  [
    'POST sandboxes',
    async ({ tenant, sandboxes, response, json, gone }) =>
      sendJson(response, 201, createdOf(await sandboxes.create(tenant, newSandboxOf(await json()), gone))),
  ],
  [
    'GET sandboxes',
    async ({ tenant, sandboxes, response, query }) => {
      const { page, next } = pageOf(sandboxes.of(tenant), query);
      if (next !== null) response.setHeader('x-next-token', next);
      sendJson(response, 200, page.map(infoOf));
    },
  ],
  [
    'GET sandboxes/:id',
    async ({ tenant, id, sandboxes, response }) => sendJson(response, 200, infoOf(sandboxes.get(tenant, id))),
  ],
  [
    'DELETE sandboxes/:id',
    async ({ tenant, id, sandboxes, response }) => {
      await sandboxes.kill(sandboxes.get(tenant, id));
      done(response);
    },
  ],
  [
    'POST sandboxes/:id/connect',
    async ({ tenant, id, sandboxes, response, json }) => {
      const found = sandboxes.get(tenant, id);
      await prolong(sandboxes, found, parsed(timeoutSchema, await json()).timeout);
      sendJson(response, 200, createdOf(found));
    },
  ],
  [
    'POST sandboxes/:id/timeout',
    async ({ tenant, id, sandboxes, response, json }) => {
      const { timeout } = parsed(timeoutSchema, await json());
      await sandboxes.extend(sandboxes.get(tenant, id), checkedTimeout(timeout));
      done(response);
    },
  ],
  [
    'POST sandboxes/:id/refreshes',
    async ({ tenant, id, sandboxes, response, json }) => {
      await prolong(sandboxes, sandboxes.get(tenant, id), parsed(refreshSchema, await json()).duration);
      done(response);
    },
  ],
] satisfies [string, (call: RestCall) => Promise<void>][]);

// Only if that is later than its end.
async function prolong(sandboxes: E2bSandboxes, found: E2bSandbox, timeoutS: number | undefined): Promise<void> {
  const seconds = checkedTimeout(timeoutS);
  if (found.inner.expiresAt.getTime() < Date.now() + seconds * 1000) await sandboxes.extend(found, seconds);
}

type Unary = (asked: unknown, sandbox: E2bSandbox, call: { readonly signal: AbortSignal }) => Promise<object>;

const UNARY: ReadonlyMap<string, Unary> = new Map([
  ['/process.Process/List', async (_, { processes }) => ({ processes: processes.list() })],
  [
    '/process.Process/SendInput',
    async (asked, { processes }) => {
      const { process, input } = parsed(inputSchema, asked);
      await processes.write(process, input);
      return {};
    },
  ],
  [
    '/process.Process/CloseStdin',
    async (asked, { processes }) => {
      await processes.closeInput(parsed(selectSchema, asked).process);
      return {};
    },
  ],
  [
    '/process.Process/SendSignal',
    async (asked, { processes }) => {
      const { process, signal } = parsed(signalSchema, asked);
      await processes.kill(process, signal);
      return {};
    },
  ],
  [
    '/process.Process/Update',
    async (asked, { processes }) => {
      const { process, pty } = parsed(updateSchema, asked);
      if (pty) await processes.resize(process, pty.size);
      return {};
    },
  ],
  [
    '/filesystem.Filesystem/Stat',
    async (asked, { inner }, call) => statOf(inner.files, parsed(pathSchema, asked).path, call),
  ],
  [
    '/filesystem.Filesystem/MakeDir',
    async (asked, { inner }, call) => makeDirectory(inner.files, parsed(pathSchema, asked).path, call),
  ],
  [
    '/filesystem.Filesystem/Remove',
    async (asked, { inner }, call) => remove(inner.files, parsed(pathSchema, asked).path, call),
  ],
  [
    '/filesystem.Filesystem/Move',
    async (asked, { inner }, call) => {
      const { source, destination } = parsed(moveSchema, asked);
      return move(inner.files, source, destination, call);
    },
  ],
  [
    '/filesystem.Filesystem/ListDir',
    async (asked, { inner }, call) => {
      const { path, depth } = parsed(listSchema, asked);
      return list(inner.files, path, depth, call);
    },
  ],
] satisfies [string, Unary][]);

function urlOf({ url = '/' }: IncomingMessage): URL {
  if (url.startsWith('/') && URL.canParse(`http://server${url}`)) return new URL(`http://server${url}`);
  throw invalid('the path', 'is not one of this server');
}

function parsed<Value>(schema: z.ZodType<Value>, content: unknown): Value {
  const read = schema.safeParse(content);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  const unknown = issue?.code === 'unrecognized_keys' ? issue.keys[0] : undefined;
  const field = unknown ?? (issue?.path.join('.') || 'the body');
  throw invalid(field, unknown === undefined ? (issue?.message ?? 'is invalid') : 'is unknown here');
}

function newSandboxOf(content: unknown): Parameters<E2bSandboxes['create']>[1] {
  const given = typeof content === 'object' && content !== null ? Object.entries(content) : [];
  const asked = given.filter(([, value]) => value !== undefined && value !== null);
  for (const [name, value] of asked) {
    const reason = REFUSED[name];
    if (reason !== undefined && !asksNothing(name, value))
      throw invalid(name, `is refused: ${reason}`, `Leave ${name} out.`);
  }
  const { templateID, timeout, metadata, envVars } = parsed(
    createSchema,
    Object.fromEntries(asked.filter(([name, value]) => !(name in REFUSED && asksNothing(name, value)))),
  );
  return { template: templateID, timeoutS: checkedTimeout(timeout), metadata, env: envVars };
}

// What a sandbox is anyway may be asked for.
function asksNothing(name: string, value: unknown): boolean {
  return name === 'secure' ? value === true : value === false;
}

function infoOf(sandbox: E2bSandbox): object {
  const { id, template, metadata, startedAt, inner, cpus, memoryMb } = sandbox;
  return {
    sandboxID: id,
    templateID: template,
    clientID: '',
    metadata,
    startedAt: startedAt.toISOString(),
    endAt: inner.expiresAt.toISOString(),
    state: 'running',
    cpuCount: cpus,
    memoryMB: memoryMb,
    diskSizeMB: 0,
    envdVersion: ENVD_VERSION,
    allowInternetAccess: false,
    volumeMounts: [],
  };
}

function createdOf({ id, template, token }: E2bSandbox): object {
  const access = { envdVersion: ENVD_VERSION, envdAccessToken: token };
  return { sandboxID: id, templateID: template, clientID: '', ...access };
}

function pageOf(
  all: readonly E2bSandbox[],
  query: URLSearchParams,
): { readonly page: readonly E2bSandbox[]; readonly next: string | null } {
  const states = query.get('state')?.split(',') ?? ['running'];
  const metadata = Array.from(new URLSearchParams(query.get('metadata') ?? ''), ([key, value]) => [
    decoded(key),
    decoded(value),
  ]);
  const after = Date.parse(query.get('startedAfter') ?? '1970-01-01');
  const template = query.get('template');
  const found = all.filter(
    one =>
      states.includes('running') &&
      metadata.every(([key = '', value]) => one.metadata[key] === value) &&
      one.startedAt.getTime() >= (Number.isNaN(after) ? 0 : after) &&
      (template === null || one.template === template),
  );
  if (query.get('order') === 'asc') found.reverse();
  const limit = Math.min(Math.max(Number(query.get('limit') ?? PAGE) || PAGE, 1), PAGE);
  const at = Math.max(
    found.findIndex(({ id }) => id === query.get('nextToken')),
    0,
  );
  return { page: found.slice(at, at + limit), next: found[at + limit]?.id ?? null };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function done(response: ServerResponse): void {
  response.writeHead(204).end();
}

function notThere({ method }: IncomingMessage, { pathname }: URL): Error {
  return FLEET_ERRORS.create('ACODE-FLT-046', { call: `${method} ${pathname.slice(0, 100)}` });
}

function headerOf({ headers }: IncomingMessage, name: string): string {
  const value = headers[name];
  return typeof value === 'string' ? value : '';
}

// There is one user, who is not root. What asks for another is refused, and not run as this one.
function checkUser({ headers }: IncomingMessage, url: URL): void {
  const [, basic] = /^Basic ([A-Za-z0-9+/=]+)$/.exec(headers.authorization ?? '') ?? [];
  const [named] = Buffer.from(basic ?? '', 'base64')
    .toString('utf8')
    .split(':');
  for (const user of [named ?? '', url.searchParams.get('username') ?? ''])
    if (user !== '' && user !== USER)
      throw invalid(
        'user',
        `is ${JSON.stringify(user.slice(0, 40))}, and there is “user” alone`,
        'Install what needs root in the image.',
      );
}

function timeoutOf(request: IncomingMessage): number | null {
  const text = headerOf(request, 'connect-timeout-ms');
  if (text === '') return null;
  if (!/^\d{1,10}$/.test(text)) throw invalid('Connect-Timeout-Ms', 'is not a number of milliseconds');
  return Math.min(Math.max(Number(text), 1), DAY_MS);
}

function pingOf(request: IncomingMessage): number {
  const seconds = Number(headerOf(request, 'keepalive-ping-interval')) || 50;
  return Math.min(Math.max(seconds, 5), 300) * 1000;
}

function isNamed(certificate: X509Certificate | null, host: string): boolean {
  if (!certificate || host === '') return false;
  const found = isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host);
  return found !== undefined;
}

function namesOf(certificate: X509Certificate | null): string[] {
  return (certificate?.subjectAltName ?? '')
    .split(', ')
    .flatMap(name => /^(?:DNS|IP Address):(.+)$/.exec(name)?.[1] ?? []);
}
