// Sandboxes of the E2B server: each is a persistent sandbox of this process with a fork of an empty directory as its files. They end
// with the process, whatever ends it.

import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { policyFrom } from '@acode/sandbox';
import type { Acode, PolicyFields, Sandbox } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { E2bTenant } from './keys.ts';
import { Processes } from './processes.ts';
import { invalid } from './wire.ts';

/** Version of E2B’s own server in a sandbox whose calls these are: newer ones have calls that this one lacks. */
export const ENVD_VERSION = '0.6.1';
/** Where the files of a sandbox are. */
export const HOME = '/home/user';
const DEFAULT_S = 300;
const DAY_S = 86_400;
const MAX_METADATA_BYTES = 16 * 1024;
const MEBIBYTE = 1024 ** 2;
const CREATE_MS = 300_000;
const CALL_MS = 60_000;
const DISCARD_TRIES = 10;
const DISCARD_PAUSE_MS = 1000;

/** What sandboxes are made of. */
export interface SandboxesOptions {
  /** The host that has them. */
  readonly acode: Pick<Acode, 'create' | 'inspect' | 'forks'>;
  /** Images by the names of templates; `base` is the one for who names none. */
  readonly templates: ReadonlyMap<string, string>;
  /** How many there may be at once, of all tenants. */
  readonly sandboxes: number;
  /** Level, limits and network of each. */
  readonly policy: PolicyFields;
  /** Called with what went wrong where no caller waits. */
  readonly onFault: (what: string, error: unknown) => void;
}

/** What a caller asks for. */
export interface NewSandbox {
  readonly template: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string>>;
  readonly timeoutS: number;
}

/** One sandbox. */
export interface E2bSandbox {
  readonly id: string;
  readonly tenant: string;
  readonly template: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly startedAt: Date;
  /** The secret for its commands and files. */
  readonly token: string;
  readonly inner: Sandbox;
  readonly processes: Processes;
  readonly cpus: number;
  readonly memoryMb: number;
  /** Calls under way. */
  calls: number;
}

interface Entry extends E2bSandbox {
  readonly fork: string;
}

/** All sandboxes of a server. */
export class E2bSandboxes {
  readonly #options: SandboxesOptions;
  readonly #entries = new Map<string, Entry>();
  /** Those that are being created, by tenant. */
  readonly #starting = new Map<string, number>();
  readonly #ending = new Set<Promise<void>>();
  readonly #shells = new Map<string, Promise<boolean>>();

  constructor(options: SandboxesOptions) {
    this.#options = options;
  }

  /** Creates one; refuses when the tenant or the server has as many as it may. */
  async create(tenant: E2bTenant, asked: NewSandbox, signal: AbortSignal): Promise<E2bSandbox> {
    const image = this.#options.templates.get(asked.template);
    if (image === undefined) throw this.#noTemplate(asked.template);
    if (Buffer.byteLength(JSON.stringify(asked.metadata)) > MAX_METADATA_BYTES)
      throw invalid('metadata', `has more than ${MAX_METADATA_BYTES} bytes`);
    this.#reserve(tenant);
    try {
      return await this.#create(tenant, asked, image, AbortSignal.any([signal, AbortSignal.timeout(CREATE_MS)]));
    } finally {
      this.#starting.set(tenant.name, (this.#starting.get(tenant.name) ?? 1) - 1);
    }
  }

  /** The sandboxes of a tenant, the newest first. */
  of(tenant: E2bTenant): E2bSandbox[] {
    return [...this.#entries.values()]
      .filter(one => one.tenant === tenant.name)
      .sort((one, other) => other.startedAt.getTime() - one.startedAt.getTime() || (one.id < other.id ? -1 : 1));
  }

  /** A sandbox of this tenant. Another tenant’s is as unknown as none. */
  get(tenant: E2bTenant, id: string): E2bSandbox {
    const found = this.#entries.get(id);
    if (found?.tenant !== tenant.name) throw FLEET_ERRORS.create('ACODE-FLT-042', { sandbox: shown(id) });
    return found;
  }

  /** The sandbox whose token this is; null if there is no such sandbox. Another token is refused. */
  open(id: string, token: string): E2bSandbox | null {
    const found = this.#entries.get(id);
    if (!found) return null;
    if (!isSame(token, found.token))
      throw FLEET_ERRORS.create('ACODE-FLT-041', {
        what: 'access token of this sandbox',
        remedy: 'Take the sandbox from `Sandbox.create` or `Sandbox.connect`, which receive its token.',
      });
    return found;
  }

  /** The sandbox that a link to a file was signed for; the link names none, its signature does. */
  openSigned(
    link: { readonly path: string; readonly operation: string; readonly user: string },
    given: {
      readonly signature: string;
      readonly expiration: string | null;
    },
  ): E2bSandbox {
    const { path, operation, user } = link;
    const until = given.expiration === null ? '' : `:${given.expiration}`;
    const found = [...this.#entries.values()].find(({ token }) => {
      const hash = createHash('sha256').update(`${path}:${operation}:${user}:${token}${until}`).digest('base64');
      return isSame(given.signature, `v1_${hash.replace(/=+$/, '')}`);
    });
    const isOver = given.expiration !== null && !(Number(given.expiration) * 1000 > Date.now());
    if (found && !isOver) return found;
    throw FLEET_ERRORS.create('ACODE-FLT-041', {
      what: 'signature of this link',
      remedy: 'Make a new link with `sandbox.downloadUrl` or `sandbox.uploadUrl`.',
    });
  }

  /** Lets a sandbox exist for so many seconds from now. */
  async extend({ inner }: E2bSandbox, timeoutS: number): Promise<void> {
    await inner.extend(checkedTimeout(timeoutS) * 1000);
  }

  /** Ends a sandbox, and removes its files. */
  async kill({ id }: E2bSandbox): Promise<void> {
    const entry = this.#entries.get(id);
    if (entry) await this.#end(entry);
  }

  /** Ends all of them. */
  async close(): Promise<void> {
    for (const entry of this.#entries.values()) void this.#end(entry).catch(() => undefined);
    await Promise.allSettled(this.#ending);
  }

  #noTemplate(template: string): Error {
    const names = [...this.#options.templates.keys()].join(', ');
    return invalid(
      'templateID',
      `names the template ${shown(template)}, which this server does not have`,
      `It has: ${names}. The operator adds others with \`--image <name>=<image>\`.`,
    );
  }

  #reserve({ name, sandboxes }: E2bTenant): void {
    const starting = this.#starting.get(name) ?? 0;
    const own = [...this.#entries.values()].filter(({ tenant }) => tenant === name).length + starting;
    const all = this.#entries.size + [...this.#starting.values()].reduce((sum, one) => sum + one, 0);
    if (own >= sandboxes || all >= this.#options.sandboxes)
      throw FLEET_ERRORS.create('ACODE-FLT-045', {
        what: own >= sandboxes ? 'sandboxes of this tenant' : 'sandboxes of this server',
        limit: own >= sandboxes ? sandboxes : this.#options.sandboxes,
        remedy: 'Kill one (`Sandbox.kill`), or wait until one expires.',
      });
    this.#starting.set(name, starting + 1);
  }

  async #create(tenant: E2bTenant, asked: NewSandbox, image: string, signal: AbortSignal): Promise<E2bSandbox> {
    const { acode, policy } = this.#options;
    const fork = `e2b-${randomBytes(8).toString('hex')}`;
    const startedAt = new Date();
    const inner = await acode.create({
      policy: policyFrom({ ...policy, image, fork, workspacePath: HOME }),
      env: { HOME, E2B_SANDBOX: 'true', ...asked.env },
      expiresInMs: checkedTimeout(asked.timeoutS) * 1000,
      signal,
    });
    try {
      const { limits } = await acode.inspect(inner.containerId);
      const entry: Entry = {
        id: inner.id,
        tenant: tenant.name,
        template: asked.template,
        metadata: asked.metadata,
        startedAt,
        token: randomBytes(32).toString('hex'),
        inner,
        processes: new Processes(inner, () => this.#hasBash(inner)),
        cpus: limits.cpus,
        memoryMb: Math.floor(limits.memoryBytes / MEBIBYTE),
        calls: 0,
        fork,
      };
      this.#entries.set(entry.id, entry);
      // It expires, or its first process is ended from inside.
      void inner.ended.then(() => this.#end(entry)).catch(() => undefined);
      return entry;
    } catch (error) {
      await inner.kill();
      throw error;
    }
  }

  // E2B’s programs ask for bash; an image without it has another shell.
  #hasBash(inner: Sandbox): Promise<boolean> {
    const { digest } = inner.image;
    const known = this.#shells.get(digest);
    if (known) return known;
    const found = inner
      .run(['/bin/sh', '-c', 'test -x /bin/bash'], { signal: AbortSignal.timeout(CALL_MS) })
      .then(({ exitCode }) => exitCode === 0);
    this.#shells.set(digest, found);
    found.catch(() => this.#shells.delete(digest));
    return found;
  }

  #end(entry: Entry): Promise<void> {
    if (!this.#entries.delete(entry.id)) return entry.inner.kill();
    const ending = this.#endOnce(entry);
    this.#ending.add(ending);
    const forget = (): void => void this.#ending.delete(ending);
    ending.then(forget, forget);
    return ending;
  }

  async #endOnce({ inner, fork, id }: Entry): Promise<void> {
    try {
      await inner.kill();
    } finally {
      await discarded(this.#options.acode, fork).catch((error: unknown) =>
        this.#options.onFault(`the files of the sandbox ${id} could not be removed`, error),
      );
    }
  }
}

/** Removes a fork, which may be busy for a moment after its sandbox has ended. One without changes is gone by then. */
export async function discarded({ forks }: Pick<Acode, 'forks'>, fork: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      const found = (await forks.list()).find(({ name, id }) => name === fork || id === fork);
      if (found) await forks.discard(found.id);
      return;
    } catch (error) {
      if (tries === DISCARD_TRIES) throw error;
      await new Promise(resolve => void setTimeout(resolve, DISCARD_PAUSE_MS));
    }
  }
}

/** The time that a sandbox may exist, in seconds. */
export function checkedTimeout(timeoutS: number | undefined): number {
  if (timeoutS === undefined) return DEFAULT_S;
  if (Number.isFinite(timeoutS) && timeoutS > 0 && timeoutS <= DAY_S) return timeoutS;
  throw invalid('timeout', 'is not 1 second to a day (86,400 seconds)', 'Give timeoutMs of at most 86400000.');
}

function isSame(given: string, expected: string): boolean {
  const [one, other] = [given, expected].map(text => createHash('sha256').update(text).digest());
  return one !== undefined && other !== undefined && timingSafeEqual(one, other);
}

// Part of a message: what callers send is shortened.
function shown(text: string): string {
  return JSON.stringify(text.slice(0, 100));
}
