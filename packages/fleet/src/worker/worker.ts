// Worker: takes tasks from a pool, claims them, runs each in a sandbox of its tenant, and writes what came of it.

import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AcodeError } from '@acode/sandbox';
import type { ErrorJson, Logger, RunResult } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { Delivery, FleetEngine } from '../engine/engine.ts';
import { paused, reasonOf } from '../engine/retry.ts';
import type { Outcome } from '../tasks/outcome.ts';
import { hashOf, makeKeys, publicKeyFrom, signed } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { ATTEMPTS } from '../tasks/spec.ts';
import type { SandboxSpec, TaskSpec } from '../tasks/spec.ts';
import type { FinalState } from '../tasks/state.ts';
import { FleetTasks } from '../tasks/tasks.ts';
import type { Claim } from '../tasks/tasks.ts';
import { admittedPolicy, admittedSpec, outputBytesOf } from './admission.ts';
import type { WorkerFile } from './file.ts';
import { GrantedTasks } from './granted.ts';
import { hostSandbox } from './hosted.ts';
import type { HostedEnd, HostedLimit } from './hosted.ts';
import { Journal } from './journal.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import type { LeaseTimes } from './lease-keeper.ts';
import { LogWriter } from './log-writer.ts';
import type { WorkerEvent } from './metrics.ts';
import type { HostOutcome } from './messages.ts';
import { fitted, fittedError, isHostTrouble, stateOf } from './outcome-of.ts';
import { TenantProcess } from './tenant.ts';
import type { TenantRunner } from './tenant.ts';

const WAIT_MS = 3000;
const BUSY_MS = 3000;
const AGAIN_MS = 1000;
const LOOK_MS = 500;
const WRITE_MS = 30_000;
const ENDED = 'ACODE-SBX-025';
const LEFT: HostedLimit = { state: 'lost', reason: 'its worker left the fleet' };

/** Options of a worker. */
export interface WorkerOptions {
  /** Its file. */
  readonly file: WorkerFile;
  /** The engine. The worker closes it. */
  readonly engine: FleetEngine;
  /** A directory of its own: keys, journal, and what tenants have. */
  readonly root: string;
  /** A directory for sockets, whose path is short. */
  readonly runtime: string;
  /** Receives log lines; none by default. */
  readonly logger?: Logger;
  /** The operator asked this worker to leave (`acode fleet drain`): it is to be closed. */
  readonly onDrain?: () => void;
  /** Told what happens to its tasks, for figures; must return at once. */
  readonly observe?: (event: WorkerEvent) => void;
  /** The times of its lease, for tests. */
  readonly lease?: Partial<LeaseTimes>;
  /** What runs the tasks of a tenant; a process with sandboxes by default. A simulation brings its own. */
  readonly runner?: (tenant: string) => TenantRunner;
}

interface Running {
  readonly claim: Claim;
  /** The id that this worker had when it claimed: after a lost lease it has another. */
  readonly worker: string;
  readonly cancel: AbortController;
  why: 'cancelled' | 'given-back' | 'claim-lost' | null;
}

/** What an outcome says besides whose it is. */
type Told = Partial<Pick<Outcome, 'result' | 'error' | 'files'>>;

/** One worker of a pool. */
export class Worker {
  readonly #options: WorkerOptions;
  readonly #file: WorkerFile;
  readonly #engine: FleetEngine;
  readonly #tasks: FleetTasks;
  readonly #journal: Journal;
  readonly #keys: KeyPair;
  readonly #tenants = new Map<string, TenantRunner>();
  readonly #running = new Map<string, Running>();
  readonly #work = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #isDraining = false;
  #id = '';
  #lease: LeaseKeeper | null = null;
  #listening: AsyncDisposable | null = null;
  #loop: Promise<void> = Promise.resolve();
  #granted: GrantedTasks | null = null;

  private constructor(options: WorkerOptions) {
    this.#options = options;
    this.#file = options.file;
    this.#engine = options.engine;
    this.#tasks = new FleetTasks(options.engine);
    this.#journal = new Journal(options.root);
    this.#keys = keysIn(options.root);
  }

  /** Starts a worker. It runs until it is closed. */
  static async start(options: WorkerOptions): Promise<Worker> {
    // Here, and not only in the process of the first tenant: a worker that can run nothing takes nothing.
    if (process.getuid?.() === 0) throw new AcodeError('ACODE-SBX-011', { uid: 0 });
    const worker = new Worker(options);
    await worker.#join();
    worker.#loop = worker.#go();
    return worker;
  }

  /** The key with which it signs results, to be registered. */
  get publicKey(): string {
    return this.#keys.publicKey;
  }

  /** Its id in leases and states: another one after each start, and after a lost lease. */
  get id(): string {
    return this.#id;
  }

  /** How many tasks it has. */
  get busy(): number {
    return this.#running.size;
  }

  /** Takes no more tasks, lets those that run end for a while, gives the others back, and leaves the fleet. */
  async close(drainMs = this.#file.drainMs): Promise<void> {
    this.#closing.abort();
    await this.#loop;
    this.#granted?.offer();
    const drained = Promise.allSettled(this.#work);
    const enough = new AbortController();
    await Promise.race([drained, paused(drainMs, enough.signal)]);
    enough.abort();
    for (const one of this.#running.values()) stop(one, 'given-back');
    await drained;
    await Promise.all([...this.#tenants.values()].map(tenant => tenant.end()));
    this.#granted?.stop();
    await this.#listening?.[Symbol.asyncDispose]();
    await this.#lease?.stop(true);
    await this.#engine.close();
  }

  async #join(): Promise<void> {
    this.#id = `${this.#file.name.replaceAll(/[^A-Za-z0-9-]/g, '-').slice(0, 40)}_${randomBytes(6).toString('hex')}`;
    const lease = new LeaseKeeper(
      this.#engine,
      this.#id,
      {
        body: () => this.#body(),
        renewed: safeMs => {
          for (const tenant of this.#tenants.values()) tenant.alive(safeMs);
        },
        lost: () => void this.#leaseLost(),
      },
      this.#options.lease,
    );
    await lease.begin();
    const notices = await this.#engine.listen({ worker: this.#id }, text => this.#noticed(text));
    const control = await this.#engine.listen({ control: this.#id }, text => this.#controlled(text));
    this.#listening = {
      [Symbol.asyncDispose]: async () => {
        await notices[Symbol.asyncDispose]();
        await control[Symbol.asyncDispose]();
      },
    };
    this.#lease = lease;
    if (this.#file.granted) this.#granted = this.#taking(lease);
  }

  #taking(lease: LeaseKeeper): GrantedTasks {
    const { pool, slots } = this.#file;
    return new GrantedTasks({
      engine: this.#engine,
      worker: this.#id,
      pool,
      slots: () => (lease.isSafe && !this.#closing.signal.aborted ? slots : 0),
      hasSlot: tenant => this.#hasSlot(tenant),
      hot: () => [...this.#tenants.keys()],
      perform: delivery => this.#begun(delivery),
    });
  }

  #body(): string {
    const { name, pool, slots, level, granted } = this.#file;
    const tasks = [...this.#running.values()].map(({ claim: { tenant, id, attempt } }) => ({ tenant, id, attempt }));
    const draining = this.#isDraining || this.#closing.signal.aborted;
    return JSON.stringify({ name, pool, slots, level, granted, tasks, draining, key: this.#keys.publicKey });
  }

  // Everything ends, whatever it is doing: in a few seconds another worker may begin the same tasks.
  async #leaseLost(): Promise<void> {
    this.#log('error', { worker: this.#id }, 'the lease was lost; every sandbox ends');
    this.#journal.add({ event: 'lease-lost', worker: this.#id });
    const [lease, listening] = [this.#lease, this.#listening];
    this.#lease = null;
    this.#granted?.stop();
    this.#granted = null;
    for (const one of this.#running.values()) stop(one, 'claim-lost');
    await Promise.all([...this.#tenants.values()].map(tenant => tenant.end()));
    await lease?.stop(false);
    await listening?.[Symbol.asyncDispose]();
  }

  async #go(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        if (!this.#lease) await this.#join();
        if (this.#file.granted) await paused(LOOK_MS, signal);
        else await this.#takeSome(signal);
      } catch (error) {
        if (!signal.aborted) {
          this.#log('warn', { reason: reasonOf(error) }, 'the fleet engine cannot be used; trying again');
          await paused(AGAIN_MS, signal);
        }
      }
    }
  }

  async #takeSome(signal: AbortSignal): Promise<void> {
    const free = this.#file.slots - this.#work.size;
    if (free <= 0 || this.#lease?.isSafe !== true) {
      // No listener may pile up where tasks are short.
      const enough = new AbortController();
      await Promise.race([...this.#work, paused(BUSY_MS, AbortSignal.any([signal, enough.signal]))]);
      enough.abort();
      return;
    }
    for (const delivery of await this.#engine.take({ pool: this.#file.pool, max: free, waitMs: WAIT_MS }, signal)) {
      if (signal.aborted || !this.#hasSlot(delivery.task.tenant)) {
        await delivery.release(signal.aborted ? 0 : BUSY_MS);
        continue;
      }
      void this.#begun(delivery).catch(() => undefined);
    }
  }

  // Rejects where the task was left to another worker.
  async #begun(delivery: Delivery): Promise<void> {
    const work = this.#perform(delivery);
    const settled = work.catch((error: unknown) =>
      this.#log('error', { task: delivery.task.id, reason: reasonOf(error) }, 'a task was left to another worker'),
    );
    this.#work.add(settled);
    void settled.finally(() => this.#work.delete(settled));
    await work;
  }

  #hasSlot(tenant: string): boolean {
    const used = [...this.#running.values()].filter(({ claim }) => claim.tenant === tenant).length;
    return used < (this.#file.tenants.get(tenant)?.slots ?? this.#file.slots);
  }

  async #perform(delivery: Delivery): Promise<void> {
    const spec = this.#specOf(delivery);
    const worker = this.#id;
    const holds = (claim: string): boolean => this.#running.has(claim);
    const claiming = await this.#tasks.claim(delivery, { worker, maxAttempts: attemptsOf(spec), holds });
    if (claiming.is !== 'claimed') {
      if (claiming.is === 'busy') await delivery.release(BUSY_MS);
      return;
    }
    const running: Running = { claim: claiming.claim, worker, cancel: new AbortController(), why: null };
    this.#running.set(running.claim.claim, running);
    this.#note('claimed', running);
    if (!('code' in spec)) this.#options.observe?.({ is: 'waited', ms: Date.now() - Date.parse(spec.submittedAt) });
    const prolonging = setInterval(() => void this.#keep(running, delivery), this.#engine.hideMs / 3);
    try {
      // Fenced between the claim and now: what would begin could not be ended in time.
      if (this.#lease?.isSafe !== true || worker !== this.#id) stop(running, 'claim-lost');
      const isOver = await this.#runOrRefuse(running, spec);
      clearInterval(prolonging);
      await (isOver ? delivery.done() : delivery.release(running.why === 'given-back' ? 0 : BUSY_MS));
    } finally {
      clearInterval(prolonging);
      this.#running.delete(running.claim.claim);
    }
  }

  #specOf({ task }: Delivery): TaskSpec | SandboxSpec | ErrorJson {
    try {
      const spec = admittedSpec(this.#file, task, Date.now());
      admittedPolicy(this.#file, spec);
      return spec;
    } catch (error) {
      if (error instanceof AcodeError) return error.toJSON();
      throw error;
    }
  }

  // A notice of a cancellation can be lost, and so can a claim: both are read again here.
  async #keep(running: Running, delivery: Delivery): Promise<void> {
    try {
      await delivery.prolong();
      const standing = await this.#tasks.standing(running.claim);
      if (standing === 'cancel') stop(running, 'cancelled');
      if (standing === 'lost' && this.#running.has(running.claim.claim)) stop(running, 'claim-lost');
    } catch {
      // The engine is away: the lease decides.
    }
  }

  /** Runs a claimed task; returns whether it is over. */
  async #runOrRefuse(running: Running, spec: TaskSpec | SandboxSpec | ErrorJson): Promise<boolean> {
    if ('code' in spec) return this.#write(running, 'refused', { error: fittedError(spec) }, 0);
    if ('sandbox' in spec) return this.#keepSandbox(running, spec);
    const log = new LogWriter(this.#engine, running.claim);
    const outcome = await this.#outcome(running, spec, log);
    const pieces = await log.end();
    if (running.why === 'cancelled') return this.#write(running, 'cancelled', {}, pieces);
    if (running.why === null) return this.#settle(running, spec, outcome, pieces);
    if (running.why === 'given-back') await this.#tasks.giveBack(running.claim);
    this.#note(running.why, running);
    return false;
  }

  /** Has a sandbox until it ends. No other worker can go on with it, so that it is over then, whatever ended it. */
  async #keepSandbox(running: Running, spec: SandboxSpec): Promise<boolean> {
    const ended = await this.#hosted(running, spec);
    const { why } = running;
    if (why === 'cancelled') return this.#write(running, 'cancelled', {}, 0);
    if (why === 'claim-lost' || (why === 'given-back' && !ended.existed)) {
      if (why === 'given-back') await this.#tasks.giveBack(running.claim);
      this.#note(why, running);
      return false;
    }
    const { state, failure } = endOf(spec.id, why === 'given-back' ? { ...ended, limit: LEFT } : ended);
    return this.#write(running, state, { error: { ...fittedError(failure), ...reasonWhy(failure) } }, 0);
  }

  async #hosted({ cancel: { signal }, worker }: Running, spec: SandboxSpec): Promise<HostedEnd> {
    const { tenant, id, env, risk } = spec;
    try {
      signal.throwIfAborted();
      const workspace = spec.workspace ? await this.#workspace(tenant, spec.workspace.hash, signal) : null;
      const asked = { tenant, id, env, risk, workspace, signal, policy: admittedPolicy(this.#file, spec) };
      return await hostSandbox(this.#tenant(tenant), asked, {
        engine: this.#engine,
        key: { tenant, id },
        worker,
        keys: this.#keys,
        callers: this.#file.tenants.get(tenant)?.keys ?? [],
        limits: spec.sandbox,
        lease: this.#options.lease,
        onReady: () => void this.#engine.notify({ tenant }, id).catch(() => undefined),
      });
    } catch (error) {
      const failure = error instanceof AcodeError ? error : endedSandbox(id, reasonOf(error));
      return { existed: false, limit: null, outcome: { error: failure.toJSON() } };
    }
  }

  async #settle(running: Running, spec: TaskSpec, outcome: HostOutcome, pieces: number): Promise<boolean> {
    const { result, error, files } = outcome;
    if (result) this.#options.observe?.({ is: 'ran', warm: result.warm, obtainMs: result.timings.obtainMs });
    if (result)
      return this.#write(running, stateOf(result), await this.#told(running.claim, spec, result, files), pieces);
    // A task that was stopped has a reason, so that there is an error here.
    const failure =
      error ?? new AcodeError('ACODE-SBX-018', { operation: 'run a task', reason: 'nothing came back' }).toJSON();
    if (!isHostTrouble(failure)) return this.#write(running, 'refused', { error: fittedError(failure) }, pieces);
    const { claim } = running;
    this.#log(
      'warn',
      { task: claim.id, code: failure.code, reason: failure.message },
      'this host could not run a task',
    );
    if (claim.attempt >= attemptsOf(spec)) return this.#write(running, 'lost', { error: fittedError(failure) }, pieces);
    await this.#tasks.retry(claim);
    return false;
  }

  async #told({ tenant }: Claim, spec: TaskSpec, result: RunResult, files: Uint8Array | undefined): Promise<Told> {
    const told = { result: fitted(result, outputBytesOf(spec)) };
    if (!files) return told;
    const hash = hashOf(files);
    await this.#engine.putBlob(tenant, hash, files);
    return { ...told, files: hash };
  }

  async #outcome({ cancel: { signal } }: Running, spec: TaskSpec, log: LogWriter): Promise<HostOutcome> {
    if (signal.aborted) return {};
    try {
      const { tenant, id, command, cwd, env, stdin, risk, files = false } = spec;
      const workspace = spec.workspace ? await this.#workspace(tenant, spec.workspace.hash, signal) : null;
      const policy = admittedPolicy(this.#file, spec);
      const task = { tenant, id, command, cwd, env, stdin, risk, policy, workspace, files };
      return await this.#tenant(tenant).run({ ...task, signal, onOutput: (stream, bytes) => log.add(stream, bytes) });
    } catch (error) {
      if (error instanceof AcodeError) return { error: error.toJSON() };
      if (signal.aborted) return {};
      throw error;
    }
  }

  async #workspace(tenant: string, hash: string, signal: AbortSignal): Promise<Uint8Array> {
    const bytes = await this.#engine.getBlob(tenant, hash, signal);
    if (!bytes) throw FLEET_ERRORS.create('ACODE-FLT-012', { hash, reason: 'the fleet does not have it any more' });
    if (hashOf(bytes) !== hash) throw FLEET_ERRORS.create('ACODE-FLT-012', { hash, reason: 'its bytes are others' });
    return bytes;
  }

  // Retried while the lease holds. A worker that has lost the claim meanwhile writes nothing.
  async #write(running: Running, state: FinalState, told: Told, logPieces: number): Promise<boolean> {
    const { tenant, id, attempt, claim } = running.claim;
    const { worker } = running;
    const body = JSON.stringify({ tenant, id, attempt, claim, worker, logPieces, ...told } satisfies Outcome);
    try {
      await this.#tasks.finish(running.claim, state, signed('result', body, this.#keys), AbortSignal.timeout(WRITE_MS));
      this.#note('finished', running, state);
      return true;
    } catch (error) {
      const isLost = error instanceof AcodeError && error.code === 'ACODE-FLT-010';
      this.#note(isLost ? 'claim-lost' : 'unwritten', running, state, reasonOf(error));
      return false;
    }
  }

  #tenant(tenant: string): TenantRunner {
    const known = this.#tenants.get(tenant);
    if (known) return known;
    const made = this.#options.runner?.(tenant) ?? this.#process(tenant);
    this.#tenants.set(tenant, made);
    return made;
  }

  #process(tenant: string): TenantProcess {
    const { root, runtime } = this.#options;
    const { config, socket, warm, slots } = this.#file;
    const most = Math.min(slots, this.#file.tenants.get(tenant)?.slots ?? slots);
    return new TenantProcess(tenant, { root, runtime }, { config, socket, slots: most, warm: Math.min(warm, most) });
  }

  #noticed(text: string): void {
    if (this.#granted?.noticed(text)) return;
    const [what, tenant, id] = text.split(' ');
    if (what !== 'cancel') return;
    for (const running of this.#running.values())
      if (running.claim.tenant === tenant && running.claim.id === id) void this.#keepCancelled(running);
  }

  // Only the operator can send these: on NATS no worker and no tenant may publish them.
  #controlled(text: string): void {
    if (text !== 'drain' || this.#isDraining) return;
    this.#isDraining = true;
    this.#log('info', { worker: this.#id }, 'the operator drains this worker');
    this.#options.onDrain?.();
  }

  // A notice is nobody’s signature: the state decides.
  async #keepCancelled(running: Running): Promise<void> {
    const standing = await this.#tasks.standing(running.claim).catch(() => 'held');
    if (standing === 'cancel') stop(running, 'cancelled');
  }

  #note(
    event: 'claimed' | 'finished' | 'given-back' | 'claim-lost' | 'unwritten',
    { worker, claim: { tenant, id, attempt } }: Running,
    state?: string,
    reason?: string,
  ): void {
    const more = { ...(state === undefined ? {} : { state }), ...(reason === undefined ? {} : { reason }) };
    this.#journal.add({ event, worker, tenant, id, attempt, ...more });
    this.#options.observe?.({ is: 'task', event: state ?? event });
    this.#log('info', { task: id, tenant, attempt, ...more }, event);
  }

  #log(level: 'info' | 'warn' | 'error', fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#options.logger?.[level](fields, message);
  }
}

// The first reason counts: a task that was cancelled and whose lease is lost then is still not to be written.
function stop(running: Running, why: NonNullable<Running['why']>): void {
  if (running.why === null || why === 'claim-lost') running.why = why;
  running.cancel.abort();
}

// A sandbox whose worker died is not begun again: what was in it is lost, and its owner has to know.
function attemptsOf(spec: TaskSpec | SandboxSpec | ErrorJson): number {
  if ('sandbox' in spec) return 1;
  return ('code' in spec ? undefined : spec.maxAttempts) ?? ATTEMPTS;
}

function endOf(id: string, { existed, limit, outcome }: HostedEnd): { state: FinalState; failure: ErrorJson } {
  if (limit) return { state: limit.state, failure: endedSandbox(id, limit.reason).toJSON() };
  const failure = outcome.error ?? endedSandbox(id, 'it ended').toJSON();
  if (existed) return { state: 'failed', failure };
  return { state: isHostTrouble(failure) ? 'lost' : 'refused', failure };
}

// Data for its client, who makes the same error of it.
function reasonWhy({ code, context }: Pick<ErrorJson, 'code' | 'context'>): { readonly reason?: string } {
  const isEnd = code === ENDED && typeof context === 'object' && context !== null && 'reason' in context;
  return isEnd && typeof context.reason === 'string' ? { reason: context.reason } : {};
}

function endedSandbox(sandbox: string, reason: string): AcodeError {
  return new AcodeError(ENDED, { sandbox, reason });
}

function keysIn(root: string): KeyPair {
  mkdirSync(root, { recursive: true, mode: 0o700 });
  const path = join(root, 'key.json');
  if (!existsSync(path)) {
    const made = makeKeys();
    writeFileSync(path, JSON.stringify(made), { mode: 0o600, flag: 'wx' });
    return made;
  }
  const found: unknown = JSON.parse(readFileSync(path, 'utf8'));
  const isPair = typeof found === 'object' && found !== null && 'publicKey' in found && 'privateKey' in found;
  if (
    isPair &&
    typeof found.publicKey === 'string' &&
    typeof found.privateKey === 'string' &&
    publicKeyFrom(found.publicKey)
  )
    return { publicKey: found.publicKey, privateKey: found.privateKey };
  throw FLEET_ERRORS.create('ACODE-FLT-014', { file: path, reason: 'it holds no pair of keys' });
}
