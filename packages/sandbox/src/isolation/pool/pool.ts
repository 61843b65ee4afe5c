// Waiting sandboxes kept ready, over any backend: made ahead, given out once, and gone when nobody asks for them.

import type { Duplex } from 'node:stream';
import { AcodeError } from '../../contract/errors.ts';
import { usesEngine } from '../../contract/levels.ts';
import type { Clock } from '../../contract/ports.ts';
import type { PublishedPort } from '../../contract/result.ts';
import type { RestPeriod } from '../../contract/scan.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { EXPIRES } from '../../lifecycle/labels.ts';
import type { CommandIo, Execution, OpenSandbox, WaitingSandbox } from '../backend.ts';
import type { Handover } from '../handover/script.ts';
import { unlessCancelled } from '../../lifecycle/clock.ts';
import {
  dispose,
  isExposed,
  isOvertaken,
  type Kind,
  kindOf,
  newest,
  type PreparedSandbox,
  type SandboxTemplate,
  stateOf,
  type Waiting,
} from './pool-kind.ts';
import { decidePool, type ExpiryReason, type PoolLimits } from './pool-size.ts';

/** Why a sandbox left the pool without a command. */
export type Discarded = ExpiryReason | 'outdated' | 'expires soon' | 'lost' | 'changed' | 'closing';

/** What happens in a pool, for whoever keeps logs. */
export interface PoolObserver {
  /** How many wait now. */
  waiting(count: number): void;
  discarded(made: PreparedSandbox, why: Discarded, error?: unknown): void;
  /** One that was discarded is gone, as far as its backend can tell. */
  removed(made: PreparedSandbox, rest: RestPeriod | null): void;
  /** One could not be made. Nobody who runs a command hears of it. */
  failed(template: SandboxTemplate, error: unknown): void;
}

/** How a pool is run. */
export interface PoolOptions {
  readonly limits: PoolLimits;
  readonly clock: Clock;
  /** Fires when the session ends: everything that waits goes then. */
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Makes and verifies one. Until it is given out it hears the signal; afterwards its command does. */
  readonly make: (template: SandboxTemplate, signal: AbortSignal) => Promise<PreparedSandbox>;
  readonly observer: PoolObserver;
}

/** What a command asks of the sandbox it gets. */
export interface Wanted {
  /** How long it may still live before its hard maximum. */
  readonly lifeMs: number;
  readonly signal: AbortSignal;
}

// What was just asked for is about to run: what replaces it begins when that has had its first moments.
const REFILL_AFTER_MS = 25;
const MAX_REQUESTS = 256;
const MAX_KINDS = 32;

/** The sandboxes of one host that wait. */
export class Pool {
  readonly #options: PoolOptions;
  readonly #kinds = new Map<string, Kind>();
  #begun: number[] = [];
  #cold = 0;
  #timer: { readonly due: number; readonly cancel: () => void } | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
    options.closing.addEventListener('abort', () => this.#close(), { once: true });
  }

  /** How many wait. */
  get waiting(): number {
    return [...this.#kinds.values()].reduce((sum, { waiting }) => sum + waiting.size, 0);
  }

  /** Whether a sandbox waits here, by the backend’s own id of it. */
  holds(id: string): boolean {
    return [...this.#kinds.values()].some(({ waiting }) => waiting.has(id));
  }

  /** How many of a kind wait; null where none of it ever can. */
  ready({ key }: Pick<SandboxTemplate, 'key'>): number | null {
    const kind = this.#kinds.get(key);
    return kind?.unfit === true ? null : (kind?.waiting.size ?? 0);
  }

  /** Why none of a kind could be made the last time; null where that did not fail. */
  failure({ key }: Pick<SandboxTemplate, 'key'>): unknown {
    return this.#kinds.get(key)?.failure ?? null;
  }

  /** What waits, by the image it was made from; without an engine there is none. */
  images(): { image: string; count: number; ids: readonly string[] }[] {
    const found = new Map<string, string[]>();
    for (const { template, waiting } of this.#kinds.values()) {
      const image = usesEngine(template.spec.level) ? template.spec.image.reference : '';
      if (waiting.size > 0) found.set(image, [...(found.get(image) ?? []), ...waiting.keys()]);
    }
    return [...found].map(([image, ids]) => ({ image, count: ids.length, ids }));
  }

  /** Has the kind ready for its first request. What was asked for meanwhile comes before it. */
  expect(template: SandboxTemplate): void {
    if (this.#isOver) return;
    const wasAsked = [...this.#kinds.values()].some(({ requests }) => requests.length > 0);
    const kind = this.#kindOf(template);
    if (wasAsked && kind.requests.length === 0) kind.lastAsked = 0;
    this.#think(0);
  }

  /**
   * Gives out one sandbox of a kind, once and for ever; null where none waits that still is what was planned. It is out of
   * the pool before anything is waited for, so that no two callers can have the same.
   */
  async take(template: SandboxTemplate, wanted: Wanted): Promise<PreparedSandbox | null> {
    if (this.#isOver) return null;
    const kind = this.#kindOf(template);
    const now = this.#options.clock.monotonic();
    kind.requests = [...kind.requests.slice(1 - MAX_REQUESTS), now];
    this.#think(REFILL_AFTER_MS);
    for (let one = newest(kind); one; one = newest(kind)) {
      kind.waiting.delete(one.sandbox.id);
      this.#tell();
      if (await this.#stillGood(one, wanted)) {
        const rest = one.sandbox.keeping?.rest();
        return { ...one, ...(rest ? { rest } : {}), sandbox: new LeasedSandbox(one.sandbox, one.stop) };
      }
      wanted.signal.throwIfAborted();
    }
    return null;
  }

  /**
   * Lets a caller make a sandbox for themselves, before any that would only wait. What waits could be given a command at any
   * moment, and so counts as a neighbour: what could exchange the caller’s mounts goes first.
   */
  async during<Value>(spec: SandboxSpec, signal: AbortSignal, making: () => Promise<Value>): Promise<Value> {
    this.#cold += 1;
    const above = [...this.#kinds.values()].filter(kind => isExposed(spec, kind));
    for (const kind of above) kind.held += 1;
    try {
      if (above.length > 0) await unlessCancelled(Promise.all(above.map(kind => this.#clear(kind))), signal);
      return await making();
    } finally {
      for (const kind of above) kind.held -= 1;
      this.#cold -= 1;
      this.#think(REFILL_AFTER_MS);
    }
  }

  get #isOver(): boolean {
    return this.#options.closing.aborted;
  }

  #kindOf(template: SandboxTemplate): Kind {
    const lastAsked = this.#options.clock.monotonic();
    const known = this.#kinds.get(template.key);
    this.#outdate(template);
    if (known) {
      known.template = template;
      known.lastAsked = lastAsked;
      return known;
    }
    const kind = kindOf(template, lastAsked);
    this.#kinds.set(template.key, kind);
    this.#forgetKinds();
    return kind;
  }

  // What waits for a plan that cannot come again waits for nobody.
  #outdate({ key, spec }: SandboxTemplate): void {
    for (const kind of this.#kinds.values()) {
      if (kind.template.key === key || kind.waiting.size === 0 || !isOvertaken(kind.template.spec, spec)) continue;
      for (const one of kind.waiting.values()) this.#discard(kind, one, 'outdated');
    }
  }

  #forgetKinds(): void {
    const idle = [...this.#kinds.values()].filter(({ waiting, making }) => waiting.size === 0 && making === 0);
    idle.sort((one, other) => one.lastAsked - other.lastAsked);
    for (const kind of idle.slice(0, Math.max(0, this.#kinds.size - MAX_KINDS))) this.#kinds.delete(kind.template.key);
  }

  // What changed since it was verified: its mounts, its process, its time. That image, mounts and policy are still what the
  // plan says the plan itself shows, which was made for this very command and has the same hash.
  async #stillGood(one: Waiting, { lifeMs, signal }: Wanted): Promise<boolean> {
    const expires = Date.parse(one.spec.identity.labels[EXPIRES] ?? '');
    if (!(expires - this.#options.clock.now() >= lifeMs)) {
      this.#leave(one, 'expires soon');
      return false;
    }
    try {
      await one.sandbox.keeping?.recheck(signal);
      if (!this.#isOver && !signal.aborted) return true;
      this.#leave(one, 'closing');
    } catch (error) {
      this.#leave(one, signal.aborted ? 'closing' : 'changed', error);
    }
    return false;
  }

  // At the latest in so many milliseconds.
  #think(ms: number): void {
    const { clock } = this.#options;
    const due = clock.monotonic() + ms;
    if (this.#isOver || (this.#timer && this.#timer.due <= due)) return;
    this.#timer?.cancel();
    const cancel = clock.after(ms, () => {
      this.#timer = null;
      this.#act();
    });
    this.#timer = { due, cancel };
  }

  #act(): void {
    if (this.#isOver) return;
    const { clock, limits } = this.#options;
    const now = clock.monotonic();
    this.#begun = this.#begun.filter(at => now - at < 1000);
    const kinds = [...this.#kinds.values()].map(kind => stateOf(kind, this.#isCrowded(kind)));
    const decision = decidePool({ now, limits, cold: this.#cold, begun: this.#begun, kinds });
    for (const { key, id, why } of decision.remove) {
      const kind = this.#kinds.get(key);
      const one = kind?.waiting.get(id);
      if (kind && one) this.#discard(kind, one, why);
    }
    for (const key of decision.make) {
      const kind = this.#kinds.get(key);
      if (kind) this.#begin(kind);
    }
    if (decision.againMs !== null) this.#think(Math.max(1, Math.ceil(decision.againMs)));
  }

  // Beside what waits already one of these would be refused.
  #isCrowded(kind: Kind): boolean {
    const others = [...this.#kinds.values()].filter(other => other !== kind && other.waiting.size + other.making > 0);
    return others.some(other => isExposed(kind.template.spec, other));
  }

  // Nobody is taken to want them again: else they would be back before the one they had to go for.
  async #clear(kind: Kind): Promise<void> {
    kind.requests = [];
    kind.lastAsked = 0;
    await Promise.all(kind.underWay);
    const waiting = [...kind.waiting.values()];
    kind.waiting.clear();
    this.#tell();
    await Promise.all(waiting.map(one => this.#remove(one, 'room')));
  }

  #begin(kind: Kind): void {
    const making = this.#make(kind).finally(() => kind.underWay.delete(making));
    kind.underWay.add(making);
    this.#options.keep(making);
  }

  // Never rejects: nobody waits for it.
  async #make(kind: Kind): Promise<void> {
    const { clock, observer, closing } = this.#options;
    const { template } = kind;
    const began = clock.monotonic();
    const stop = new AbortController();
    const close = (): void => stop.abort(closing.reason);
    closing.addEventListener('abort', close, { once: true });
    kind.making += 1;
    this.#begun.push(began);
    try {
      const made = await this.#options.make(template, stop.signal);
      kind.failures = 0;
      kind.failure = null;
      kind.leadMs = (kind.leadMs + (clock.monotonic() - began)) / 2;
      this.#add(kind, { ...made, since: clock.monotonic(), stop });
    } catch (error) {
      if (!this.#isOver) observer.failed(template, error);
      kind.failures += 1;
      kind.failure = error;
      kind.failedAt = clock.monotonic();
    } finally {
      closing.removeEventListener('abort', close);
      kind.making -= 1;
      this.#think(0);
    }
  }

  #add(kind: Kind, one: Waiting): void {
    const { keeping, id } = one.sandbox;
    if (!keeping) {
      // Nothing waits in it, so that it was no use to make it ahead; nor will the next one be.
      kind.unfit = true;
      this.#options.keep(dispose(one));
      return;
    }
    if (this.#isOver) {
      this.#leave(one, 'closing');
      return;
    }
    kind.waiting.set(id, one);
    this.#tell();
    const lost = (): void => {
      if (kind.waiting.get(id) === one) this.#discard(kind, one, 'lost');
    };
    keeping.lost.then(lost, lost);
  }

  #discard(kind: Kind, one: Waiting, why: Discarded): void {
    kind.waiting.delete(one.sandbox.id);
    this.#tell();
    this.#think(REFILL_AFTER_MS);
    this.#leave(one, why);
  }

  // Off everybody’s path; closing waits for it.
  #leave(one: Waiting, why: Discarded, error?: unknown): void {
    this.#options.keep(this.#remove(one, why, error));
  }

  #remove(one: Waiting, why: Discarded, error?: unknown): Promise<void> {
    const { observer } = this.#options;
    observer.discarded(one, why, error);
    const rest = one.sandbox.keeping?.rest() ?? null;
    return dispose(one).finally(() => observer.removed(one, rest));
  }

  #tell(): void {
    this.#options.observer.waiting(this.waiting);
  }

  #close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    for (const kind of this.#kinds.values())
      for (const one of kind.waiting.values()) this.#discard(kind, one, 'closing');
  }
}

// A sandbox that waited and was given out: from then on it ends with its command, and not with the pool it came from.

/** One that was given out. What it waits for of its engine is given up through `stop` when its command is cancelled. */
class LeasedSandbox implements WaitingSandbox {
  readonly openForwarder?: (signal: AbortSignal) => Promise<Duplex>;
  readonly #sandbox: WaitingSandbox;
  readonly #stop: AbortController;
  #unhear: () => void = () => undefined;

  constructor(sandbox: WaitingSandbox, stop: AbortController) {
    this.#sandbox = sandbox;
    this.#stop = stop;
    // A caller takes its absence for a sandbox that needs none.
    if (sandbox.openForwarder) this.openForwarder = sandbox.openForwarder.bind(sandbox);
  }

  get id(): string {
    return this.#sandbox.id;
  }

  get specHash(): string {
    return this.#sandbox.specHash;
  }

  get ports(): readonly PublishedPort[] {
    return this.#sandbox.ports;
  }

  verify(signal: AbortSignal): Promise<void> {
    return this.#sandbox.verify(signal);
  }

  execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    const leave = (): void => this.#stop.abort(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    if (signal.aborted) leave();
    this.#unhear = () => signal.removeEventListener('abort', leave);
    return this.#sandbox.execute(handover, io, signal);
  }

  async keepOpen(how: { readonly outlives: boolean }, signal: AbortSignal): Promise<OpenSandbox> {
    if (!this.#sandbox.keepOpen) throw new AcodeError('ACODE-SBX-019', { operation: 'keepOpen' });
    return this.#sandbox.keepOpen(how, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#unhear();
    await this.#sandbox[Symbol.asyncDispose]();
  }
}
