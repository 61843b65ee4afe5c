// Dispatcher of a gate: hears hosts and the queue, and sends the grants of the fair share. Of several gates one leads.

import { randomBytes } from 'node:crypto';
import type { Logger } from '@acode/sandbox';
import * as z from 'zod';
import type { FleetEngine } from '../engine/engine.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused, reasonOf } from '../engine/retry.ts';
import { grantText, parseOffer } from '../tasks/grants.ts';
import { LeaseKeeper } from '../worker/lease-keeper.ts';
import { FairShare } from './fair-share.ts';
import type { Share } from './fair-share.ts';

/** Where it stands which gate leads: `acode fleet tenant add` gives no tenant a name that begins so. */
const LEADER: TaskKey = { tenant: 'acode-gates', id: 'leader' };
const LEASE = { leaseMs: 5000, renewMs: 1000, marginMs: 1500 };
const LOOK_MS = 500;
/** Every host says at least once in this time what it has. */
const HEAR_MS = 2500;

const leaderSchema = z.strictObject({ schema: z.literal('acode.fleet.leader/1'), gate: z.string() });

/** What a dispatcher is made of. */
export interface DispatcherParts {
  readonly engine: FleetEngine;
  readonly pools: readonly string[];
  readonly shares: () => ReadonlyMap<string, Share>;
  readonly affinityMs: number;
  readonly logger?: Logger | undefined;
}

/** Figures of one pool. */
export interface PoolFigures {
  /** Tasks that wait. */
  readonly waiting: number;
  /** How long the oldest of them has waited since this gate has known it, in milliseconds. */
  readonly oldestMs: number;
  /** Slots that hosts offer and no task has. */
  readonly free: number;
  /** Tasks that this gate has given to hosts. */
  readonly granted: number;
}

/** The dispatcher of one gate. */
export class Dispatcher implements AsyncDisposable {
  readonly #parts: DispatcherParts;
  readonly #stop = new AbortController();
  #leading: Leading | null = null;
  readonly #grants = new Map<string, number>();
  #work: Promise<void> = Promise.resolve();

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
    this.#work = this.#go();
  }

  /** Whether this gate hands out tasks. */
  get isLeading(): boolean {
    return this.#leading !== null;
  }

  /** What waits, what is free, and what was granted in a pool; null while another gate hands out its tasks. */
  figures(pool: string): PoolFigures | null {
    const found = this.#leading?.share.figures(pool, performance.now());
    return found ? { ...found, granted: this.#grants.get(pool) ?? 0 } : null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#work;
  }

  async #go(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        await this.#once(signal);
      } catch (error) {
        if (!signal.aborted) this.#parts.logger?.warn({ reason: reasonOf(error) }, 'the gate cannot use the engine');
      }
      await paused(LOOK_MS, signal);
    }
  }

  // One lease: from its beginning until it is lost, or the gate ends.
  async #once(signal: AbortSignal): Promise<void> {
    const name = `gate_${randomBytes(6).toString('hex')}`;
    const lost = new AbortController();
    const within = AbortSignal.any([signal, lost.signal]);
    const events = { body: () => JSON.stringify({ gate: true }), renewed: () => undefined, lost: () => lost.abort() };
    const lease = new LeaseKeeper(this.#parts.engine, name, events, LEASE);
    await lease.begin();
    try {
      while (!within.aborted) {
        if (await this.#wins(name, within)) await this.#lead(name, lease, within);
        await paused(LOOK_MS, within);
      }
    } finally {
      await lease.stop(true);
    }
  }

  // Whether this gate leads now: nobody did, or who did has no lease any more.
  async #wins(name: string, signal: AbortSignal): Promise<boolean> {
    const { engine } = this.#parts;
    const found = await engine.read(LEADER, signal);
    const gate = found ? leaderOf(found.text) : null;
    if (gate === name) return true;
    if (gate !== null && (await engine.isLeased(gate, signal))) return false;
    const text = JSON.stringify({ schema: 'acode.fleet.leader/1', gate: name });
    return (await engine.write(LEADER, found?.revision ?? 0, text, {}, signal)) !== null;
  }

  async #lead(name: string, lease: LeaseKeeper, signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    const parts = {
      ...this.#parts,
      name,
      isSafe: () => lease.isSafe,
      granted: (pool: string) => void this.#grants.set(pool, (this.#grants.get(pool) ?? 0) + 1),
    };
    const leading = new Leading(parts, AbortSignal.any([signal, over.signal]));
    this.#leading = leading;
    this.#parts.logger?.info({ gate: name }, 'the gate hands out tasks');
    try {
      await Promise.race([leading.run(), this.#watch(name, signal)]);
    } finally {
      this.#leading = null;
      over.abort();
      await leading.end();
    }
  }

  // Until another one leads, which it can only when this one’s lease was over.
  async #watch(name: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await paused(LOOK_MS, signal);
      const found = await this.#parts.engine.read(LEADER, signal).catch(() => undefined);
      if (found === null || (found && leaderOf(found.text) !== name)) return;
    }
  }
}

function leaderOf(text: string): string | null {
  try {
    return leaderSchema.parse(JSON.parse(text)).gate;
  } catch {
    return null;
  }
}

interface LeadingParts extends DispatcherParts {
  readonly name: string;
  /** Whether nobody else can lead by now. */
  readonly isSafe: () => boolean;
  /** A task of this pool was granted. */
  readonly granted: (pool: string) => void;
}

/** One time of leading: begins with nothing, and learns all from the queue and the hosts. */
class Leading {
  readonly share: FairShare;
  readonly #parts: LeadingParts;
  readonly #signal: AbortSignal;
  readonly #listening: AsyncDisposable[] = [];
  readonly #heard = new Set<string>();
  readonly #following: Promise<void>[] = [];
  #isReady = false;
  #isDue = false;
  #again: NodeJS.Timeout | undefined;

  constructor(parts: LeadingParts, signal: AbortSignal) {
    const { shares, affinityMs, name } = parts;
    this.#parts = parts;
    this.share = new FairShare({ shares, affinityMs, name });
    this.#signal = signal;
  }

  async run(): Promise<void> {
    const { engine, pools } = this.#parts;
    for (const pool of pools) {
      this.#listening.push(await engine.listen({ pool }, text => this.#offered(pool, text)));
      this.#following.push(this.#follow(pool));
    }
    await this.#allHeard();
    this.#isReady = true;
    this.#due();
    while (!this.#signal.aborted) {
      await paused(LOOK_MS, this.#signal);
      await this.#lookForLost().catch(() => undefined);
      this.#due();
    }
  }

  async end(): Promise<void> {
    clearTimeout(this.#again);
    await Promise.all(this.#listening.map(one => one[Symbol.asyncDispose]()));
    await Promise.all(this.#following);
  }

  // What was granted by the gate of before counts as soon as its host has said so: nothing is granted earlier.
  async #allHeard(): Promise<void> {
    const end = performance.now() + HEAR_MS;
    await paused(LOOK_MS / 5, this.#signal);
    while (!this.#signal.aborted && performance.now() < end) {
      const leases = await this.#parts.engine.leases(this.#signal);
      const hosts = leases.filter(({ body }) => isGranted(body));
      if (hosts.length > 0 && hosts.every(({ worker }) => this.#heard.has(worker))) return;
      await paused(LOOK_MS / 5, this.#signal);
    }
  }

  async #follow(pool: string): Promise<void> {
    for await (const task of this.#parts.engine.watchQueue(pool, this.#signal)) {
      this.share.queued(task, performance.now());
      this.#due();
    }
  }

  #offered(pool: string, text: string): void {
    const offer = parseOffer(text);
    if (!offer) return;
    this.#heard.add(offer.worker);
    for (const task of this.share.offered(pool, offer, performance.now())) void this.#settle(task, pool);
    this.#due();
  }

  // A notice was lost: the queue knows whether the task is over.
  async #settle(task: TaskKey, pool: string): Promise<void> {
    const found = await this.#parts.engine.queued(task, pool, this.#signal).catch(() => undefined);
    if (found === null) this.share.over(task);
    else if (found) this.share.again(task, performance.now());
    this.#due();
  }

  async #lookForLost(): Promise<void> {
    for (const worker of this.share.silent(performance.now()))
      if (!(await this.#parts.engine.isLeased(worker, this.#signal))) this.share.lost(worker, performance.now());
  }

  // What arrives together is decided together.
  #due(): void {
    if (this.#isDue || !this.#isReady) return;
    this.#isDue = true;
    setImmediate(() => {
      this.#isDue = false;
      if (!this.#signal.aborted) this.#decide();
    });
  }

  #decide(): void {
    // Who cannot be sure to lead grants nothing.
    if (!this.#parts.isSafe()) return;
    const { grants, againMs } = this.share.decide(performance.now());
    for (const grant of grants) this.#parts.granted(grant.pool);
    for (const grant of grants)
      void this.#parts.engine.notify({ worker: grant.worker }, grantText(grant)).catch(() => undefined);
    clearTimeout(this.#again);
    if (againMs !== null) this.#again = setTimeout(() => this.#due(), againMs);
  }
}

function isGranted(body: string): boolean {
  try {
    return z.object({ granted: z.literal(true) }).safeParse(JSON.parse(body)).success;
  } catch {
    return false;
  }
}
