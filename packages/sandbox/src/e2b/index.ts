// `@acode/sandbox/e2b`: sandboxes of this host with the shape of E2B’s JavaScript SDK, so that moving is an import swap.

import { Acode } from '../host/acode.ts';
import { AcodeError } from '../contract/errors.ts';
import type { SandboxInfo as Listed } from '../contract/host.ts';
import type { PolicyFields } from '../contract/policy.ts';
import type { CreateRequest } from '../contract/sandbox.ts';
import { Commands, Pty } from './commands.ts';
import { InvalidArgumentError, SandboxNotFoundError, TemplateError, translated, translating } from './errors.ts';
import { Filesystem } from './filesystem.ts';
import { REQUEST, checkKnown, checkLife, refuse, signalOf } from './options.ts';
import type { RequestOptions } from './options.ts';
import type { AcodeOptions } from '../host/options.ts';
import type { Sandbox as Inner } from '../persistent/sandbox.ts';

export { CommandExitError, CommandHandle } from './command-handle.ts';
export type { CommandResult } from './command-handle.ts';
export { Commands, Pty } from './commands.ts';
export type { CommandStartOpts, ProcessInfo, PtyCreateOpts } from './commands.ts';
export {
  AuthenticationError,
  FileNotFoundError,
  InvalidArgumentError,
  NotEnoughSpaceError,
  NotFoundError,
  RateLimitError,
  SandboxError,
  SandboxNotFoundError,
  TemplateError,
  TimeoutError,
} from './errors.ts';
export { FileType, Filesystem, FilesystemEventType } from './filesystem.ts';
export type {
  EntryInfo,
  FileData,
  FilesystemEvent,
  FilesystemRequestOpts,
  WatchHandle,
  WatchOpts,
  WriteEntry,
  WriteInfo,
} from './filesystem.ts';
export type { RequestOptions } from './options.ts';

/** Options of calls to the host. Keys, domains and the like are for a hosted service; acode has none and ignores them. */
export interface SandboxApiOpts extends RequestOptions {
  /** Ignored: there is no service. */
  apiKey?: string;
  /** Ignored: there is no service. */
  accessToken?: string;
  /** Ignored: there is no service. */
  domain?: string;
  /** Ignored: there is no service. */
  debug?: boolean;
  /** Ignored: there is no service. */
  headers?: Record<string, string>;
  /** How the host is opened: workspace, engine, configuration. Not known to E2B. */
  acode?: AcodeOptions;
}

/** What a sandbox is to be. */
export interface SandboxOpts extends SandboxApiOpts {
  /** Variables of every command. */
  envs?: Record<string, string>;
  /** How long it may exist; five minutes by default, a day at most. */
  timeoutMs?: number;
  /** False, which is what it is; true is refused unless your configuration allows a network. */
  allowInternetAccess?: boolean;
  /** True, which is what it is. */
  secure?: boolean;
  /** Ports inside that `getHost` is to be asked about. Not known to E2B. */
  ports?: readonly number[];
  /**
   * Its files are a copy-on-write fork of the workspace: `true` for the current one, `'new'` for a fresh one, or a name. Nothing here
   * applies or discards it: `acode fork` does. Not known to E2B.
   */
  fork?: boolean | string;
  /** Refused: sandboxes have no words of their users on them. */
  metadata?: Record<string, string>;
  /** Refused. */
  network?: unknown;
  /** Refused. */
  mcp?: unknown;
  /** Refused: a sandbox is running or gone. */
  autoPause?: boolean;
}

/** How a sandbox is connected to. */
export interface SandboxConnectOpts extends SandboxApiOpts {
  /** Lets it exist for so much longer, where that is later than its end. */
  timeoutMs?: number;
  /** Ports inside that `getHost` is to be asked about. Not known to E2B. */
  ports?: readonly number[];
}

/** A sandbox as a list shows it. */
export interface SandboxInfo {
  /** The sandbox’s UUID. */
  sandboxId: string;
  /** Its image. */
  templateId: string;
  /** The container’s name. */
  name?: string;
  /** Always empty. */
  metadata: Record<string, string>;
  /** When it was created. */
  startedAt: Date;
  /** When it expires. */
  endAt: Date;
  /** Always `running`: a sandbox is never paused. */
  state: 'running' | 'paused';
  /** CPUs; 0 in a list, where it is not asked. */
  cpuCount: number;
  /** Memory in mebibytes; 0 in a list, where it is not asked. */
  memoryMB: number;
}

/** Which sandboxes are listed. */
export interface SandboxListOpts extends SandboxApiOpts {
  /** A filter. */
  query?: {
    /** Refused: sandboxes have no metadata. */
    metadata?: Record<string, string>;
    /** Only sandboxes in one of these states; all are `running`. */
    state?: ('running' | 'paused')[];
  };
  /** How many there are on a page; all on one by default. */
  limit?: number;
}

/** What there is of a host behind a sandbox. */
export type HostBehind = Pick<Acode, 'list' | 'inspect' | 'close'>;

const STANDARD_MS = 300_000;
const STANDARD_TEMPLATE = 'base';
const MEBIBYTE = 1024 ** 2;
const API = [...REQUEST, 'apiKey', 'accessToken', 'domain', 'debug', 'headers', 'acode'];
const CONNECTING = [...API, 'timeoutMs', 'ports'];
const LISTING = [...API, 'query', 'limit'];
// Those that are refused with a value are known without one.
const CREATING = [
  ...CONNECTING,
  'envs',
  'fork',
  'allowInternetAccess',
  'secure',
  'metadata',
  'network',
  'mcp',
  'autoPause',
];

/**
 * A sandbox of this host. It expires at its time, even if this process has ended by then.
 *
 * @example
 * import { Sandbox } from '@acode/sandbox/e2b';
 * const sandbox = await Sandbox.create('node:20-alpine');
 * await sandbox.files.write('hello.mjs', 'console.log(1 + 1)');
 * const { stdout } = await sandbox.commands.run('node hello.mjs');
 * await sandbox.kill();
 */
export class Sandbox implements AsyncDisposable {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** Runs commands in it. */
  readonly commands: Commands;
  /** Its files. */
  readonly files: Filesystem;
  /** Its terminals. */
  readonly pty: Pty;
  readonly #inner: Inner;
  readonly #host: HostBehind;
  readonly #hosts = new Map<number, string>();
  #isOver = false;

  /** Made by `Sandbox.create` and `Sandbox.connect`. */
  constructor(inner: Inner, host: HostBehind) {
    this.#inner = inner;
    this.#host = host;
    this.sandboxId = inner.id;
    this.commands = new Commands(() => this.#there().commands);
    this.files = new Filesystem(() => this.#there().files);
    this.pty = new Pty(() => this.#there().commands);
  }

  /** Creates a sandbox, of the standard image (`base`) or of one that is named where E2B has a template. */
  static create(options?: SandboxOpts): Promise<Sandbox>;
  static create(template: string, options?: SandboxOpts): Promise<Sandbox>;
  static async create(first: string | SandboxOpts = {}, second: SandboxOpts = {}): Promise<Sandbox> {
    const [template, options] = typeof first === 'string' ? [first, second] : [STANDARD_TEMPLATE, first];
    checkKnown(options, CREATING);
    const request = requestOf(template, options);
    const sandbox = await open(options, host => host.create({ ...request, ...signalOf(options) }));
    try {
      return await sandbox.#withPorts(options.ports);
    } catch (error) {
      await sandbox.kill();
      throw error;
    }
  }

  /** A sandbox by its id, made by whatever process of this user on this host. */
  static async connect(sandboxId: string, options: SandboxConnectOpts = {}): Promise<Sandbox> {
    checkKnown(options, CONNECTING);
    const timeoutMs = checkLife(options.timeoutMs ?? STANDARD_MS);
    const sandbox = await open(options, host => host.connect(sandboxId));
    try {
      if (sandbox.#inner.expiresAt.getTime() < Date.now() + timeoutMs) await sandbox.setTimeout(timeoutMs);
      return await sandbox.#withPorts(options.ports);
    } catch (error) {
      await sandbox.close();
      throw error;
    }
  }

  /** Ends a sandbox by its id; false where there is none. */
  static async kill(sandboxId: string, options?: SandboxApiOpts): Promise<boolean> {
    checkKnown(options, API);
    const host = await translating(() => Acode.open(options?.acode));
    try {
      // Not by connecting: one that cannot be used any more can still be ended.
      await host.kill(sandboxId);
      return true;
    } catch (error) {
      if (error instanceof AcodeError && (error.is('ACODE-CTN-012') || error.is('ACODE-SBX-025'))) return false;
      return await translating(() => Promise.reject(error));
    } finally {
      await host.close();
    }
  }

  /** What there is to know of a sandbox, by its id. */
  static async getInfo(sandboxId: string, options?: SandboxApiOpts): Promise<SandboxInfo> {
    checkKnown(options, API);
    await using sandbox = await open(options, host => host.connect(sandboxId));
    return await sandbox.getInfo();
  }

  /** Lets a sandbox exist for so much longer from now on, by its id. */
  static async setTimeout(sandboxId: string, timeoutMs: number, options?: SandboxApiOpts): Promise<void> {
    checkKnown(options, API);
    checkLife(timeoutMs);
    await using sandbox = await open(options, host => host.connect(sandboxId));
    await sandbox.setTimeout(timeoutMs);
  }

  /** The sandboxes of this user on this host that can be connected to. */
  static list(options?: SandboxListOpts): SandboxPaginator {
    return new SandboxPaginator(options);
  }

  /**
   * Lets it exist for so much longer, or shorter, from now on. More than a day is refused; what would end later than a day after its
   * creation ends then, as `getInfo` tells.
   */
  async setTimeout(timeoutMs: number, options?: RequestOptions): Promise<void> {
    checkKnown(options, REQUEST);
    checkLife(timeoutMs);
    await translating(async () => this.#there().extend(timeoutMs));
  }

  /** Whether it is still there. */
  async isRunning(options?: RequestOptions): Promise<boolean> {
    checkKnown(options, REQUEST);
    const found = await translating(() => this.#host.list()).catch(() => []);
    return found.some(({ sandboxId, state }) => sandboxId === this.sandboxId && state === 'running');
  }

  /** What there is to know of it. */
  async getInfo(options?: RequestOptions): Promise<SandboxInfo> {
    checkKnown(options, REQUEST);
    const { limits, ...listed } = await translating(() => this.#host.inspect(this.#inner.containerId));
    const endAt = this.#inner.expiresAt;
    return { ...infoOf(listed, endAt), cpuCount: limits.cpus, memoryMB: Math.floor(limits.memoryBytes / MEBIBYTE) };
  }

  /** Leads a port of this host’s loopback to one inside, so that `getHost` knows it; whatever listens there may come later. */
  async forward(port: number): Promise<string> {
    const known = this.#hosts.get(port);
    if (known !== undefined) return known;
    const forwarded = await translating(async () => this.#there().ports.forward(port));
    const host = `127.0.0.1:${forwarded.port}`;
    this.#hosts.set(port, host);
    return host;
  }

  /** Where a port inside is reached, without encryption: one named in `ports` at creation, or forwarded since. */
  getHost(port: number): string {
    const host = this.#hosts.get(port);
    if (host !== undefined) return host;
    throw new InvalidArgumentError(
      `Port ${port} is not forwarded: name it when the sandbox is created (\`ports: [${port}]\`), or call \`await sandbox.forward(${port})\` first.`,
    );
  }

  /** Ends it. */
  async kill(options?: RequestOptions): Promise<boolean> {
    checkKnown(options, REQUEST);
    const wasOver = this.#isOver;
    this.#isOver = true;
    await translating(() => this.#inner.kill());
    await this.#host.close();
    return !wasOver;
  }

  /** Disconnects without ending it: it keeps running until it expires, and can be connected to. */
  async close(): Promise<void> {
    this.#isOver = true;
    await this.#inner.leave();
    await this.#host.close();
  }

  /** Refused: a sandbox is running or gone. */
  async pause(): Promise<never> {
    throw new InvalidArgumentError(
      'pause is not supported: a sandbox of acode runs until it is removed. Files in the workspace persist; create another sandbox later.',
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #there(): Inner {
    if (this.#isOver) throw new SandboxNotFoundError(`The sandbox ${this.sandboxId} was removed or disconnected.`);
    return this.#inner;
  }

  async #withPorts(ports: readonly number[] = []): Promise<this> {
    for (const port of ports) await this.forward(port);
    return this;
  }
}

/** Pages of a list: one, unless `limit` says how many there are on each. */
export class SandboxPaginator {
  readonly #options: SandboxListOpts;
  readonly #limit: number;
  #rest: SandboxInfo[] | null = null;

  constructor(options: SandboxListOpts = {}) {
    checkKnown(options, LISTING);
    checkKnown(options.query, ['state', 'metadata'], 'query.');
    refuse({ 'query.metadata': options.query?.metadata });
    const { limit = Infinity } = options;
    if (limit !== Infinity && (!Number.isInteger(limit) || limit < 1))
      throw new InvalidArgumentError('limit: must be 1 or more.');
    this.#options = options;
    this.#limit = limit;
  }

  /** Whether there is another page. */
  get hasNext(): boolean {
    return this.#rest === null || this.#rest.length > 0;
  }

  /** The next page. */
  async nextItems(): Promise<SandboxInfo[]> {
    if (!this.hasNext) throw new InvalidArgumentError('There are no more pages.');
    this.#rest ??= await translating(() => this.#all());
    return this.#rest.splice(0, this.#limit);
  }

  async #all(): Promise<SandboxInfo[]> {
    const { acode, query } = this.#options;
    if (query?.state && !query.state.includes('running')) return [];
    await using host = await Acode.open(acode);
    const uid = String(process.getuid?.() ?? '');
    const mine = (await host.list()).filter(
      ({ labels, state }) => labels['acode.keep'] === 'true' && labels['acode.uid'] === uid && state === 'running',
    );
    const found = await Promise.all(mine.map(one => connectable(host, one)));
    return found.filter(one => one !== null);
  }
}

// Whether it can be connected to, only connecting to it can tell: what it was made by must still be what it would be made by.
async function connectable(host: Acode, one: Listed): Promise<SandboxInfo | null> {
  try {
    await using sandbox = await host.connect(one.sandboxId);
    return { ...infoOf(one, sandbox.expiresAt), cpuCount: 0, memoryMB: 0 };
  } catch (error) {
    if (translated(error) instanceof SandboxNotFoundError) return null;
    throw error;
  }
}

async function open(options: SandboxApiOpts = {}, get: (host: Acode) => Promise<Inner>): Promise<Sandbox> {
  const host = await translating(() => Acode.open(options.acode));
  try {
    return new Sandbox(await translating(() => get(host)), host);
  } catch (error) {
    await host.close();
    throw error;
  }
}

function requestOf(template: string, options: SandboxOpts): CreateRequest {
  const { envs, timeoutMs = STANDARD_MS, allowInternetAccess, metadata, network, mcp, autoPause, secure } = options;
  refuse({ metadata, network, mcp, autoPause: autoPause === true ? true : undefined });
  if (secure === false) throw new InvalidArgumentError('secure: false is refused: only this user can reach a sandbox.');
  if (allowInternetAccess === true)
    throw new InvalidArgumentError(
      'allowInternetAccess: true is refused: a sandbox here outlives its session, and the network bridge does not. Name a network of the engine in your configuration (sandbox.network.mode).',
    );
  const image = imageOf(template);
  return {
    keep: true,
    expiresInMs: checkLife(timeoutMs),
    ...(envs ? { env: envs } : {}),
    // Programs written for E2B name files by their paths, and E2B’s disk is here.
    policy: { workspacePath: '/home/user', ...forkOf(options), ...(image === null ? {} : { image }) },
  };
}

function forkOf({ fork }: SandboxOpts): Pick<PolicyFields, 'workspace' | 'fork'> {
  if (fork === undefined || fork === false) return {};
  return { workspace: 'fork', ...(fork === true ? {} : { fork }) };
}

// A template of E2B’s has a plain name; so has an image, which is therefore asked for with its tag.
function imageOf(template: string): string | null {
  if (template === STANDARD_TEMPLATE) return null;
  if (/[:/@]/.test(template)) return template;
  throw new TemplateError(
    `${template} is the name of a template of E2B’s: name an image in its place, with its tag, such as node:20-alpine; docs/e2b.md says how an image is made of a project.`,
  );
}

function infoOf(
  { sandboxId, image, name, createdAt }: Listed,
  endAt: Date,
): Omit<SandboxInfo, 'cpuCount' | 'memoryMB'> {
  return { sandboxId, templateId: image, name, metadata: {}, startedAt: new Date(createdAt), endAt, state: 'running' };
}
