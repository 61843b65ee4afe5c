// Engine in memory: for one host, for tests and for simulations. It ends with its process.

import type { Clock } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import { ANSWER_MS, BLOB_KEEP_MS, HIDE_MS, LOG_KEEP_MS, MAX_QUEUED, MAX_WAIT_MS } from './engine.ts';
import type {
  Delivery,
  FleetEngine,
  Lease,
  LogBatch,
  LogKey,
  MessageHandler,
  QueuedTask,
  Revised,
  SandboxLease,
  TakeRequest,
  Topic,
  WriteOptions,
} from './engine.ts';
import { Heap } from './heap.ts';
import { assertSize } from './limits.ts';
import { PRIORITIES, checkedKey, checkedName, leaseName } from './names.ts';
import type { TaskKey } from './names.ts';

interface Entry {
  readonly task: QueuedTask;
  readonly rank: number;
  readonly number: number;
  visibleAt: number;
  deliveries: number;
}

/** The queue of one pool. Every step takes as long in a long one as in a short one, but for a logarithm. */
class PoolQueue {
  /** Tasks that may be taken, the most urgent one first. */
  readonly visible = new Heap<Entry>(
    (one, other) => one.rank < other.rank || (one.rank === other.rank && one.number < other.number),
  );
  /** Tasks that were taken, by when they may be taken again. */
  readonly hidden = new Heap<Entry>((one, other) => one.visibleAt < other.visibleAt);
  /** All of them, in the order in which they came. */
  readonly entries = new Set<Entry>();
  /** What each of those who watch has not seen yet. */
  readonly watching = new Set<Entry[]>();

  add(entry: Entry): void {
    this.entries.add(entry);
    this.visible.put(entry);
    for (const unseen of this.watching) unseen.push(entry);
  }

  hide(entry: Entry, until: number): void {
    entry.visibleAt = until;
    this.visible.remove(entry);
    this.hidden.put(entry);
  }

  remove(entry: Entry): void {
    this.entries.delete(entry);
    this.visible.remove(entry);
    this.hidden.remove(entry);
  }

  /** The most urgent task that may be taken now. */
  next(now: number): Entry | undefined {
    for (let { first } = this.hidden; first && first.visibleAt <= now; { first } = this.hidden) {
      this.hidden.remove(first);
      this.visible.put(first);
    }
    return this.visible.first;
  }
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
  readonly #pools = new Map<string, PoolQueue>();
  readonly #unfinished = new Map<string, number>();
  readonly #states = new Map<string, Kept<Revised>>();
  /** Those that are forgotten some day, in the order in which they were written. */
  readonly #ended = new Map<string, Kept<Revised>>();
  readonly #leases = new Map<string, Kept<Lease>>();
  readonly #sandboxes = new Map<string, Kept<SandboxLease>>();
  readonly #handlers = new Map<string, MessageHandler>();
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
    const rank = PRIORITIES.indexOf(task.priority);
    const entry = { task, rank, number: this.#number, visibleAt: this.#clock.monotonic(), deliveries: 0 };
    this.#queue.set(key, entry);
    this.#unfinished.set(task.tenant, (this.#unfinished.get(task.tenant) ?? 0) + 1);
    this.#pool(task.pool).add(entry);
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
    const queue = this.#pool(checkedName('pool', pool));
    for (;;) {
      const found: Delivery[] = [];
      for (let entry = queue.next(this.#clock.monotonic()); entry && found.length < max; entry = queue.next(-Infinity))
        found.push(this.#deliver(entry));
      if (found.length > 0) return found;
      const restMs = end - this.#clock.monotonic();
      if (restMs <= 0) return [];
      const hiddenMs = (queue.hidden.first?.visibleAt ?? Infinity) - this.#clock.monotonic();
      await this.#wakened(`pool ${pool}`, Math.min(restMs, Math.max(1, hiddenMs)), signal);
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
      done: async () => this.#done(name, entry),
    };
  }

  async *watchQueue(pool: string, signal: AbortSignal): AsyncGenerator<Omit<QueuedTask, 'body'>, void, undefined> {
    const queue = this.#pool(checkedName('pool', pool));
    let unseen = [...queue.entries];
    queue.watching.add(unseen);
    try {
      while (!signal.aborted) {
        const next = unseen;
        queue.watching.delete(next);
        unseen = [];
        queue.watching.add(unseen);
        for (const entry of next) {
          if (queue.entries.has(entry)) yield entry.task;
          if (signal.aborted) return;
        }
        if (unseen.length === 0) await this.#wakened(`pool ${pool}`, Infinity, signal).catch(() => undefined);
      }
    } finally {
      queue.watching.delete(unseen);
    }
  }

  async depth(pool: string): Promise<number> {
    return this.#pools.get(pool)?.entries.size ?? 0;
  }

  async unfinished(tenant: string): Promise<number> {
    return this.#unfinished.get(tenant) ?? 0;
  }

  async read(key: TaskKey, signal?: AbortSignal): Promise<Revised | null> {
    signal?.throwIfAborted();
    const name = named(key);
    return this.#kept(this.#states, name) ?? this.#kept(this.#ended, name);
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
    const found = this.#kept(this.#states, name) ?? this.#kept(this.#ended, name);
    if ((found?.revision ?? 0) !== revision) return null;
    this.#number += 1;
    const until = keepMs === undefined ? Infinity : this.#clock.monotonic() + keepMs;
    const kept = { value: { text, revision: this.#number }, until };
    this.#states.delete(name);
    this.#ended.delete(name);
    if (until === Infinity) this.#states.set(name, kept);
    else this.#ended.set(name, kept);
    this.#forget();
    return this.#number;
  }

  async renew(lease: Lease | SandboxLease, ttlMs: number, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    const until = this.#clock.monotonic() + ttlMs;
    if ('worker' in lease) this.#leases.set(leaseName(lease.worker), { value: lease, until });
    else this.#sandboxes.set(leaseName(lease), { value: lease, until });
  }

  async leases(): Promise<Lease[]> {
    return [...this.#leases.keys()].flatMap(worker => this.#kept(this.#leases, worker) ?? []);
  }

  async sandboxes(tenant: string): Promise<SandboxLease[]> {
    checkedName('tenant', tenant);
    const found = [...this.#sandboxes.keys()].flatMap(name => this.#kept(this.#sandboxes, name) ?? []);
    return found.filter(one => one.tenant === tenant);
  }

  async isLeased(worker: string): Promise<boolean> {
    return this.#kept(this.#leases, worker) !== null;
  }

  async endLease(holder: string | TaskKey): Promise<void> {
    (typeof holder === 'string' ? this.#leases : this.#sandboxes).delete(leaseName(holder));
  }

  async serve(sandbox: TaskKey, handler: MessageHandler): Promise<AsyncDisposable> {
    const name = leaseName(checkedKey(sandbox));
    this.#handlers.set(name, handler);
    const stop = (): void => {
      if (this.#handlers.get(name) === handler) this.#handlers.delete(name);
    };
    return { [Symbol.asyncDispose]: async () => stop() };
  }

  async ask(sandbox: TaskKey, message: Uint8Array, signal?: AbortSignal): Promise<Uint8Array> {
    signal?.throwIfAborted();
    assertSize('The message', message);
    const handler = this.#handlers.get(leaseName(checkedKey(sandbox)));
    const unanswered = (reason: string): Error => FLEET_ERRORS.create('ACODE-FLT-050', { sandbox: sandbox.id, reason });
    if (!handler) throw unanswered('nobody serves it');
    let end: () => void = () => undefined;
    const late = new Promise<never>((_, reject) => {
      const cancel = this.#clock.after(ANSWER_MS, () => reject(unanswered('no answer in time')));
      const aborted = (): void => reject(signal ? reasonToStop(signal) : unanswered('cancelled'));
      signal?.addEventListener('abort', aborted, { once: true });
      end = () => {
        cancel();
        signal?.removeEventListener('abort', aborted);
      };
    });
    late.catch(() => undefined);
    try {
      const answered = handler(message.slice()).catch(() => null);
      const answer = await Promise.race([answered.then(found => found ?? late), late]);
      return answer.slice();
    } finally {
      end();
    }
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

  #pool(name: string): PoolQueue {
    const known = this.#pools.get(name) ?? new PoolQueue();
    this.#pools.set(name, known);
    return known;
  }

  #done(name: string, entry: Entry): void {
    if (this.#queue.get(name) !== entry) return;
    const { tenant, pool } = entry.task;
    this.#queue.delete(name);
    this.#pool(pool).remove(entry);
    const left = (this.#unfinished.get(tenant) ?? 1) - 1;
    if (left > 0) this.#unfinished.set(tenant, left);
    else this.#unfinished.delete(tenant);
  }

  #deliver(entry: Entry): Delivery {
    const key = named(entry.task);
    const queue = this.#pool(entry.task.pool);
    const hide = (ms: number): void => queue.hide(entry, this.#clock.monotonic() + ms);
    entry.deliveries += 1;
    hide(this.hideMs);
    const { deliveries } = entry;
    // A delivery that was handed out again since belongs to someone else: nothing that the first one does counts any more.
    const own = (): boolean => this.#queue.get(key) === entry && entry.deliveries === deliveries;
    return {
      task: entry.task,
      deliveries,
      prolong: async () => {
        if (own()) hide(this.hideMs);
      },
      release: async delayMs => {
        if (!own()) return;
        hide(delayMs);
        this.#call(`pool ${entry.task.pool}`, '');
      },
      done: async () => this.#done(key, entry),
    };
  }

  // What is read no more is forgotten, too.
  #forget(): void {
    const now = this.#clock.monotonic();
    for (const [name, { until }] of this.#ended) {
      if (until > now) return;
      this.#ended.delete(name);
    }
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
