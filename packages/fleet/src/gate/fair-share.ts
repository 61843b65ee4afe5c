// Fair share: which task is begun next, and where. It decides, and does nothing: time and what happened are passed in.

import { Heap } from '../engine/heap.ts';
import type { Priority, TaskKey } from '../engine/names.ts';
import type { Grant, Offer } from '../tasks/grants.ts';

/** After how much longer a wait a task of the next lower priority goes first. */
const AGING_MS = 60_000;
/** A host that has not been heard of for so long is granted nothing. */
const SILENT_MS = 3000;
/** After so long a granted task has to be among those that its host has. */
const DOUBT_MS = 2000;
/** Of hosts that are hot for a tenant, so many are compared. */
const COMPARED = 16;
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
  /** When it came. */
  readonly since: number;
  /** Not granted before. */
  readonly notBefore: number;
  /** A host has it after all. */
  isGone: boolean;
}

interface Held extends WaitingTask {
  readonly rank: number;
  readonly since: number;
  readonly worker: string;
  readonly grant: string;
  readonly at: number;
}

interface Host {
  readonly worker: string;
  readonly pool: Pool;
  readonly held: Map<string, Held>;
  slots: number;
  hot: ReadonlySet<string>;
  heardAt: number;
}

/** Tasks in the order in which they came. */
class Line {
  #tasks: Waiting[] = [];
  #at = 0;

  get head(): Waiting | undefined {
    while (this.#tasks[this.#at]?.isGone) this.#shift();
    return this.#tasks[this.#at];
  }

  add(task: Waiting): void {
    this.#tasks.push(task);
  }

  addFirst(task: Waiting): void {
    if (this.#at > 0) this.#tasks[(this.#at -= 1)] = task;
    else this.#tasks.unshift(task);
  }

  take(): void {
    if (this.head) this.#shift();
  }

  #shift(): void {
    this.#at += 1;
    if (this.#at < 1024 || this.#at * 2 < this.#tasks.length) return;
    this.#tasks = this.#tasks.slice(this.#at);
    this.#at = 0;
  }
}

/** The tasks of one tenant in one pool. */
interface Lane {
  readonly tenant: Tenant;
  readonly pool: Pool;
  readonly lines: Readonly<Record<Priority, Line>>;
  /** Given back: they wait a little. */
  later: Waiting[];
  /** What it was given, by its weight: the smallest is next among those with the same share of slots. */
  pass: number;
  /** Since when its next task waits for a host that is hot. */
  waitsSince: number | null;
}

interface Tenant {
  readonly name: string;
  readonly lanes: Map<string, Lane>;
  running: number;
  share: Share;
}

/** Hosts and lanes of one pool. */
interface Pool {
  readonly name: string;
  /** Lanes with a task that may be begun now. */
  readonly ready: Heap<Lane>;
  /** Lanes whose task waits for a host that is hot, the one that waits longest first. */
  readonly patient: Heap<Lane>;
  /** Hosts with room that were heard of lately, the emptiest first. */
  readonly free: Heap<Host>;
  /** By tenant: hosts that are hot for it, and how many of those have room. */
  readonly hot: Map<string, { readonly free: Set<Host>; all: number }>;
}

/** Decides for one fleet. A decision takes no longer where there are more hosts, tenants or tasks, but for a logarithm. */
export class FairShare {
  readonly #options: FairShareOptions;
  readonly #pools = new Map<string, Pool>();
  readonly #tenants = new Map<string, Tenant>();
  readonly #known = new Map<string, Waiting>();
  readonly #held = new Map<string, Held>();
  readonly #hosts = new Map<string, Host>();
  /** Lanes with tasks that were given back. */
  readonly #later = new Set<Lane>();
  #shares: ReadonlyMap<string, Share> = new Map();
  #number = 0;
  #pass = 0;
  #turn = 0;

  constructor(options: FairShareOptions) {
    this.#options = options;
  }

  /** A task is in the queue. The same one again changes nothing. */
  queued(task: WaitingTask, now: number): void {
    const key = keyOf(task);
    if (this.#known.has(key) || this.#held.has(key)) return;
    this.#wait(task, { rank: now + RANK[task.priority] * AGING_MS, since: now, notBefore: 0 });
  }

  /** A host has said what it has. Returns tasks that it should have and has not: nobody knows whether they are over. */
  offered(pool: string, offer: Offer, now: number): WaitingTask[] {
    const { worker, slots } = offer;
    const host = this.#host(worker, pool);
    this.#unlist(host);
    host.slots = slots;
    host.hot = new Set(offer.hot);
    host.heardAt = now;
    this.#list(host);
    for (const [tenant, id, grant] of offer.has) this.#found({ tenant, id }, { host, grant, now });
    for (const [tenant, id, grant, againMs] of offer.ended) this.#ended({ tenant, id }, worker, grant, againMs, now);
    const has = new Set(offer.has.map(([tenant, id]) => keyOf({ tenant, id })));
    return [...host.held.values()].filter(held => !has.has(keyOf(held)) && now - held.at > DOUBT_MS);
  }

  /** A task is in no queue any more. */
  over(key: TaskKey): void {
    this.#release(key);
  }

  /** A task that a host should have had is to be begun by any. */
  again(key: TaskKey, now: number): void {
    const held = this.#release(key);
    if (held) this.#wait(held, { rank: held.rank, since: held.since, notBefore: now });
  }

  /** A host is no more. What it had waits again, in its old place. */
  lost(worker: string, now: number): void {
    const host = this.#hosts.get(worker);
    if (!host) return;
    for (const held of host.held.values()) this.again(held, now);
    this.#unlist(host);
    this.#hosts.delete(worker);
  }

  /** Hosts that have not been heard of for a while. */
  silent(now: number): string[] {
    return [...this.#hosts.values()].filter(host => now - host.heardAt > SILENT_MS).map(({ worker }) => worker);
  }

  /** How many tasks of a tenant are granted. */
  running(tenant: string): number {
    return this.#tenants.get(tenant)?.running ?? 0;
  }

  /** How many tasks wait. */
  get waiting(): number {
    return this.#known.size;
  }

  /** What waits and what is free in a pool, for those who add and remove hosts. */
  figures(pool: string, now: number): { readonly waiting: number; readonly oldestMs: number; readonly free: number } {
    const waiting = [...this.#known.values()].filter(task => task.pool === pool);
    const oldestMs = waiting.reduce((most, { since }) => Math.max(most, now - since), 0);
    const hosts = [...this.#hosts.values()].filter(host => host.pool.name === pool && now - host.heardAt <= SILENT_MS);
    const free = hosts.reduce((sum, host) => sum + Math.max(0, roomOf(host)), 0);
    return { waiting: waiting.length, oldestMs, free };
  }

  /** The grants of this moment; they count as granted from now on. And when to ask again if nothing happens. */
  decide(now: number): { readonly grants: (Grant & { readonly worker: string })[]; readonly againMs: number | null } {
    this.#readShares();
    for (const lane of this.#later) this.#putBack(lane, now);
    const grants: (Grant & { readonly worker: string })[] = [];
    const pools = [...this.#pools.values()];
    // A quota is that of all pools: each of them is first in turn.
    this.#turn += 1;
    for (let number = 0; number < pools.length; number += 1) {
      const pool = pools[(number + this.#turn) % pools.length];
      if (pool) this.#decideIn(pool, grants, now);
    }
    return { grants, againMs: this.#againMs(now) };
  }

  #decideIn(pool: Pool, grants: (Grant & { readonly worker: string })[], now: number): void {
    for (let lane = pool.patient.first; lane && this.#mayGoAnywhere(lane, now); lane = pool.patient.first) {
      pool.patient.remove(lane);
      this.#rank(lane);
    }
    for (;;) {
      const emptiest = emptiestOf(pool, now);
      const lane = emptiest && pool.ready.first;
      if (!lane) return;
      const host = this.#hostFor(lane, emptiest, now);
      if (host) grants.push(this.#grant(lane, host, now));
      else {
        pool.ready.remove(lane);
        pool.patient.put(lane);
      }
    }
  }

  #againMs(now: number): number | null {
    let next = Infinity;
    for (const { patient } of this.#pools.values())
      if (patient.first) next = Math.min(next, (patient.first.waitsSince ?? now) + this.#options.affinityMs);
    for (const { later } of this.#later) for (const { notBefore } of later) next = Math.min(next, notBefore);
    return next === Infinity ? null : Math.max(1, next - now);
  }

  // They change where the operator changes them.
  #readShares(): void {
    const shares = this.#options.shares();
    if (shares === this.#shares) return;
    this.#shares = shares;
    for (const tenant of this.#tenants.values()) {
      tenant.share = shares.get(tenant.name) ?? { weight: 1 };
      this.#rankAll(tenant);
    }
  }

  #rankAll(tenant: Tenant): void {
    for (const lane of tenant.lanes.values()) this.#rank(lane);
  }

  // Few of the slots that its weight is due, then few grants: nobody who waits and may have more is passed over for long.
  #rank(lane: Lane): void {
    const { pool, tenant } = lane;
    const isReady = headOf(lane) !== null && tenant.running < (tenant.share.quota ?? Infinity);
    if (!isReady) pool.patient.remove(lane);
    if (isReady && !pool.patient.has(lane)) pool.ready.put(lane);
    else pool.ready.remove(lane);
  }

  // A host that has a process of the tenant begins at once; for one that is busy the task waits a little.
  #hostFor(lane: Lane, emptiest: Host, now: number): Host | null {
    const hot = lane.pool.hot.get(lane.tenant.name);
    const best = hot ? emptiestHot(hot.free, now) : null;
    if (best || !hot || this.#options.affinityMs === 0) return best ?? emptiest;
    lane.waitsSince ??= now;
    return this.#mayGoAnywhere(lane, now) ? emptiest : null;
  }

  #mayGoAnywhere({ waitsSince }: Lane, now: number): boolean {
    return waitsSince !== null && now - waitsSince >= this.#options.affinityMs;
  }

  #grant(lane: Lane, host: Host, now: number) {
    const task = takeHead(lane);
    const { tenant, id, pool, priority, rank, since } = task;
    this.#number += 1;
    const grant = `${this.#options.name}.${this.#number}`;
    lane.waitsSince = null;
    this.#pass = Math.max(this.#pass, lane.pass);
    lane.pass = this.#pass + 1 / lane.tenant.share.weight;
    this.#known.delete(keyOf(task));
    this.#hold({ tenant, id, pool, priority, rank, since, worker: host.worker, grant, at: now }, host);
    return { tenant, id, pool, priority, grant, worker: host.worker };
  }

  // Granted by a gate of before, or by this one.
  #found(key: TaskKey, { host, grant, now }: { host: Host; grant: string; now: number }): void {
    const name = keyOf(key);
    const held = this.#held.get(name);
    if (held?.worker === host.worker && held.grant === grant) return;
    if (held) this.#release(key);
    const waiting = this.#known.get(name);
    if (waiting) {
      this.#known.delete(name);
      waiting.isGone = true;
    }
    const { priority, rank, since } = waiting ?? held ?? { priority: 'normal' as const, rank: now, since: now };
    const pool = host.pool.name;
    this.#hold({ ...key, pool, priority, rank, since, worker: host.worker, grant, at: now }, host);
  }

  #ended(key: TaskKey, worker: string, grant: string, againMs: number | null, now: number): void {
    const held = this.#held.get(keyOf(key));
    if (held?.worker !== worker || held.grant !== grant) return;
    this.#release(key);
    if (againMs !== null) this.#wait(held, { rank: held.rank, since: held.since, notBefore: now + againMs });
  }

  #wait(task: WaitingTask, at: { readonly rank: number; readonly since: number; readonly notBefore: number }): void {
    const { tenant, id, pool, priority } = task;
    const lane = this.#lane(tenant, pool);
    const waiting: Waiting = { tenant, id, pool, priority, ...at, isGone: false };
    this.#known.set(keyOf(task), waiting);
    if (at.notBefore > 0) {
      lane.later.push(waiting);
      this.#later.add(lane);
    } else {
      lane.lines[priority].add(waiting);
      this.#rank(lane);
    }
  }

  #putBack(lane: Lane, now: number): void {
    const due = lane.later.filter(({ notBefore, isGone }) => isGone || notBefore <= now);
    if (due.length === 0) return;
    lane.later = lane.later.filter(task => !due.includes(task));
    if (lane.later.length === 0) this.#later.delete(lane);
    for (const task of due) lane.lines[task.priority].addFirst(task);
    this.#rank(lane);
  }

  #tenant(name: string): Tenant {
    const known = this.#tenants.get(name);
    if (known) return known;
    const tenant: Tenant = { name, lanes: new Map(), running: 0, share: this.#shares.get(name) ?? { weight: 1 } };
    this.#tenants.set(name, tenant);
    return tenant;
  }

  #pool(name: string): Pool {
    const known = this.#pools.get(name);
    if (known) return known;
    const pool: Pool = {
      name,
      ready: new Heap(isBefore),
      patient: new Heap((one, other) => (one.waitsSince ?? 0) < (other.waitsSince ?? 0)),
      free: new Heap((one, other) => roomOf(one) > roomOf(other)),
      hot: new Map(),
    };
    this.#pools.set(name, pool);
    return pool;
  }

  #lane(name: string, pool: string): Lane {
    const tenant = this.#tenant(name);
    const known = tenant.lanes.get(pool);
    if (known) return known;
    const lane: Lane = {
      tenant,
      pool: this.#pool(pool),
      lines: { high: new Line(), normal: new Line(), low: new Line() },
      later: [],
      // Who was away has no claim to what it did not ask for.
      pass: this.#pass,
      waitsSince: null,
    };
    tenant.lanes.set(pool, lane);
    return lane;
  }

  #host(worker: string, pool: string): Host {
    const known = this.#hosts.get(worker);
    if (known) return known;
    const host: Host = { worker, pool: this.#pool(pool), held: new Map(), slots: 0, hot: new Set(), heardAt: 0 };
    this.#hosts.set(worker, host);
    return host;
  }

  // A host among those of its pool, as it is now.
  #list(host: Host): void {
    const { pool } = host;
    const hasRoom = roomOf(host) > 0;
    if (hasRoom) pool.free.put(host);
    for (const tenant of host.hot) {
      const of = pool.hot.get(tenant) ?? { free: new Set(), all: 0 };
      of.all += 1;
      pool.hot.set(tenant, of);
      if (hasRoom) of.free.add(host);
    }
    if (hasRoom) this.#wake(host);
  }

  #unlist(host: Host): void {
    const { pool } = host;
    pool.free.remove(host);
    for (const tenant of host.hot) {
      const of = pool.hot.get(tenant);
      if (!of) continue;
      of.all -= 1;
      of.free.delete(host);
      if (of.all === 0) pool.hot.delete(tenant);
    }
  }

  // Its room has changed.
  #relist(host: Host): void {
    const hasRoom = roomOf(host) > 0;
    const { free, hot } = host.pool;
    const hadRoom = free.has(host);
    if (hasRoom) free.put(host);
    else free.remove(host);
    if (hasRoom === hadRoom) return;
    for (const tenant of host.hot) {
      if (hasRoom) hot.get(tenant)?.free.add(host);
      else hot.get(tenant)?.free.delete(host);
    }
    if (hasRoom) this.#wake(host);
  }

  // Tasks that waited for such a host.
  #wake({ pool, hot }: Host): void {
    if (pool.patient.size === 0) return;
    for (const name of hot) {
      const lane = this.#tenants.get(name)?.lanes.get(pool.name);
      if (!lane || !pool.patient.has(lane)) continue;
      pool.patient.remove(lane);
      this.#rank(lane);
    }
  }

  #hold(held: Held, host: Host): void {
    const key = keyOf(held);
    this.#held.set(key, held);
    host.held.set(key, held);
    const tenant = this.#tenant(held.tenant);
    tenant.running += 1;
    this.#rankAll(tenant);
    this.#relist(host);
  }

  #release(key: TaskKey): Held | null {
    const name = keyOf(key);
    const held = this.#held.get(name);
    if (!held) return null;
    this.#held.delete(name);
    const host = this.#hosts.get(held.worker);
    if (host?.held.delete(name)) this.#relist(host);
    const tenant = this.#tenant(held.tenant);
    tenant.running -= 1;
    this.#rankAll(tenant);
    return held;
  }
}

function roomOf({ slots, held }: Host): number {
  return slots - held.size;
}

// One that has not been heard of for a while is taken out, until it is.
function emptiestOf({ free }: Pool, now: number): Host | undefined {
  while (free.first && now - free.first.heardAt > SILENT_MS) free.remove(free.first);
  return free.first;
}

function emptiestHot(hosts: ReadonlySet<Host>, now: number): Host | null {
  let best: Host | null = null;
  let compared = 0;
  for (const host of hosts) {
    const isFree = now - host.heardAt <= SILENT_MS && roomOf(host) > 0;
    if (isFree && (!best || roomOf(host) > roomOf(best))) best = host;
    compared += 1;
    if (compared === COMPARED) break;
  }
  return best;
}

function isBefore(one: Lane, other: Lane): boolean {
  const [share, least] = [
    one.tenant.running / one.tenant.share.weight,
    other.tenant.running / other.tenant.share.weight,
  ];
  return share < least || (share === least && one.pass < other.pass);
}

// The head of the three lines whose wait is longest, where a lower priority begins to count a minute later.
function headOf({ lines }: Lane): Waiting | null {
  let best: Waiting | null = null;
  for (const line of [lines.high, lines.normal, lines.low]) {
    const { head } = line;
    if (head && (!best || head.rank < best.rank)) best = head;
  }
  return best;
}

function takeHead(lane: Lane): Waiting {
  const head = headOf(lane);
  if (!head) throw new Error('the lane is empty');
  lane.lines[head.priority].take();
  return head;
}

function keyOf({ tenant, id }: TaskKey): string {
  return `${tenant} ${id}`;
}
