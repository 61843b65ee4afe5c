// Proxy of one sandbox: every connection of it is decided here, and leads to a checked address or nowhere.

import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { PlannedCredential } from '../../contract/credentials.ts';
import type {
  BaseUrl,
  EgressConnection,
  EgressLimits,
  EgressPlan,
  EgressRefusal,
  EgressRule,
  SpentBudget,
} from '../../contract/egress.ts';
import { loginRequest, tokenAnswer, tokenRequestKind } from '../credentials/login.ts';
import { Accounts } from './accounts.ts';
import type { Account, Asked } from './accounts.ts';
import { Broker } from './broker.ts';
import type { AskCredential } from './broker.ts';
import { Budget } from './budget.ts';
import { SandboxAuthority } from './certificates.ts';
import { MAX_HELLO_BYTES, readClientHello } from './client-hello.ts';
import { PUSH } from '../repository.ts';
import type { AllowedRepository, AskedRepository } from '../repository.ts';
import { ABORTED, Refused, checkedAddresses, dial, ownAddresses, remembering, resolveHere } from './dial.ts';
import type { DialOptions, Resolve } from './dial.ts';
import { MAX_GIT_BYTES, endGit, gitFrame, readGitRequest, relayGit } from './git.ts';
import type { GitRequest } from './git.ts';
import { HttpRelay, lingering } from './http.ts';
import type { AnswerTokens, AskedRequest, Brokered, Gate, RequestAccount, Via } from './http.ts';
import { MAX_SOCKS_BYTES, SOCKS_GREETING, SOCKS_REPLY, readSocksGreeting, readSocksRequest } from './socks.ts';
import { Meter, join, readPrefix } from './streams.ts';
import type { Direction, Take } from './streams.ts';
import { UpstreamTrust } from './trust.ts';

/** Where a connection came in inside the sandbox. It is a claim of the sandbox, and chooses only among what is allowed anyway. */
export type Listener = 'proxy' | 'socks' | 'git' | NamedListener;

/** A loopback address that stands for one name. */
export interface NamedListener {
  readonly address: string;
  readonly port: number;
  /** The name, if the plan does not have it: one below a `*.suffix`. */
  readonly host?: string;
}

/** The decisions that the proxy enforces: pure functions, of which nothing is decided again. */
export interface Decisions {
  decideHost(
    plan: EgressPlan,
    asked: { readonly host: string; readonly port: number; readonly via: Via },
  ): { readonly allowed: true; readonly host: string; readonly rule: EgressRule } | Denied;
  decideAddress(rule: EgressRule, address: string, own: readonly string[]): { readonly allowed: true } | Denied;
  decideRequest(
    rule: EgressRule,
    asked: AskedRequest,
  ): { readonly allowed: true; readonly credential?: string } | Denied;
  decideRepository(rule: EgressRule, asked: AskedRepository): AllowedRepository | Denied;
  /** The sentence about a refusal, with its rule and what to do. */
  refusalText(refusal: Asked & { reason: EgressRefusal; rule?: string; entry?: string; isLast: boolean }): string;
}

interface Denied {
  readonly allowed: false;
  readonly reason: EgressRefusal;
  readonly rule?: EgressRule;
}

/** What a proxy is made with. */
export interface SandboxProxyOptions {
  readonly plan: EgressPlan;
  readonly decisions: Decisions;
  /** Addresses of a name; by the resolver of this host if absent. */
  readonly resolve?: Resolve;
  /** Certificate authorities besides those of this host, as PEM. */
  readonly extraRoots?: string;
  /** Where the values of credentials come from; nowhere if absent. */
  readonly ask?: AskCredential;
  /** Hears once that a budget is used up. */
  readonly spent?: (budget: SpentBudget) => void;
}

// A refusal that was explained often enough is delayed and then closed: a client that repeats it at once would never end.
const DELAY_MS = 500;
const MAX_DELAYED = 32;
const MIN_SWEEP_MS = 20;
const MAX_SWEEP_MS = 15_000;
/** TLS alert: fatal, unrecognized_name. */
const UNRECOGNIZED_NAME = Buffer.from([21, 3, 1, 0, 2, 2, 112]);
const ESTABLISHED = 'HTTP/1.1 200 Connection established\r\n\r\n';
const NOTHING = Buffer.alloc(0);
/** What Git’s client ends with when its request is refused. */
const GIT_REFUSED = 128;
/** Processes of ssh at once for one sandbox. */
const MAX_GIT = 8;
const BASE_ADDRESS = '127.0.0.1';

/** The proxy of one sandbox. */
export class SandboxProxy implements Gate {
  #plan: EgressPlan;
  readonly #options: SandboxProxyOptions;
  readonly #connections = new Map<Duplex, Connection>();
  readonly #uses = new Set<Use>();
  readonly #accounts = new Accounts();
  readonly #meters = { in: new Meter(), out: new Meter() };
  readonly #http: HttpRelay;
  readonly #trust: UpstreamTrust;
  readonly #broker: Broker;
  readonly #budget: Budget;
  /** Connections by the stream that HTTP reads from, which is another one inside TLS. */
  readonly #inside = new WeakMap<Duplex, Connection>();
  #authority: SandboxAuthority | null;
  readonly #sweep: NodeJS.Timeout;
  readonly #delayed = new Set<Duplex>();
  readonly #resolve = remembering(resolveHere);
  readonly #own = remembering(ownAddresses);
  #isClosed = false;
  #gitRunning = 0;

  constructor(options: SandboxProxyOptions) {
    this.#options = options;
    this.#plan = options.plan;
    this.#http = new HttpRelay(this);
    this.#trust = new UpstreamTrust(options.extraRoots);
    this.#broker = new Broker(options.ask ?? (() => Promise.reject(new Error('no credential is known'))));
    this.#budget = new Budget(
      () => this.limits,
      spent => options.spent?.(spent),
    );
    this.#authority = authorityFor(options.plan);
    const { connectMs, idleMs } = options.plan.limits;
    const every = Math.min(MAX_SWEEP_MS, Math.max(MIN_SWEEP_MS, Math.min(connectMs, idleMs) / 4));
    this.#sweep = setInterval(() => this.#closeIdle(), every).unref();
  }

  get limits(): EgressLimits {
    return this.#plan.limits;
  }

  /** The certificate that the sandbox has to trust, as PEM; null if no rule inspects. */
  get certificate(): string | null {
    return this.#authority?.pem ?? null;
  }

  /** Takes a connection of the sandbox. The limits come before a byte of it is read. */
  accept(listener: Listener, client: Duplex): void {
    client.on('error', () => {});
    if (this.#isClosed || this.#isUsedUp() || this.#connections.size >= this.limits.connections) {
      this.#accounts.refused({ host: '', port: 0 }, 'limit', null);
      client.destroy();
      return;
    }
    const connection = new Connection(client);
    this.#connections.set(client, connection);
    client.once('close', () => {
      connection.close();
      this.#connections.delete(client);
    });
    void this.#serve(listener, connection);
  }

  /** Follows another plan from now on. Connections that it does not allow in the same way are closed. */
  update(plan: EgressPlan): void {
    if (inspectedNames(plan).join(' ') !== inspectedNames(this.#plan).join(' ')) this.#authority = authorityFor(plan);
    this.#plan = plan;
    this.#broker.forget();
    this.#http.closeIdle();
    for (const use of this.#uses) if (!this.#isStillAllowed(use)) use.connection.close();
  }

  /** The connections so far, those that are open included. */
  report(): readonly EgressConnection[] {
    for (const use of this.#uses) use.settle();
    return this.#accounts.rows();
  }

  /** Closes every connection. */
  close(): readonly EgressConnection[] {
    this.#isClosed = true;
    clearInterval(this.#sweep);
    this.#closeAll();
    return this.report();
  }

  decide(host: string, port: number, via: Via): { readonly rule: EgressRule; readonly host: string } {
    return permitted(this.#options.decisions.decideHost(this.#plan, { host, port, via }));
  }

  decideRequest(rule: EgressRule, asked: AskedRequest): boolean {
    const credential = this.#credentialOf(rule);
    const decision = permitted(this.#options.decisions.decideRequest(rule, { ...asked, credential }));
    const { does } = loginRequest(this.#plan.credentials, asked) ?? {};
    if (does === 'end') throw new Refused('login-kept', rule.id);
    const isLent = decision.credential !== undefined;
    // What is answered here goes to no server.
    if (isLent && does !== 'refresh') this.#budget.request(rule.id);
    return isLent;
  }

  async broker(
    rule: EgressRule,
    request: { target: string; headers: readonly string[] },
    isLent: boolean,
  ): Promise<Brokered | null> {
    if (rule.credential === undefined) return null;
    const credential = this.#credentialOf(rule);
    if (!credential) throw new Refused('no-credential', rule.id);
    return this.#broker.brokered(request, { credential, isLent, rule: rule.id });
  }

  tokens(rule: EgressRule, asked: Pick<AskedRequest, 'host' | 'port' | 'target' | 'method'>): AnswerTokens | null {
    const { does, credential } = loginRequest(this.#plan.credentials, asked) ?? {};
    if (does !== 'refresh' || !credential?.login) return null;
    const { refreshPlaceholder } = credential.login;
    return async (body, contentType) => {
      const kind = asked.method === 'POST' ? tokenRequestKind(body, contentType, refreshPlaceholder) : 'other';
      if (kind !== 'refresh') throw new Refused(kind === 'foreign' ? 'foreign-credential' : 'login-kept', rule.id);
      return tokenAnswer(credential, await this.#broker.validMs(credential.name, rule.id));
    };
  }

  #credentialOf({ credential: wanted }: EgressRule): PlannedCredential | null {
    return this.#plan.credentials?.find(({ name }) => name === wanted) ?? null;
  }

  async connect(rule: EgressRule, host: string, port: number): Promise<Duplex> {
    const socket = await this.#dial(rule, host, port, new AbortController().signal);
    return rule.protocol === 'tls' ? this.#trust.secure(socket, host, this.limits.connectMs) : socket;
  }

  account(client: Duplex, rule: EgressRule, host: string, port: number): RequestAccount {
    const connection = this.#inside.get(client) ?? this.#connections.get(client) ?? new Connection(client);
    connection.isOpen = true;
    const use = this.#use(connection, rule, host, port);
    use.row = this.#accounts.allowed({ host, port }, rule.id);
    return {
      take: direction => this.#take(use, direction),
      addTokens: tokens => {
        this.#budget.used(tokens);
        if (use.row && tokens > 0) use.row.tokens = (use.row.tokens ?? 0) + tokens;
      },
      end: () => this.#end(use),
    };
  }

  refuse(client: Duplex, asked: Asked, { reason, rule }: Refused, entry?: string): string | null {
    const answer = this.#accounts.refused(asked, reason, rule);
    if (answer === 'close') {
      this.#closeLater(client);
      return null;
    }
    const isLast = answer === 'explain-last';
    const facts = { ...asked, reason, isLast, ...(rule === null ? {} : { rule }), ...(entry ? { entry } : {}) };
    return `${this.#options.decisions.refusalText(facts)}\n`;
  }

  async tunnel(client: Duplex, host: string, port: number): Promise<void> {
    const connection = this.#connections.get(client);
    if (connection) await this.#lead(connection, { host, port, via: 'connect' }, () => client.write(ESTABLISHED));
  }

  async #serve(listener: Listener, connection: Connection): Promise<void> {
    const { client } = connection;
    if (listener === 'proxy') return this.#http.serve(client, { kind: 'proxy' });
    if (listener === 'socks') return this.#socks(connection);
    if (listener === 'git') return this.#git(connection);
    const base = this.#baseUrlAt(listener);
    if (base) return this.#serveBaseUrl(connection, base);
    const host = listener.host ?? this.#plan.names.find(({ address }) => address === listener.address)?.host ?? '';
    const asked = { host: host === '' ? listener.address : host, port: listener.port };
    try {
      await this.#lead(connection, { ...asked, via: 'name' }, () => {});
    } catch (error) {
      this.#refuseUnasked(client, asked, error);
    }
  }

  #baseUrlAt({ address, port }: NamedListener): BaseUrl | undefined {
    return address === BASE_ADDRESS ? this.#plan.baseUrls?.find(({ at }) => at === port) : undefined;
  }

  /** HTTP of a listener that has one host behind it, and of nobody else. */
  async #serveBaseUrl(connection: Connection, { at, ...target }: BaseUrl): Promise<void> {
    const aliases = [BASE_ADDRESS, 'localhost'].map(name => `${name}:${at}`);
    try {
      const { rule, host } = this.decide(target.host, target.port, 'base-url');
      const use = this.#use(connection, rule, host, target.port);
      connection.client.once('close', () => this.#end(use));
      this.#http.serve(connection.client, { kind: 'origin', ...target, via: 'base-url', aliases });
    } catch (error) {
      this.#refuseUnasked(connection.client, target, error);
    }
  }

  /** Leads a connection to the host that it asked for. `isReady` tells the client so, once that is decided and connected. */
  async #lead(connection: Connection, asked: Asked & { via: Via }, isReady: () => void): Promise<void> {
    const { rule, host } = this.decide(asked.host, asked.port, asked.via);
    const target = { host, port: asked.port };
    const use = this.#use(connection, rule, host, asked.port);
    connection.client.once('close', () => this.#end(use));
    if (rule.protocol === 'http' || rule.mode !== 'pass') {
      isReady();
      return this.#serveHttp(connection, rule, { ...target, via: asked.via });
    }
    const readHello = this.#startHello(connection, rule, { host, via: asked.via });
    const upstream = await this.#dial(rule, host, asked.port, connection.signal);
    connection.client.once('close', () => upstream.destroy());
    if (connection.client.destroyed) return void upstream.destroy();
    isReady();
    try {
      const hello = await readHello();
      use.row = this.#accounts.allowed(target, rule.id);
      connection.isOpen = true;
      this.#take(use, 'out')(hello.length);
      if (hello.length > 0) upstream.write(hello);
      await join(connection.client, upstream, direction => this.#take(use, direction));
    } catch (error) {
      upstream.destroy();
      this.#refuseUnasked(connection.client, target, error);
    }
  }

  // A client that believes to talk to the server does not wait to be told: what it says is read while its server is dialled.
  #startHello(connection: Connection, rule: EgressRule, to: { host: string; via: Via }): () => Promise<Buffer> {
    if (rule.protocol !== 'tls') return () => Promise.resolve(NOTHING);
    if (to.via !== 'name') return () => this.#hello(connection, rule, to.host);
    const early = this.#hello(connection, rule, to.host);
    early.catch(() => {});
    return () => early;
  }

  async #serveHttp(connection: Connection, rule: EgressRule, target: Asked & { via: Via }): Promise<void> {
    const role = { kind: 'origin', ...target, aliases: [] } as const;
    if (rule.protocol !== 'tls' || rule.mode !== 'inspect') return this.#http.serve(connection.client, role);
    try {
      this.#http.serve(await this.#endTls(connection, rule, target.host), role);
    } catch (error) {
      this.#refuseUnasked(connection.client, target, error);
    }
  }

  /** Ends the TLS of a client, as the host that it asked for. */
  async #endTls(connection: Connection, rule: EgressRule, host: string): Promise<Duplex> {
    const { client } = connection;
    if (!this.#authority) throw new Refused('not-http', rule.id, 'no certificate authority');
    client.unshift(await this.#hello(connection, rule, host));
    const secureContext = this.#authority.context(host);
    const stream = new TLSSocket(client, { isServer: true, secureContext, ALPNProtocols: ['http/1.1'] });
    this.#inside.set(stream, connection);
    stream.on('error', () => client.destroy()).once('close', () => client.destroy());
    await new Promise<void>((resolve, reject) => {
      stream.once('secure', resolve).once('close', () => reject(new Refused('not-tls', rule.id, 'no handshake')));
    });
    return stream;
  }

  /** The first bytes of a TLS connection, whose server name is the one that was decided upon. */
  async #hello({ client }: Connection, rule: EgressRule, host: string): Promise<Buffer> {
    const first = await readPrefix(client, 2 * MAX_HELLO_BYTES, bytes => whole(readClientHello(bytes)));
    if (first === null) throw new Refused('not-tls', rule.id, 'the client ended before its ClientHello did');
    if (first.value.kind === 'refused') throw new Refused('not-tls', rule.id, first.value.why);
    if (first.value.serverName?.toLowerCase() !== host) throw new Refused('sni-differs', rule.id);
    return first.bytes;
  }

  async #socks(connection: Connection): Promise<void> {
    const { client } = connection;
    const asked = { host: '', port: 0 };
    try {
      const greeting = await readPrefix(client, MAX_SOCKS_BYTES, bytes => whole(readSocksGreeting(bytes)));
      if (greeting === null) return void client.destroy();
      if (greeting.value.kind === 'refused') return this.#endSocks(client, greeting.value.reply);
      client.unshift(greeting.bytes.subarray(greeting.value.length));
      client.write(SOCKS_GREETING);
      const request = await readPrefix(client, MAX_SOCKS_BYTES, bytes => whole(readSocksRequest(bytes)));
      if (request === null) return void client.destroy();
      if (request.value.kind === 'refused') {
        this.#accounts.refused(asked, 'bad-host', null);
        return this.#endSocks(client, request.value.reply);
      }
      const { name, port } = request.value.value;
      Object.assign(asked, { host: name, port });
      client.unshift(request.bytes.subarray(request.value.length));
      await this.#lead(connection, { host: name, port, via: 'socks' }, () => client.write(SOCKS_REPLY.connected));
    } catch (error) {
      const refused = error instanceof Refused ? error : new Refused('unreachable');
      const isOutage = refused.reason === 'unreachable' || refused.reason === 'unresolved';
      if (this.refuse(client, asked, refused) !== null)
        this.#endSocks(client, isOutage ? SOCKS_REPLY.unreachable : SOCKS_REPLY.refused);
    }
  }

  async #git(connection: Connection): Promise<void> {
    const { client } = connection;
    const asked: Asked & { entry?: string } = { host: '', port: 0 };
    try {
      const first = await readPrefix(client, 2 * MAX_GIT_BYTES, readGitRequest);
      if (first === null) return void client.destroy();
      if (first.value.kind === 'refused') throw new Refused('bad-request');
      const { request, length } = first.value;
      Object.assign(asked, { host: request.host, port: request.port, entry: repositoryEntry(request) });
      if (first.bytes.length > length) client.unshift(first.bytes.subarray(length));
      await this.#runGit(connection, request);
    } catch (error) {
      const refused = error instanceof Refused ? error : new Refused('unreachable');
      const text = client.destroyed ? null : this.refuse(client, asked, refused, asked.entry);
      if (text === null) return;
      client.write(gitFrame('E', text));
      endGit(client, GIT_REFUSED);
    }
  }

  async #runGit(connection: Connection, request: GitRequest): Promise<void> {
    const { client, signal } = connection;
    const { rule, host } = this.decide(request.host, request.port, 'git');
    const { login, command } = permitted(this.#options.decisions.decideRepository(rule, request));
    if (this.#gitRunning >= MAX_GIT) throw new Refused('limit', rule.id);
    this.#gitRunning += 1;
    const use = this.#use(connection, rule, host, request.port);
    try {
      const { upstream, ssh = {} } = this.#plan;
      // ssh connects by itself, and a company’s proxy is not asked for it.
      if (upstream && rule.private !== true) throw new Refused('unreachable', rule.id, 'there is an upstream proxy');
      const deadline = AbortSignal.timeout(this.limits.connectMs);
      const options = { ...this.#dialling(), signal: AbortSignal.any([deadline, signal]) };
      const [address = ''] = await checkedAddresses(rule, host, options);
      if (client.destroyed) return;
      use.row = this.#accounts.allowed({ host, port: request.port }, rule.id);
      connection.isOpen = true;
      const target = { host, port: request.port, address, login, command, protocol: request.protocol };
      await relayGit(client, target, ssh, direction => this.#take(use, direction));
    } finally {
      this.#gitRunning -= 1;
      this.#end(use);
    }
  }

  #endSocks(client: Duplex, reply: Buffer): void {
    client.end(reply);
    lingering(client);
  }

  /** Refuses where the client did not ask the proxy but believes to talk to the server. */
  #refuseUnasked(client: Duplex, asked: Asked, error: unknown): void {
    const refused = error instanceof Refused ? error : new Refused('unreachable');
    if (client.destroyed) return;
    if (this.refuse(client, asked, refused) === null) return;
    if (refused.reason !== 'sni-differs') return void client.destroy();
    client.end(UNRECOGNIZED_NAME);
    lingering(client);
  }

  async #dial(rule: EgressRule, host: string, port: number, signal: AbortSignal): Promise<Duplex> {
    return dial(rule, host, port, { ...this.#dialling(), signal });
  }

  #dialling(): Omit<DialOptions, 'signal'> {
    const { resolve = this.#resolve, decisions } = this.#options;
    return {
      resolve,
      own: () => this.#own(''),
      connectMs: this.limits.connectMs,
      upstream: this.#plan.upstream,
      check: (...asked) => void permitted(decisions.decideAddress(...asked)),
    };
  }

  #use(connection: Connection, rule: EgressRule, host: string, port: number): Use {
    const use = new Use(connection, rule, host, port);
    this.#uses.add(use);
    return use;
  }

  #end(use: Use): void {
    use.settle();
    this.#uses.delete(use);
  }

  #take(use: Use, direction: Direction): Take {
    return bytes => {
      use.count(direction, bytes);
      const wait = this.#meters[direction].take(bytes, this.limits);
      if (this.#isUsedUp()) this.#closeAll();
      return wait;
    };
  }

  #isUsedUp(): boolean {
    const { bytes } = this.limits;
    return bytes !== undefined && this.#meters.in.total + this.#meters.out.total > bytes;
  }

  #isStillAllowed({ rule, host, port }: Use): boolean {
    const via = rule.protocol === 'ssh' ? 'git' : rule.mode === 'base-url' ? rule.mode : 'connect';
    const decision = this.#options.decisions.decideHost(this.#plan, { host, port, via });
    return decision.allowed && JSON.stringify(decision.rule) === JSON.stringify(rule);
  }

  #closeLater(client: Duplex): void {
    // What follows on the connection may be refused as well, before it is closed.
    if (this.#delayed.has(client)) return;
    if (this.#delayed.size >= MAX_DELAYED || this.#isClosed) return void client.destroy();
    this.#delayed.add(client);
    const timer = setTimeout(() => client.destroy(), DELAY_MS);
    client.once('close', () => {
      clearTimeout(timer);
      this.#delayed.delete(client);
    });
  }

  #closeIdle(): void {
    const now = performance.now();
    const { connectMs, idleMs } = this.limits;
    for (const connection of this.#connections.values()) {
      // To connect takes its own time; the rest is for the client to say what it wants.
      const limit = connection.isOpen ? idleMs : 2 * connectMs;
      if (now - connection.active > limit) connection.close();
    }
  }

  #closeAll(): void {
    for (const connection of this.#connections.values()) connection.close();
    this.#http.closeIdle();
  }
}

/** A connection of the sandbox. */
class Connection {
  readonly client: Duplex;
  /** When its last byte passed. */
  active = performance.now();
  /** Whether it leads somewhere: until then it has less time. */
  isOpen = false;
  readonly #closing = new AbortController();

  constructor(client: Duplex) {
    this.client = client;
  }

  get signal(): AbortSignal {
    return this.#closing.signal;
  }

  close(): void {
    this.#closing.abort(ABORTED);
    this.client.destroy();
  }
}

/** A host that a connection leads to, or one request of it. */
class Use {
  readonly connection: Connection;
  readonly rule: EgressRule;
  readonly host: string;
  readonly port: number;
  /** Its row, once bytes pass. */
  row: Account | null = null;
  #since = performance.now();

  constructor(connection: Connection, rule: EgressRule, host: string, port: number) {
    this.connection = connection;
    this.rule = rule;
    this.host = host;
    this.port = port;
  }

  count(direction: Direction, bytes: number): void {
    this.connection.active = performance.now();
    if (!this.row) return;
    if (direction === 'in') this.row.bytesIn += bytes;
    else this.row.bytesOut += bytes;
  }

  /** Adds the time since the last call to the row. */
  settle(): void {
    const now = performance.now();
    if (this.row) this.row.ms += now - this.#since;
    this.#since = now;
  }
}

type Read<Step> = Exclude<Step, { readonly kind: 'more' }>;

function whole<Step extends { readonly kind: string }>(step: Step): Read<Step> | null {
  return isWhole(step) ? step : null;
}

function isWhole<Step extends { readonly kind: string }>(step: Step): step is Read<Step> {
  return step.kind !== 'more';
}

function permitted<Decision extends { readonly allowed: boolean }>(decision: Decision | Denied): Decision {
  if (isDenied(decision)) throw new Refused(decision.reason, decision.rule?.id ?? null);
  return decision;
}

function isDenied(decision: object): decision is Denied {
  return 'reason' in decision;
}

// The names that rules inspect, without the star of a suffix.
function inspectedNames({ rules }: EgressPlan): string[] {
  const inspected = rules.filter(
    ({ verdict, mode, protocol }) => verdict === 'allow' && mode === 'inspect' && protocol === 'tls',
  );
  return [...new Set(inspected.map(({ host }) => host.replace(/^\*\./, '')))].sort();
}

function authorityFor(plan: EgressPlan): SandboxAuthority | null {
  const names = inspectedNames(plan);
  return names.length > 0 ? new SandboxAuthority(names) : null;
}

// The entry of an allow-list that would allow a request, for a person to read; only what a repository can be called is shown.
function repositoryEntry({ login, host, port, path, service }: GitRequest): string {
  const at = `ssh:${login ?? 'git'}@${host}${port === 22 ? '' : `:${port}`}`;
  const repository = path.replace(/^\//, '').replace(/\.git$/, '') || '<repository>';
  return `${at}/${repository}${service === PUSH ? ':push' : ''}`;
}
