// Slots: how many sandboxes run at once. The queue has a deadline. A browser uses it too: nothing of Node is imported here.

import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';

interface Waiter {
  readonly admit: () => void;
}

/** A fixed number of places. Those who wait are admitted in the order they came. */
export class Slots {
  readonly #limit: number;
  readonly #clock: Clock;
  readonly #queue: Waiter[] = [];
  #taken = 0;

  constructor(limit: number, clock: Clock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /** Places taken now. */
  get taken(): number {
    return this.#taken;
  }

  /** Waits for a place, at most `deadlineMs` (0: not at all). The returned function gives it back; calling it twice does nothing. */
  async take(deadlineMs: number, signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    if (this.#taken < this.#limit) this.#taken += 1;
    else await this.#wait(deadlineMs, signal);
    let given = false;
    return () => {
      if (given) return;
      given = true;
      this.#release();
    };
  }

  // A freed place passes straight to the next in line, so a newcomer cannot slip in between.
  #release(): void {
    const next = this.#queue.shift();
    if (next) next.admit();
    else this.#taken -= 1;
  }

  async #wait(deadlineMs: number, signal: AbortSignal): Promise<void> {
    const full = (): AcodeError => new AcodeError('ACODE-CTN-009', { limit: this.#limit, waitedMs: deadlineMs });
    if (deadlineMs <= 0) throw full();
    await new Promise<void>((resolve, reject) => {
      const settle = (finish: () => void): void => {
        cancelTimer();
        signal.removeEventListener('abort', onAbort);
        finish();
      };
      const waiter: Waiter = { admit: () => settle(resolve) };
      const leave = (reason: unknown): void => {
        this.#queue.splice(this.#queue.indexOf(waiter), 1);
        settle(() => reject(reason));
      };
      const onAbort = (): void => leave(signal.reason);
      const cancelTimer = this.#clock.after(deadlineMs, () => leave(full()));
      signal.addEventListener('abort', onAbort, { once: true });
      this.#queue.push(waiter);
    });
  }
}
