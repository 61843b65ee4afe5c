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

/** Shells that wait, each given out once. */
export class ReadyExecs {
  readonly #options: ReadyExecsOptions;
  readonly #waiting: ReadyExec[] = [];
  /** Those being started, whoever will have them. */
  readonly #starting = new Set<Promise<ReadyExec | null>>();
  #cancelRefill: (() => void) | null = null;
  #closed = false;

  constructor(options: ReadyExecsOptions) {
    this.#options = options;
  }

  /** Has as many as there should be, without anybody waiting for them. */
  refill(): void {
    this.#cancelRefill?.();
    this.#cancelRefill = null;
    if (this.#closed) return;
    this.#prune();
    while (this.#waiting.length + this.#starting.size < this.#options.count) this.#begin();
  }

  /** One that waits, or the next that is there. */
  async take(signal: AbortSignal): Promise<ReadyExec> {
    this.#prune();
    const waiting = this.#waiting.shift();
    this.#refillSoon();
    if (waiting) return waiting;
    // One that is being started comes sooner than one that is started now, unless it fails.
    const coming = [...this.#starting][0];
    const found = coming ? await unlessCancelled(coming, signal) : null;
    const mine = found ? this.#waiting.indexOf(found) : -1;
    if (found && mine >= 0) {
      this.#waiting.splice(mine, 1);
      return found;
    }
    return this.#startFor(signal);
  }

  close(): void {
    this.#closed = true;
    this.#cancelRefill?.();
    for (const one of this.#waiting.splice(0)) one.stream.destroy();
  }

  // What a caller who left had started waits for the next one, or goes.
  async #startFor(signal: AbortSignal): Promise<ReadyExec> {
    const starting = this.#options.start();
    try {
      return await unlessCancelled(starting, signal);
    } catch (error) {
      starting.then(
        one => one.stream.destroy(),
        () => undefined,
      );
      throw error;
    }
  }

  #begin(): void {
    const starting = this.#options.start().then(
      one => {
        if (this.#closed) one.stream.destroy();
        else this.#waiting.push(one);
        return one;
      },
      // Whoever needs one tries again and hears why.
      () => null,
    );
    this.#starting.add(starting);
    void starting.finally(() => this.#starting.delete(starting));
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
