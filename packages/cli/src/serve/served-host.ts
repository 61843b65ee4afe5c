// Served host: the open host that a server lends to calls; never outdated, and never to more calls than its limit.

import { AsyncLocalStorage } from 'node:async_hooks';
import { createHash } from 'node:crypto';
import { lstat, open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Acode, AcodeOptions, LogFields, Logger, ScanJob } from '@acode/sandbox';
import * as z from 'zod';
import type { Lender, Loan } from '../lender.ts';
import type { ScansHere } from '../scans/hand-over.ts';
import { homeDirectory, userConfigFile } from './identity.ts';

/** As many commands as one host runs at once. A call beyond that has a host of its own, as it would without a server. */
const MAX_AT_ONCE = 16;
// A file that changes at every check is being written by a program; the call then has a host of its own.
const TRIES = 3;

interface Kept {
  readonly acode: Acode;
  /** What stood in the files when it was opened. */
  readonly standing: string;
  lent: number;
  /** Sandboxes that outlive the call that made them, and end with the host. */
  held: number;
}

/** The call that log lines are about. */
interface Caller {
  readonly logger: Logger | undefined;
  readonly continueScan: AcodeOptions['continueScan'] | undefined;
  ended: boolean;
}

/** How the host is opened. */
export interface ServedHostParts {
  readonly open: (options: AcodeOptions) => Promise<Acode>;
  readonly options: AcodeOptions;
  readonly scans: ScansHere;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** The host of a server. */
export class ServedHost implements Lender {
  readonly #parts: ServedHostParts;
  readonly #logs = new AsyncLocalStorage<Caller>();
  readonly #open = new Set<Kept>();
  readonly #closing = new Set<Promise<void>>();
  #kept: Kept | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(parts: ServedHostParts) {
    this.#parts = parts;
  }

  /** Opens the host, so that what is wrong with it is said before anybody is served. */
  async open(): Promise<void> {
    await this.#current();
  }

  async borrow(options: AcodeOptions): Promise<Loan | null> {
    if (!this.#isFor(options)) return null;
    const kept = await this.#current();
    if (kept === null || kept.lent >= MAX_AT_ONCE) return null;
    kept.lent++;
    return { during: use => this.#lend(kept, options, use) };
  }

  hold(acode: Acode, until: Promise<unknown>): void {
    const kept = [...this.#open].find(one => one.acode === acode);
    if (!kept) return;
    kept.held++;
    const release = (): void => {
      kept.held--;
      this.#closeUnused(kept);
    };
    until.then(release, release);
  }

  /** Whether a sandbox lives that ends with this server. */
  get isHeld(): boolean {
    return [...this.#open].some(({ held }) => held > 0);
  }

  scan(job: ScanJob, pid: number | null): boolean {
    return this.#parts.scans.take(job, pid);
  }

  /** Looks at the host as it is now; null where there is none to look at. */
  async look<Value>(use: (acode: Acode) => Promise<Value>): Promise<Value | null> {
    const kept = await this.#current();
    if (kept === null) return null;
    kept.lent++;
    return this.#lend(kept, {}, use);
  }

  /** Stops what runs and closes everything. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turn.catch(() => undefined);
    for (const kept of this.#open) this.#close(kept);
    await Promise.all(this.#closing);
  }

  #isFor({ workspace, configFile, engine }: AcodeOptions): boolean {
    const own = this.#parts.options;
    return workspace === own.workspace && configFile === own.configFile && engine?.socket === own.engine?.socket;
  }

  async #lend<Value>(
    kept: Kept,
    { logger, continueScan }: Pick<AcodeOptions, 'logger' | 'continueScan'>,
    use: (acode: Acode) => Promise<Value>,
  ): Promise<Value> {
    const caller: Caller = { logger, continueScan, ended: false };
    try {
      return await this.#logs.run(caller, () => use(kept.acode));
    } finally {
      caller.ended = true;
      kept.lent--;
      this.#closeUnused(kept);
    }
  }

  // One at a time: two calls that find the host outdated must not open two.
  #current(): Promise<Kept | null> {
    const next = this.#turn.then(
      () => this.#renewed(),
      () => this.#renewed(),
    );
    this.#turn = next;
    return next;
  }

  async #renewed(): Promise<Kept | null> {
    const { env, options, open: openHost } = this.#parts;
    for (let tries = 0; tries < TRIES && !this.#closed; tries++) {
      const standing = await standingOf(env, options.configFile);
      if (this.#kept?.standing === standing) return this.#kept;
      this.#retire();
      // From the call that owns the command: it knows the terminal to notify.
      const continueScan = (job: ScanJob): boolean =>
        this.#logs.getStore()?.continueScan?.(job) ?? this.scan(job, null);
      const acode = await openHost({ ...options, maxConcurrent: MAX_AT_ONCE, logger: this.#logger(), continueScan });
      this.#kept = { acode, standing, lent: 0, held: 0 };
      this.#open.add(this.#kept);
    }
    return null;
  }

  // Running commands keep the host they began with; new calls do not get it.
  #retire(): void {
    const kept = this.#kept;
    this.#kept = null;
    if (kept) this.#closeUnused(kept);
  }

  #closeUnused(kept: Kept): void {
    const isUsed = kept === this.#kept || kept.lent > 0 || kept.held > 0;
    if (!isUsed && this.#open.has(kept)) this.#close(kept);
  }

  #close(kept: Kept): void {
    this.#open.delete(kept);
    const closed: Promise<void> = kept.acode
      .close()
      .catch(() => undefined)
      .finally(() => this.#closing.delete(closed));
    this.#closing.add(closed);
  }

  // Each line is logged by the call it is about; a line about no call, or after its end, by the server.
  #logger(): Logger {
    const to = (level: keyof Logger) => (fields: LogFields, message: string) => {
      const caller = this.#logs.getStore();
      const logger = caller && !caller.ended ? caller.logger : this.#parts.options.logger;
      logger?.[level](fields, message);
    };
    return { debug: to('debug'), info: to('info'), warn: to('warn'), error: to('error') };
  }
}

const MACHINE_POLICY = '/etc/acode/policy.yml';
const TEAM_CONFIG = '/etc/acode/config.yml';
// Far more than the library reads of any of them; what is larger is refused by it, and differs here by its size.
const MAX_BYTES = 4 * 1024 ** 2;

const dockerConfig = z.looseObject({ currentContext: z.string().optional() });

/** A mark of everything that stands in those files, who owns them and who may write them. */
async function standingOf(
  env: Readonly<Record<string, string | undefined>>,
  configFile: string | undefined,
): Promise<string> {
  const docker = env['DOCKER_CONFIG'] || join(homeDirectory(env), '.docker');
  const paths = [
    MACHINE_POLICY,
    TEAM_CONFIG,
    userConfigFile(env),
    ...(configFile === undefined ? [] : [configFile]),
    join(docker, 'config.json'),
  ];
  const context = env['DOCKER_CONTEXT'] || (await contextIn(join(docker, 'config.json')));
  if (context !== null) paths.push(join(docker, 'contexts', 'meta', digest(context), 'meta.json'));
  return digest(JSON.stringify([await owner(dirname(MACHINE_POLICY)), ...(await Promise.all(paths.map(markOf)))]));
}

// The content is read, not only its times: two changes within one tick of the kernel’s clock have the same times.
async function markOf(path: string): Promise<unknown> {
  try {
    await using file = await open(path);
    const { uid, mode, size } = await file.stat();
    const { bytesRead, buffer } = await file.read(
      Buffer.alloc(Math.min(size, MAX_BYTES)),
      0,
      Math.min(size, MAX_BYTES),
      0,
    );
    return [uid, mode, size, digest(buffer.subarray(0, bytesRead))];
  } catch (error) {
    return error instanceof Error && 'code' in error ? error.code : 'unreadable';
  }
}

async function owner(path: string): Promise<unknown> {
  return lstat(path).then(
    ({ uid, mode }) => [uid, mode],
    () => null,
  );
}

async function contextIn(path: string): Promise<string | null> {
  try {
    await using file = await open(path);
    return dockerConfig.parse(JSON.parse(await file.readFile('utf8'))).currentContext ?? null;
  } catch {
    return null;
  }
}

function digest(data: string | Uint8Array): string {
  return createHash('sha256').update(data).digest('hex');
}
