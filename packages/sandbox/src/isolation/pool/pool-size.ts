// How many sandboxes wait, and of which kind: decided from what was asked for lately, without a clock of its own. Pure.

/** What a pool is held to. */
export interface PoolLimits {
  /** How many wait of the kind that was asked for last, however long nobody asks. */
  readonly min: number;
  /** How many wait at most, of all kinds together. */
  readonly max: number;
  /** How long one waits for nobody before it goes. */
  readonly idleMs: number;
  /** What those that wait may be limited to, added up: each could be given a command at the same moment. */
  readonly memoryBytes: number;
}

/** One sandbox that waits. */
export interface WaitingState {
  readonly id: string;
  /** Since when, in milliseconds of the clock that never jumps. */
  readonly since: number;
}

/** What is known of one kind: of sandboxes with the same plan. */
export interface KindState {
  readonly key: string;
  /** What one of them is limited to. */
  readonly memoryBytes: number;
  readonly waiting: readonly WaitingState[];
  /** How many are being made to wait. */
  readonly making: number;
  /** When one was asked for, oldest first. */
  readonly requests: readonly number[];
  /** When the kind was last spoken of: by a request, or by whoever wants it ready for the first one. */
  readonly lastAsked: number;
  /** How long one takes to be made. */
  readonly leadMs: number;
  /** How often in a row none could be made, and when that was last. */
  readonly failures: number;
  readonly failedAt: number;
  /** Whether it was found out that none can wait. */
  readonly unfit: boolean;
}

/** Everything a decision depends on. */
export interface PoolState {
  readonly now: number;
  readonly limits: PoolLimits;
  /** Sandboxes that callers are having made right now: they come first. */
  readonly cold: number;
  /** When the last ones were begun, oldest first. */
  readonly begun: readonly number[];
  readonly kinds: readonly KindState[];
}

/** Why a sandbox that waits goes unused. */
export type ExpiryReason = 'idle' | 'old' | 'room';

/** What is to be done now, and when to think again if nothing happens before. */
export interface PoolDecision {
  /** The kinds to make one of, in this order; a kind may stand there several times. */
  readonly make: readonly string[];
  readonly remove: readonly { readonly key: string; readonly id: string; readonly why: ExpiryReason }[];
  readonly againMs: number | null;
}

/** How many are made at once, those that callers wait for included: an engine is no faster with more. */
export const MAX_AT_ONCE = 4;
/** How many are begun in a second. */
export const MAX_PER_SECOND = 32;
/** How long one may wait at all, whatever it was kept for: what was verified long ago is made anew. */
export const MAX_WAIT_MS = 30 * 60 * 1000;

const SECOND_MS = 1000;
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 60_000;

/** How long to leave an engine alone after so many failures in a row. */
export function pauseAfter(failures: number): number {
  return failures === 0 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
}

/**
 * The most requests that came within one making of a sandbox: so many are gone before the first of them is replaced. Only
 * the last `withinMs` count, so that a busy hour is forgotten.
 */
export function demandOf(requests: readonly number[], leadMs: number, now: number, withinMs: number): number {
  const recent = requests.filter(at => now - at < withinMs);
  let most = 0;
  let first = 0;
  for (const [last, at] of recent.entries()) {
    while (at - (recent[first] ?? at) > leadMs) first += 1;
    most = Math.max(most, last - first + 1);
  }
  return most;
}

/** Decides what a pool does now. */
export function decidePool(state: PoolState): PoolDecision {
  const { now, limits } = state;
  const kinds = [...state.kinds].sort((one, other) => other.lastAsked - one.lastAsked);
  const plan = new Plan(state, wantedOf(kinds, state));
  for (const kind of kinds) plan.expire(kind);
  for (const kind of kinds) plan.refill(kind, kinds);
  const times = [
    ...kinds.flatMap(kind => plan.kept(kind).map(({ since }) => since + Math.min(limits.idleMs, MAX_WAIT_MS))),
    ...kinds.flatMap(kind => plan.kept(kind).map(({ since }) => since + MAX_WAIT_MS)),
    // The oldest that still counts is forgotten first.
    ...kinds
      .flatMap(({ requests }) => requests.find(at => at + limits.idleMs > now) ?? [])
      .map(at => at + limits.idleMs),
    ...plan.retries,
  ].filter(at => at > now);
  return { make: plan.make, remove: plan.remove, againMs: times.length === 0 ? null : Math.min(...times) - now };
}

// How many of each kind there should be: the kinds in the order they were last asked for, as long as there is room.
function wantedOf(kinds: readonly KindState[], { now, limits }: PoolState): ReadonlyMap<string, number> {
  const wanted = new Map<string, number>();
  let { max: places, memoryBytes: memory } = limits;
  for (const [at, kind] of kinds.entries()) {
    const asked = demandOf(kind.requests, kind.leadMs, now, limits.idleMs);
    const least = at === 0 ? limits.min : 0;
    const fits = Math.floor(memory / Math.max(1, kind.memoryBytes));
    const count = kind.unfit ? 0 : Math.min(Math.max(asked, least), places, fits);
    wanted.set(kind.key, count);
    places -= count;
    memory -= count * kind.memoryBytes;
  }
  return wanted;
}

/** One decision in the making. */
class Plan {
  readonly make: string[] = [];
  readonly remove: { key: string; id: string; why: ExpiryReason }[] = [];
  /** When something that could not be done now may be. */
  readonly retries: number[] = [];
  readonly #state: PoolState;
  readonly #wanted: ReadonlyMap<string, number>;
  readonly #removed = new Set<string>();

  constructor(state: PoolState, wanted: ReadonlyMap<string, number>) {
    this.#state = state;
    this.#wanted = wanted;
  }

  /** Those of a kind that stay, oldest first. */
  kept({ waiting }: KindState): WaitingState[] {
    return waiting.filter(({ id }) => !this.#removed.has(id)).sort((one, other) => one.since - other.since);
  }

  /** Lets go of what has waited for too long. */
  expire(kind: KindState): void {
    const { now, limits } = this.#state;
    for (const { id, since } of this.kept(kind)) {
      const surplus = this.kept(kind).length > this.#wants(kind);
      if (now - since >= MAX_WAIT_MS) this.#drop(kind, id, 'old');
      else if (surplus && now - since >= limits.idleMs) this.#drop(kind, id, 'idle');
    }
  }

  /** Begins what a kind lacks, as far as the limits of all kinds together allow. */
  refill(kind: KindState, kinds: readonly KindState[]): void {
    let lacking = this.#wants(kind) - this.kept(kind).length - kind.making;
    if (lacking <= 0) return;
    const { now } = this.#state;
    const pausedUntil = kind.failedAt + pauseAfter(kind.failures);
    if (kind.failures > 0 && now < pausedUntil) {
      this.retries.push(pausedUntil);
      return;
    }
    // After a failure one try has to show that it goes again.
    if (kind.failures > 0) lacking = Math.min(lacking, 1);
    for (; lacking > 0 && this.#mayBegin() && this.#hasRoom(kind, kinds); lacking -= 1) this.make.push(kind.key);
  }

  #wants({ key }: KindState): number {
    return this.#wanted.get(key) ?? 0;
  }

  #drop({ key }: KindState, id: string, why: ExpiryReason): void {
    this.#removed.add(id);
    this.remove.push({ key, id, why });
  }

  // What callers are waiting for themselves comes first; when that is over, somebody decides again.
  #mayBegin(): boolean {
    const { now, cold, begun, kinds } = this.#state;
    const making = kinds.reduce((sum, kind) => sum + kind.making, 0) + this.make.length;
    if (making + cold >= MAX_AT_ONCE) return false;
    const lately = begun.filter(at => now - at < SECOND_MS);
    if (lately.length + this.make.length < MAX_PER_SECOND) return true;
    this.retries.push((lately[0] ?? now) + SECOND_MS);
    return false;
  }

  // What nobody has asked for lately gives way to what somebody has.
  #hasRoom(kind: KindState, kinds: readonly KindState[]): boolean {
    while (!this.#fits(kind, kinds)) {
      const rich = kinds.findLast(other => this.kept(other).length > this.#wants(other));
      const [oldest] = rich ? this.kept(rich) : [];
      if (!rich || !oldest) return false;
      this.#drop(rich, oldest.id, 'room');
    }
    return true;
  }

  #fits({ memoryBytes }: KindState, kinds: readonly KindState[]): boolean {
    const { limits } = this.#state;
    const memoryOf = new Map(kinds.map(kind => [kind.key, kind.memoryBytes]));
    const there = kinds.map(kind => ({ count: this.kept(kind).length + kind.making, bytes: kind.memoryBytes }));
    const begun = this.make.map(key => ({ count: 1, bytes: memoryOf.get(key) ?? 0 }));
    const all = [...there, ...begun];
    const count = all.reduce((sum, one) => sum + one.count, 1);
    const bytes = all.reduce((sum, one) => sum + one.count * one.bytes, memoryBytes);
    return count <= limits.max && bytes <= limits.memoryBytes;
  }
}
