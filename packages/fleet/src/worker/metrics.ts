// Figures of a worker and of its pool for Prometheus, on a port of the loopback: queue, slots, tasks by how they ended, warm pool, starts.

import * as z from 'zod';
import { escaped, figure, serveFigures } from '../connect/metrics-page.ts';
import type { FleetEngine } from '../engine/engine.ts';
import type { WorkerFile } from './file.ts';

const ASK_MS = 5000;
const WAIT_S = [0.1, 0.5, 1, 5, 15, 60, 300, 1800];
const START_S = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60];

/** What happens on a worker, as far as it is counted. */
export type WorkerEvent =
  | {
      /** A task was claimed. */
      readonly is: 'waited';
      /** How long after it was submitted, in milliseconds. */
      readonly ms: number;
    }
  | {
      /** A command was run. */
      readonly is: 'ran';
      /** Whether its sandbox was a pre-started one. */
      readonly warm: boolean;
      /** How long it took to obtain the sandbox, in milliseconds. */
      readonly obtainMs: number;
    }
  | {
      /** A task was claimed, ended, or was given back. */
      readonly is: 'task';
      /** Its final state, or what else happened to it. */
      readonly event: string;
    };

const leaseSchema = z.object({ pool: z.string(), slots: z.number(), tasks: z.array(z.unknown()) });

class Histogram {
  readonly #bounds: readonly number[];
  readonly #counts: number[];
  #sum = 0;
  #count = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = bounds.map(() => 0);
  }

  add(value: number): void {
    this.#sum += value;
    this.#count += 1;
    for (const [at, bound] of this.#bounds.entries())
      if (value <= bound) this.#counts[at] = (this.#counts[at] ?? 0) + 1;
  }

  lines(name: string, labels: string): string[] {
    const buckets = this.#bounds.map((bound, at) => `${name}_bucket{${labels},le="${bound}"} ${this.#counts[at] ?? 0}`);
    return [
      ...buckets,
      `${name}_bucket{${labels},le="+Inf"} ${this.#count}`,
      `${name}_sum{${labels}} ${this.#sum}`,
      `${name}_count{${labels}} ${this.#count}`,
    ];
  }
}

/** The figures of one worker. */
export class WorkerMetrics {
  readonly #file: Pick<WorkerFile, 'pool' | 'name' | 'slots'>;
  readonly #engine: Pick<FleetEngine, 'depth' | 'leases'>;
  readonly #events = new Map<string, number>();
  readonly #waited = new Histogram(WAIT_S);
  readonly #started = new Histogram(START_S);
  readonly #starts = { warm: 0, cold: 0 };

  constructor(file: Pick<WorkerFile, 'pool' | 'name' | 'slots'>, engine: Pick<FleetEngine, 'depth' | 'leases'>) {
    this.#file = file;
    this.#engine = engine;
  }

  /** Counts what happened. */
  observe(event: WorkerEvent): void {
    if (event.is === 'waited') this.#waited.add(Math.max(0, event.ms) / 1000);
    else if (event.is === 'task') this.#events.set(event.event, (this.#events.get(event.event) ?? 0) + 1);
    else {
      this.#starts[event.warm ? 'warm' : 'cold'] += 1;
      this.#started.add(event.obtainMs / 1000);
    }
  }

  /** Answers on a port of the loopback, as long as the process lives. It keeps no process alive. Returns the port. */
  listen(port: number): Promise<number> {
    return serveFigures(port, () => this.text());
  }

  /** The figures as text. */
  async text(): Promise<string> {
    const signal = AbortSignal.timeout(ASK_MS);
    const pool = await this.#pool(signal).catch(() => null);
    const own = `pool="${this.#file.pool}",host="${escaped(this.#file.name)}"`;
    const ofPool = `pool="${this.#file.pool}"`;
    const lines = [
      ...figure('acode_fleet_engine_up', 'gauge', 'Whether the server of the fleet answered.', [
        `acode_fleet_engine_up{${own}} ${pool ? 1 : 0}`,
      ]),
      ...(pool
        ? [
            ...figure(
              'acode_fleet_pool_tasks',
              'gauge',
              'Unfinished tasks of the pool, by whether a worker has them.',
              [
                `acode_fleet_pool_tasks{${ofPool},state="queued"} ${Math.max(0, pool.depth - pool.busy)}`,
                `acode_fleet_pool_tasks{${ofPool},state="running"} ${pool.busy}`,
              ],
            ),
            ...figure('acode_fleet_pool_slots', 'gauge', 'Slots of all workers of the pool that have a lease.', [
              `acode_fleet_pool_slots{${ofPool}} ${pool.slots}`,
            ]),
            ...figure('acode_fleet_pool_workers', 'gauge', 'Workers of the pool that have a lease.', [
              `acode_fleet_pool_workers{${ofPool}} ${pool.workers}`,
            ]),
          ]
        : []),
      ...figure('acode_worker_slots', 'gauge', 'Tasks that this worker runs at once.', [
        `acode_worker_slots{${own}} ${this.#file.slots}`,
      ]),
      ...figure(
        'acode_worker_tasks_total',
        'counter',
        'Tasks by what happened to them on this worker.',
        Array.from(this.#events, ([event, count]) => `acode_worker_tasks_total{${own},event="${event}"} ${count}`),
      ),
      ...figure('acode_worker_starts_total', 'counter', 'Commands by whether a pre-started sandbox was used.', [
        `acode_worker_starts_total{${own},warm="true"} ${this.#starts.warm}`,
        `acode_worker_starts_total{${own},warm="false"} ${this.#starts.cold}`,
      ]),
      ...figure(
        'acode_worker_start_seconds',
        'histogram',
        'Time to obtain and verify a sandbox.',
        this.#started.lines('acode_worker_start_seconds', own),
      ),
      ...figure(
        'acode_worker_queue_seconds',
        'histogram',
        'Time from the submission of a task to its claim by this worker.',
        this.#waited.lines('acode_worker_queue_seconds', own),
      ),
    ];
    return `${lines.join('\n')}\n`;
  }

  async #pool(signal: AbortSignal): Promise<{ depth: number; busy: number; slots: number; workers: number }> {
    const { pool } = this.#file;
    const [depth, leases] = await Promise.all([this.#engine.depth(pool, signal), this.#engine.leases(signal)]);
    const own = leases.flatMap(({ body }) => {
      const read = leaseSchema.safeParse(valueOf(body));
      return read.success && read.data.pool === pool ? [read.data] : [];
    });
    const sum = (of: (one: z.infer<typeof leaseSchema>) => number): number =>
      own.reduce((total, one) => total + of(one), 0);
    return { depth, busy: sum(one => one.tasks.length), slots: sum(one => one.slots), workers: own.length };
  }
}

function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
