// Fair share: which task is begun next, and where. It decides, and does nothing: time and what happened are passed in.

import type { Priority, TaskKey } from '../engine/names.ts';
import type { Grant, Offer } from '../tasks/grants.ts';

/** After how much longer a wait a task of the next lower priority goes first. */
const AGING_MS = 60_000;
/** A host that has not been heard of for so long is granted nothing. */
const SILENT_MS = 3000;
/** After so long a granted task has to be among those that its host has. */
const DOUBT_MS = 2000;
const RANK: Readonly<Record<Priority, number>> = { high: 0, normal: 1, low: 2 };

/** What a tenant may have. */
export interface Share {
  /** Its share beside other tenants. */
  readonly weight: number;
  /** The most of its tasks at once. */
  readonly quota?: number | undefined;
}

/** A task that waits. */
export interface WaitingTask extends TaskKey {
  readonly pool: string;
  readonly priority: Priority;
}

/** How shares are decided. */
export interface FairShareOptions {
  /** What each tenant may have; one that is not there has weight 1 and no quota. */
  readonly shares: () => ReadonlyMap<string, Share>;
  /** How long a task waits for a host that is hot for its tenant while others are free, in milliseconds. */
  readonly affinityMs: number;
  /** Before the number of each grant. */
  readonly name: string;
}

interface Waiting extends WaitingTask {
  /** When it came, and later for a lower priority: the smallest is next. */
  readonly rank: number;
  /** Not granted before. */
  readonly notBefore: number;
}

interface Held extends WaitingTask {
  readonly rank: number;
  readonly worker: string;
  readonly grant: string;
  readonly at: number;
}

interface Host {
  readonly worker: string;
  readonly pool: string;
  slots: number;
  hot: ReadonlySet<string>;
  heardAt: number;
}

/** The tasks of one tenant in one pool. */
interface Lane {
  readonly tenant: string;
  readonly pool: string;
  readonly queues: Readonly<Record<Priority, Waiting[]>>;
  /** Given back: they wait a little. */
  later: Waiting[];
  /** What it was given, by its weight: the smallest is next among those with the same share of slots. */
  pass: number;
  /** Since when its next task waits for a host that is hot. */
  waitsSince: number | null;
}

/** Decides for one fleet. */
export class FairShare {
  readonly #options: FairShareOptions;
  readonly #lanes = new Map<string, Lane>();
  readonly #known = new Set<string>();
  readonly #held = new Map<string, Held>();
  readonly #running = new Map<string, number>();
  readonly #load = new Map<string, number>();
  readonly #hosts = new Map<string, Host>();
  #number = 0;
  #pass = 0;

  constructor(options: FairShareOptions) {
    this.#options = options;
  }

  /** A task is in the queue. The same one again changes nothing. */
  queued(task: WaitingTask, now: number): void {
    const key = keyOf(task);
    if (this.#known.has(key) || this.#held.has(key)) return;
    this.#wait({ ...task, rank: now + RANK[task.priority] * AGING_MS, notBefore: 0 });
  }

  /** A host has said what it has. Returns tasks that it should have and has not: nobody knows whether they are over. */
  offered(pool: string, offer: Offer, now: number): WaitingTask[] {
    const { worker, slots } = offer;
    this.#hosts.set(worker, { worker, pool, slots, hot: new Set(offer.hot), heardAt: now });
    for (const [tenant, id, grant] of offer.has) this.#found({ tenant, id }, { worker, pool, grant, now });
    for (const [tenant, id, grant, againMs] of offer.ended) this.#ended({ tenant, id }, worker, grant, againMs, now);
    const has = new Set(offer.has.map(([tenant, id]) => keyOf({ tenant, id })));
    const doubtful = this.#heldBy(worker).filter(held => !has.has(keyOf(held)) && now - held.at > DOUBT_MS);
    return doubtful;
  }

  /** A task is in no queue any more. */
  over(key: TaskKey): void {
    this.#release(key);
  }

  /** A task that a host should have had is to be begun by any. */
  again(key: TaskKey, now: number): void {
    const held = this.#release(key);
    if (held) this.#wait({ ...held, notBefore: now });
  }

  /** A host is no more. What it had waits again, in its old place. */
  lost(worker: string, now: number): void {
    this.#hosts.delete(worker);
    for (const held of this.#heldBy(worker)) this.again(held, now);
  }

  /** Hosts that have not been heard of for a while. */
  silent(now: number): string[] {
    return [...this.#hosts.values()].filter(host => now - host.heardAt > SILENT_MS).map(({ worker }) => worker);
  }

  /** How many tasks of a tenant are granted. */
  running(tenant: string): number {
    return this.#running.get(tenant) ?? 0;
  }

  /** How many tasks wait. */
  get waiting(): number {
    return this.#known.size;
  }

  /** The grants of this moment; they count as granted from now on. And when to ask again if nothing happens. */
  decide(now: number): { readonly grants: (Grant & { readonly worker: string })[]; readonly againMs: number | null } {
    const grants: (Grant & { readonly worker: string })[] = [];
    const blocked = new Set<Lane>();
    for (;;) {
      const free = this.#free(now);
      const lane = free.size === 0 ? null : this.#next(free, blocked, now);
      if (!lane) break;
      const host = this.#hostFor(lane, free.get(lane.pool) ?? [], now);
      if (host) grants.push(this.#grant(lane, host, now));
      else blocked.add(lane);
    }
    return { grants, againMs: this.#againMs(blocked, now) };
  }

  #againMs(blocked: ReadonlySet<Lane>, now: number): number | null {
    const waits = [...blocked].map(({ waitsSince }) => (waitsSince ?? now) + this.#options.affinityMs);
    const later = [...this.#lanes.values()].flatMap(lane => lane.later.map(({ notBefore }) => notBefore));
    const next = Math.min(...waits, ...later.filter(at => at > now));
    return next === Infinity ? null : Math.max(1, next - now);
  }

  // Few of the slots that its weight is due, then few grants: nobody who waits and may have more is passed over for long.
  #next(free: ReadonlyMap<string, Host[]>, blocked: ReadonlySet<Lane>, now: number): Lane | null {
    const lanes = [...this.#lanes.values()].filter(lane => free.has(lane.pool) && !blocked.has(lane));
    let best: Candidate | null = null;
    for (const lane of lanes) {
      const share = headOf(lane, now) ? this.#shareOf(lane.tenant) : null;
      if (share !== null && (!best || isBefore({ lane, share }, best))) best = { lane, share };
    }
    return best?.lane ?? null;
  }

  // How much of its due a tenant has; null where it has all that it may.
  #shareOf(tenant: string): number | null {
    const { weight, quota = Infinity } = this.#shares(tenant);
    const running = this.running(tenant);
    return running >= quota ? null : running / weight;
  }

  #shares(tenant: string): Share {
    return this.#options.shares().get(tenant) ?? { weight: 1 };
  }

  // A host that has a process of the tenant begins at once; for one that is busy the task waits a little.
  #hostFor(lane: Lane, free: readonly Host[], now: number): Host | null {
    const isHot = ({ hot }: Host): boolean => hot.has(lane.tenant);
    const hot = free.filter(isHot);
    const best = this.#emptiest(hot.length > 0 ? hot : free);
    const mayWait = hot.length === 0 && [...this.#hosts.values()].some(one => one.pool === lane.pool && isHot(one));
    if (!mayWait || this.#options.affinityMs === 0) return best;
    lane.waitsSince ??= now;
    return now - lane.waitsSince >= this.#options.affinityMs ? best : null;
  }

  #emptiest(hosts: readonly Host[]): Host | null {
    return hosts.reduce<Host | null>(
      (best, host) => (best && this.#room(best) >= this.#room(host) ? best : host),
      null,
    );
  }

  #room({ worker, slots }: Host): number {
    return slots - (this.#load.get(worker) ?? 0);
  }

  #free(now: number): Map<string, Host[]> {
    const free = new Map<string, Host[]>();
    for (const host of this.#hosts.values()) {
      if (now - host.heardAt > SILENT_MS || this.#room(host) <= 0) continue;
      const same = free.get(host.pool);
      if (same) same.push(host);
      else free.set(host.pool, [host]);
    }
    return free;
  }

  #grant(lane: Lane, { worker }: Host, now: number) {
    const task = takeHead(lane, now);
    this.#number += 1;
    const grant = `${this.#options.name}.${this.#number}`;
    lane.waitsSince = null;
    this.#pass = Math.max(this.#pass, lane.pass);
    lane.pass = this.#pass + 1 / this.#shares(lane.tenant).weight;
    this.#known.delete(keyOf(task));
    this.#hold({ ...task, worker, grant, at: now });
    const { tenant, id, pool, priority } = task;
    return { tenant, id, pool, priority, grant, worker };
  }

  // Granted by a gate of before, or by this one.
  #found(key: TaskKey, of: { worker: string; pool: string; grant: string; now: number }): void {
    const name = keyOf(key);
    const held = this.#held.get(name);
    if (held?.worker === of.worker && held.grant === of.grant) return;
    if (held) this.#release(key);
    const waiting = this.#withdraw(name, key.tenant, of.pool);
    const { worker, pool, grant, now } = of;
    const { priority, rank } = waiting ?? held ?? { priority: 'normal' as const, rank: now };
    this.#hold({ ...key, pool, priority, rank, worker, grant, at: now });
  }

  #ended(key: TaskKey, worker: string, grant: string, againMs: number | null, now: number): void {
    const held = this.#held.get(keyOf(key));
    if (held?.worker !== worker || held.grant !== grant) return;
    this.#release(key);
    if (againMs !== null) this.#wait({ ...held, notBefore: now + againMs });
  }

  #wait(task: Waiting): void {
    const { tenant, id, pool, priority, rank, notBefore } = task;
    const lane = this.#lane(tenant, pool);
    this.#known.add(keyOf(task));
    const waiting = { tenant, id, pool, priority, rank, notBefore };
    if (notBefore > 0) lane.later.push(waiting);
    else lane.queues[priority].push(waiting);
  }

  #lane(tenant: string, pool: string): Lane {
    const name = `${pool} ${tenant}`;
    const known = this.#lanes.get(name);
    if (known) return known;
    // Who was away has no claim to what it did not ask for.
    const lane: Lane = {
      tenant,
      pool,
      queues: { high: [], normal: [], low: [] },
      later: [],
      pass: this.#pass,
      waitsSince: null,
    };
    this.#lanes.set(name, lane);
    return lane;
  }

  #withdraw(name: string, tenant: string, pool: string): Waiting | null {
    if (!this.#known.delete(name)) return null;
    const lane = this.#lane(tenant, pool);
    for (const queue of [...Object.values(lane.queues), lane.later]) {
      const at = queue.findIndex(task => keyOf(task) === name);
      if (at >= 0) return queue.splice(at, 1)[0] ?? null;
    }
    return null;
  }

  #hold(held: Held): void {
    this.#held.set(keyOf(held), held);
    count(this.#running, held.tenant, 1);
    count(this.#load, held.worker, 1);
  }

  #release(key: TaskKey): Held | null {
    const held = this.#held.get(keyOf(key));
    if (!held) return null;
    this.#held.delete(keyOf(key));
    count(this.#running, held.tenant, -1);
    count(this.#load, held.worker, -1);
    return held;
  }

  #heldBy(worker: string): Held[] {
    return [...this.#held.values()].filter(held => held.worker === worker);
  }
}

interface Candidate {
  readonly lane: Lane;
  readonly share: number;
}

function isBefore(one: Candidate, other: Candidate): boolean {
  return one.share < other.share || (one.share === other.share && one.lane.pass < other.lane.pass);
}

// The head of the three queues whose wait is longest, where a lower priority begins to count a minute later.
function headOf(lane: Lane, now: number): Waiting | null {
  const due = lane.later.filter(({ notBefore }) => notBefore <= now);
  if (due.length > 0) {
    lane.later = lane.later.filter(task => !due.includes(task));
    for (const task of due) lane.queues[task.priority].unshift(task);
  }
  const heads = Object.values(lane.queues).flatMap(([head]) => head ?? []);
  return heads.reduce<Waiting | null>((best, head) => (best && best.rank <= head.rank ? best : head), null);
}

function takeHead(lane: Lane, now: number): Waiting {
  const head = headOf(lane, now);
  if (!head) throw new Error('the lane is empty');
  lane.queues[head.priority].shift();
  return head;
}

function count(map: Map<string, number>, name: string, by: number): void {
  const left = (map.get(name) ?? 0) + by;
  if (left > 0) map.set(name, left);
  else map.delete(name);
}

function keyOf({ tenant, id }: TaskKey): string {
  return `${tenant} ${id}`;
}
