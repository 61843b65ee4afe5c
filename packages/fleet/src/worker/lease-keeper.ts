// Lease of a worker or a persistent sandbox: renewed every five seconds. Who cannot renew it stops everything before anyone else may
// begin it again.

import { uptime } from 'node:os';
import type { FleetEngine } from '../engine/engine.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused } from '../engine/retry.ts';

/** How long a lease holds. */
const LEASE_MS = 15_000;
const RENEW_MS = 5000;
/** Time to end sandboxes before the lease is over, whatever the clocks of the servers say. */
const MARGIN_MS = 3000;
const LOOK_MS = 500;

/** What a lease keeper tells. */
export interface LeaseEvents {
  /** What the lease says of its holder. */
  readonly body: () => string;
  /** The lease was renewed, and is safe for so long. */
  readonly renewed: (safeMs: number) => void;
  /** The lease may be over soon: everything has to end now. */
  readonly lost: () => void;
}

/** The times of a lease, for tests. */
export interface LeaseTimes {
  /** How long the lease holds, in milliseconds; 15,000 by default. */
  readonly leaseMs: number;
  /** How often it is renewed, in milliseconds; 5,000 by default. */
  readonly renewMs: number;
  /** How long before its end everything is ended that cannot be renewed, in milliseconds; 3,000 by default. */
  readonly marginMs: number;
}

const TIMES: LeaseTimes = { leaseMs: LEASE_MS, renewMs: RENEW_MS, marginMs: MARGIN_MS };

/** Keeps one lease. */
export class LeaseKeeper {
  readonly #engine: FleetEngine;
  readonly #holder: string | TaskKey;
  readonly #events: LeaseEvents;
  readonly #times: LeaseTimes;
  readonly #stop = new AbortController();
  #renewedAt = -Infinity;
  #ticks: NodeJS.Timeout | undefined;
  #done: Promise<void> = Promise.resolve();

  /** `holder` is a worker, or a sandbox by its key. */
  constructor(engine: FleetEngine, holder: string | TaskKey, events: LeaseEvents, times: Partial<LeaseTimes> = {}) {
    this.#engine = engine;
    this.#holder = holder;
    this.#events = events;
    this.#times = { ...TIMES, ...times };
  }

  /** Makes the lease, then renews it until it is stopped or lost. */
  async begin(): Promise<void> {
    await this.#renew(this.#stop.signal);
    this.#done = this.#go();
    this.#ticks = setInterval(() => this.#look(), LOOK_MS);
  }

  /** Whether what is begun now may still be ended in time. */
  get isSafe(): boolean {
    return !this.#stop.signal.aborted && now() < this.#safeUntil();
  }

  /** Stops renewing; with `end`, the lease is over at once. */
  async stop(end: boolean): Promise<void> {
    this.#stop.abort();
    clearInterval(this.#ticks);
    await this.#done;
    if (end) await this.#engine.endLease(this.#holder, AbortSignal.timeout(this.#times.renewMs)).catch(() => undefined);
  }

  async #go(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await paused(this.#times.renewMs, signal);
      if (!signal.aborted) await this.#renew(signal).catch(() => undefined);
    }
  }

  // From before the request: the server may have counted from then.
  async #renew(signal: AbortSignal): Promise<void> {
    const at = now();
    const body = this.#events.body();
    const lease = typeof this.#holder === 'string' ? { worker: this.#holder, body } : { ...this.#holder, body };
    await this.#engine.renew(lease, this.#times.leaseMs, signal);
    this.#renewedAt = at;
    this.#events.renewed(Math.max(0, this.#safeUntil() - now()));
  }

  #safeUntil(): number {
    return this.#renewedAt + this.#times.leaseMs - this.#times.marginMs;
  }

  // Also the first thing that happens after the process was stopped, or its host asleep.
  #look(): void {
    if (this.#stop.signal.aborted || now() < this.#safeUntil()) return;
    this.#stop.abort();
    clearInterval(this.#ticks);
    this.#events.lost();
  }
}

// Goes on while the host sleeps, which the clock of the process does not.
function now(): number {
  return uptime() * 1000;
}
