// The shells that wait inside a container that stays, so that a command there need not wait for one to be started.

import type { Clock } from '../../contract/ports.ts';
import { unlessCancelled } from '../waiting.ts';
import type { ReadyExec } from './ready-exec.ts';

/** How shells are kept. */
export interface ReadyExecsOptions {
  readonly start: () => Promise<ReadyExec>;
  /** How many wait; none where whoever opened the sandbox runs one command and goes. */
  readonly count: number;
  readonly clock: Clock;
}

// A command that has just begun has the CPU to itself: most are over by then, and the end of one is a better moment.
const REFILL_AFTER_MS = 40;
const AGAIN_MS = 50;

// One on its way: it can be written to before it has said who it is. Null where it failed.
interface Coming {
  readonly reached: Promise<ReadyExec | null>;
  readonly ready: Promise<ReadyExec | null>;
}

/** Shells that wait, each given out once. */
export class ReadyExecs {
  readonly #options: ReadyExecsOptions;
  readonly #waiting: ReadyExec[] = [];
  /** Those being started that nobody has asked for yet. */
  readonly #starting = new Set<Coming>();
  #cancelRefill: (() => void) | null = null;
  #count: number;
  #closed = false;

  constructor(options: ReadyExecsOptions) {
    this.#options = options;
    this.#count = options.count;
  }

  /** Has as many as there should be, without anybody waiting for them. */
  refill(): void {
    this.#cancelRefill?.();
    this.#cancelRefill = null;
    if (this.#closed) return;
    this.#prune();
    while (this.#waiting.length + this.#starting.size < this.#count) this.#begin();
  }

  /** One will be taken in a moment: where none waits, the next is on its way by then. */
  expect(): void {
    this.#prune();
    if (!this.#closed && this.#waiting.length + this.#starting.size === 0) this.#begin();
  }

  /** One that waits, or the next that is there. */
  async take(signal: AbortSignal): Promise<ReadyExec> {
    return (await this.#next(signal, 'ready')) ?? taken(this.#started(), signal);
  }

  /** As `take`, without waiting for it to say who it is: that it never does is for the caller to expect. */
  async takeEarly(signal: AbortSignal): Promise<ReadyExec> {
    return (await this.#next(signal, 'reached')) ?? taken(this.#started(), signal);
  }

  /** Lets those go that wait and those on their way; from then on each is started when it is needed. */
  async keepNone(): Promise<void> {
    this.#count = 0;
    this.#cancelRefill?.();
    this.#cancelRefill = null;
    for (const one of this.#waiting.splice(0)) one.stream.destroy();
    const coming = [...this.#starting];
    this.#starting.clear();
    for (const one of await Promise.all(coming.map(({ ready }) => ready))) one?.stream.destroy();
  }

  close(): void {
    this.#closed = true;
    this.#cancelRefill?.();
    for (const one of this.#waiting.splice(0)) one.stream.destroy();
  }

  // One that is being started comes sooner than one that is started now, unless it fails.
  async #next(signal: AbortSignal, when: keyof Coming): Promise<ReadyExec | null> {
    this.#prune();
    const waiting = this.#waiting.shift();
    this.#refillSoon();
    if (waiting) return waiting;
    const [coming] = this.#starting;
    if (!coming) return null;
    this.#starting.delete(coming);
    return taken(coming[when], signal);
  }

  // Where a command that filled the sandbox was ended just now, its processes may still be counted.
  async #started(): Promise<ReadyExec> {
    try {
      return await this.#startedOnce();
    } catch (error) {
      if (this.#closed) throw error;
      await new Promise<void>(resolve => void this.#options.clock.after(AGAIN_MS, resolve));
      return await this.#startedOnce();
    }
  }

  async #startedOnce(): Promise<ReadyExec> {
    const one = await this.#options.start();
    await one.said;
    return one;
  }

  #begin(): void {
    const reached = this.#options.start();
    const ready = reached.then(async one => {
      await one.said;
      const isClaimed = !this.#starting.delete(coming);
      if (this.#closed) one.stream.destroy();
      else if (!isClaimed) this.#waiting.push(one);
      return one;
    });
    // Whoever needs one tries again and hears why.
    const failed = (): null => {
      this.#starting.delete(coming);
      return null;
    };
    const coming: Coming = { reached: reached.catch(failed), ready: ready.catch(failed) };
    this.#starting.add(coming);
  }

  #refillSoon(): void {
    if (this.#closed) return;
    this.#cancelRefill ??= this.#options.clock.after(REFILL_AFTER_MS, () => this.refill());
  }

  #prune(): void {
    for (let at = this.#waiting.length - 1; at >= 0; at -= 1)
      if (this.#waiting[at]?.waits !== true) this.#waiting.splice(at, 1);
  }
}

// What was started for a caller who has left goes.
async function taken<One extends ReadyExec | null>(starting: Promise<One>, signal: AbortSignal): Promise<One> {
  try {
    return await unlessCancelled(starting, signal);
  } catch (error) {
    starting.then(
      one => one?.stream.destroy(),
      () => undefined,
    );
    throw error;
  }
}
