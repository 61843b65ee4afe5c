// Engine in memory: for one host, for tests and for simulations. It ends with its process.

import type { Clock } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import { BLOB_KEEP_MS, HIDE_MS, LOG_KEEP_MS, MAX_QUEUED, MAX_WAIT_MS } from './engine.ts';
import type {
  Delivery,
  FleetEngine,
  Lease,
  LogBatch,
  LogKey,
  QueuedTask,
  Revised,
  TakeRequest,
  Topic,
  WriteOptions,
} from './engine.ts';
import { assertSize } from './limits.ts';
import { PRIORITIES, checkedKey, checkedName } from './names.ts';
import type { TaskKey } from './names.ts';

interface Entry {
  readonly task: QueuedTask;
  readonly number: number;
  visibleAt: number;
  deliveries: number;
}

interface Kept<Value> {
  readonly value: Value;
  readonly until: number;
}

/** Options of an engine in memory. */
export interface MemoryEngineOptions {
  /** The clock; the system’s by default. A simulation brings its own. */
  readonly clock?: Clock;
  /** How long a delivery hides a task, in milliseconds; 30,000 by default. */
  readonly hideMs?: number;
  /** The most tasks in the queue; a million by default. */
  readonly maxQueued?: number;
}

/** A fleet engine that lives in this process. */
export class MemoryEngine implements FleetEngine {
  readonly kind = 'memory';
  readonly hideMs: number;
  readonly #clock: Clock;
  readonly #maxQueued: number;
  readonly #queue = new Map<string, Entry>();
  readonly #states = new Map<string, Kept<Revised>>();
  readonly #leases = new Map<string, Kept<Lease>>();
  readonly #logs = new Map<string, Kept<Map<number, Uint8Array>>>();
  readonly #blobs = new Map<string, Kept<Uint8Array>>();
  readonly #listeners = new Map<string, Set<(text: string) => void>>();
  #number = 0;

  constructor({ clock = SYSTEM_CLOCK, hideMs = HIDE_MS, maxQueued = MAX_QUEUED }: MemoryEngineOptions = {}) {
    this.#clock = clock;
    this.hideMs = hideMs;
    this.#maxQueued = maxQueued;
  }

  async enqueue(task: QueuedTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    signal?.throwIfAborted();
    const key = named(task);
    checkedName('pool', task.pool);
    assertSize('The task', task.body);
    if (this.#queue.has(key)) return 'present';
    if (this.#queue.size >= this.#maxQueued)
      throw FLEET_ERRORS.create('ACODE-FLT-005', { pool: task.pool, reason: `the queue has ${this.#maxQueued} tasks` });
    this.#number += 1;
    this.#queue.set(key, { task, number: this.#number, visibleAt: this.#clock.monotonic(), deliveries: 0 });
    this.#call(`pool ${task.pool}`, '');
    return 'queued';
  }

  async queued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<QueuedTask | null> {
    signal?.throwIfAborted();
    const task = this.#queue.get(named(key))?.task ?? null;
    return task?.pool === pool ? task : null;
  }

  async take({ pool, max, waitMs }: TakeRequest, signal?: AbortSignal): Promise<Delivery[]> {
    signal?.throwIfAborted();
    const end = this.#clock.monotonic() + Math.min(waitMs, MAX_WAIT_MS);
    for (;;) {
      const found = this.#visible(checkedName('pool', pool)).slice(0, max);
      if (found.length > 0) return found.map(entry => this.#deliver(entry));
      const restMs = end - this.#clock.monotonic();
      if (restMs <= 0) return [];
      await this.#wakened(`pool ${pool}`, Math.min(restMs, this.#nextVisibleMs(pool)), signal);
    }
  }

  async pick(key: TaskKey, pool: string, signal?: AbortSignal): Promise<Delivery | null> {
    signal?.throwIfAborted();
    const name = named(key);
    const entry = this.#queue.get(name);
    if (entry?.task.pool !== pool) return null;
    return {
      task: entry.task,
      deliveries: 1,
      prolong: async () => undefined,
      release: async () => undefined,
      done: async () => {
        if (this.#queue.get(name) === entry) this.#queue.delete(name);
      },
    };
  }

  async *watchQueue(pool: string, signal: AbortSignal): AsyncGenerator<Omit<QueuedTask, 'body'>, void, undefined> {
    let last = 0;
    while (!signal.aborted) {
      // In the order of their numbers, as a map keeps them.
      const next = [...this.#queue.values()].filter(({ task, number }) => task.pool === pool && number > last);
      for (const { task, number } of next) {
        last = number;
        yield task;
        if (signal.aborted) return;
      }
      if (next.length === 0) await this.#wakened(`pool ${pool}`, Infinity, signal).catch(() => undefined);
    }
  }

  async depth(pool: string): Promise<number> {
    return [...this.#queue.values()].filter(({ task }) => task.pool === pool).length;
  }

  async unfinished(tenant: string): Promise<number> {
    return [...this.#queue.values()].filter(({ task }) => task.tenant === tenant).length;
  }

  async read(key: TaskKey, signal?: AbortSignal): Promise<Revised | null> {
    signal?.throwIfAborted();
    return this.#kept(this.#states, named(key));
  }

  async write(
    key: TaskKey,
    revision: number,
    text: string,
    { keepMs }: WriteOptions = {},
    signal?: AbortSignal,
  ): Promise<number | null> {
    signal?.throwIfAborted();
    assertSize('The state of the task', text);
    const name = named(key);
    if ((this.#kept(this.#states, name)?.revision ?? 0) !== revision) return null;
    this.#number += 1;
    const until = keepMs === undefined ? Infinity : this.#clock.monotonic() + keepMs;
    this.#states.set(name, { value: { text, revision: this.#number }, until });
    return this.#number;
  }

  async renew(lease: Lease, ttlMs: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    this.#leases.set(checkedName('worker', lease.worker), { value: lease, until: this.#clock.monotonic() + ttlMs });
  }

  async leases(): Promise<Lease[]> {
    return [...this.#leases.keys()].flatMap(worker => this.#kept(this.#leases, worker) ?? []);
  }

  async isLeased(worker: string): Promise<boolean> {
    return this.#kept(this.#leases, worker) !== null;
  }

  async endLease(worker: string): Promise<void> {
    this.#leases.delete(worker);
  }

  async appendLog(key: LogKey, { sequence, bytes }: LogBatch, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    assertSize('The piece of the log', bytes);
    const name = `${named(key)} ${key.attempt}`;
    const log = this.#kept(this.#logs, name) ?? new Map<number, Uint8Array>();
    if (!log.has(sequence)) log.set(sequence, bytes.slice());
    this.#logs.set(name, { value: log, until: this.#clock.monotonic() + LOG_KEEP_MS });
    this.#call(`log ${name}`, '');
  }

  async *followLog(key: LogKey, after: number, signal: AbortSignal): AsyncGenerator<LogBatch, void, undefined> {
    const name = `${named(key)} ${key.attempt}`;
    let last = after;
    while (!signal.aborted) {
      const log = this.#kept(this.#logs, name);
      const next = [...(log ?? [])].filter(([number]) => number > last).sort(([one], [other]) => one - other);
      for (const [sequence, bytes] of next) {
        last = sequence;
        yield { sequence, bytes };
        if (signal.aborted) return;
      }
      if (next.length === 0) await this.#wakened(`log ${name}`, Infinity, signal).catch(() => undefined);
    }
  }

  async putBlob(tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    assertSize('The workspace', bytes);
    const value = bytes.slice();
    this.#blobs.set(blobName(tenant, hash), { value, until: this.#clock.monotonic() + BLOB_KEEP_MS });
  }

  async getBlob(tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null> {
    signal?.throwIfAborted();
    return this.#kept(this.#blobs, blobName(tenant, hash))?.slice() ?? null;
  }

  async notify(topic: Topic, text: string): Promise<void> {
    this.#call(topicName(topic), text);
  }

  async listen(topic: Topic, onNotice: (text: string) => void): Promise<AsyncDisposable> {
    const stop = this.#listen(topicName(topic), onNotice);
    return { [Symbol.asyncDispose]: async () => stop() };
  }

  // What it holds is another process’s to lose: engines that are shared are closed one by one, so nothing is dropped here.
  async close(): Promise<void> {
    await Promise.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #visible(pool: string): Entry[] {
    const now = this.#clock.monotonic();
    return [...this.#queue.values()]
      .filter(({ task, visibleAt }) => task.pool === pool && visibleAt <= now)
      .sort(
        (one, other) =>
          PRIORITIES.indexOf(one.task.priority) - PRIORITIES.indexOf(other.task.priority) || one.number - other.number,
      );
  }

  #nextVisibleMs(pool: string): number {
    const times = [...this.#queue.values()].filter(({ task }) => task.pool === pool).map(({ visibleAt }) => visibleAt);
    return Math.max(1, Math.min(...times) - this.#clock.monotonic());
  }

  #deliver(entry: Entry): Delivery {
    const key = named(entry.task);
    entry.deliveries += 1;
    entry.visibleAt = this.#clock.monotonic() + this.hideMs;
    const { deliveries } = entry;
    // A delivery that was handed out again since belongs to someone else: nothing that the first one does counts any more.
    const own = (): boolean => this.#queue.get(key) === entry && entry.deliveries === deliveries;
    return {
      task: entry.task,
      deliveries,
      prolong: async () => {
        if (own()) entry.visibleAt = this.#clock.monotonic() + this.hideMs;
      },
      release: async delayMs => {
        if (!own()) return;
        entry.visibleAt = this.#clock.monotonic() + delayMs;
        this.#call(`pool ${entry.task.pool}`, '');
      },
      done: async () => {
        if (this.#queue.get(key) === entry) this.#queue.delete(key);
      },
    };
  }

  #kept<Value>(map: Map<string, Kept<Value>>, name: string): Value | null {
    const found = map.get(name);
    if (found === undefined) return null;
    if (found.until > this.#clock.monotonic()) return found.value;
    map.delete(name);
    return null;
  }

  #listen(name: string, onNotice: (text: string) => void): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(onNotice));
    return () => {
      listeners.delete(onNotice);
      if (listeners.size === 0) this.#listeners.delete(name);
    };
  }

  #call(name: string, text: string): void {
    for (const onNotice of this.#listeners.get(name) ?? []) onNotice(text);
  }

  #wakened(name: string, ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        stop();
        cancel();
        signal?.removeEventListener('abort', end);
        if (signal?.aborted) reject(reasonToStop(signal));
        else resolve();
      };
      const stop = this.#listen(name, end);
      const cancel = Number.isFinite(ms) ? this.#clock.after(ms, end) : () => undefined;
      signal?.addEventListener('abort', end, { once: true });
    });
  }
}

function reasonToStop({ reason }: AbortSignal): Error {
  return reason instanceof Error ? reason : new Error('cancelled');
}

function named(key: TaskKey): string {
  const { tenant, id } = checkedKey(key);
  return `${tenant} ${id}`;
}

function blobName(tenant: string, hash: string): string {
  return `${checkedName('tenant', tenant)} ${checkedName('hash', hash)}`;
}

function topicName(topic: Topic): string {
  if ('tenant' in topic) return `tenant ${checkedName('tenant', topic.tenant)}`;
  if ('worker' in topic) return `worker ${checkedName('worker', topic.worker)}`;
  if ('control' in topic) return `control ${checkedName('worker', topic.control)}`;
  return `offers ${checkedName('pool', topic.pool)}`;
}

const SYSTEM_CLOCK: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: (ms, action) => {
    const timer = setTimeout(action, ms);
    return () => clearTimeout(timer);
  },
};
