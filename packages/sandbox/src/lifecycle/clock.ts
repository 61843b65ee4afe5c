// Time and waiting: the system’s clock, work with a deadline, waiting for work that goes on without its waiter (it cannot be taken back, or
// others wait for it too), and pauses in long work.

import type { Clock } from '../contract/ports.ts';
import { AcodeError } from '../contract/errors.ts';

/** The real clock. Its timers keep the process alive, or a promise waiting for one might never settle. */
export const systemClock: Clock = {
  now: Date.now,
  monotonic: performance.now.bind(performance),
  after(ms, action) {
    const timer = setTimeout(action, ms);
    return () => clearTimeout(timer);
  },
};

/** When work has to be over. */
export interface Deadline {
  readonly clock: Clock;
  readonly ms: number;
  /** The caller’s own, which ends it sooner. */
  readonly signal: AbortSignal;
  /** What the work is ended with when its time is up. */
  readonly reason: () => Error;
}

/**
 * Does work under a deadline; rejects with the reason it was ended for. Not `AbortSignal.any`: that would stay with a
 * caller’s signal for as long as the session lasts.
 */
export async function withDeadline<Value>(
  { clock, ms, signal, reason }: Deadline,
  work: (signal: AbortSignal) => Promise<Value>,
): Promise<Value> {
  signal.throwIfAborted();
  const own = new AbortController();
  const leave = (): void => own.abort(signal.reason);
  const cancel = clock.after(ms, () => own.abort(reason()));
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await work(own.signal);
  } catch (error) {
    throw own.signal.aborted ? own.signal.reason : error;
  } finally {
    cancel();
    signal.removeEventListener('abort', leave);
  }
}

/** What comes of the work; a caller who is cancelled leaves at once, and the work goes on. */
export async function unlessCancelled<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  let leave = (): void => undefined;
  const left = new Promise<never>((_, reject) => {
    leave = () => reject(new AcodeError('ACODE-SBX-014', {}, { cause: signal.reason }));
  });
  signal.addEventListener('abort', leave, { once: true });
  if (signal.aborted) leave();
  try {
    return await Promise.race([left, work]);
  } finally {
    // A listener that stays keeps its signal, and all that hangs on it, for as long as the session lasts.
    signal.removeEventListener('abort', leave);
  }
}

/** The error of a cancelled operation, whatever the reason of the abort signal was. */
export function cancelled(error: unknown): AcodeError {
  const known = error instanceof AcodeError && error.is('ACODE-SBX-014');
  return known ? error : new AcodeError('ACODE-SBX-014', {}, { cause: error });
}

/** What comes of the work within so many milliseconds, and else a failure. */
export async function inTime<Value>(clock: Clock, ms: number, work: Promise<Value>, late: () => Error): Promise<Value> {
  let cancel = (): void => undefined;
  const over = new Promise<never>((_, reject) => {
    cancel = clock.after(ms, () => reject(late()));
  });
  // What comes of it later is nobody’s any more.
  work.catch(() => undefined);
  try {
    return await Promise.race([work, over]);
  } finally {
    cancel();
  }
}

// A signal, another command’s output and a progress bar wait this long at most, and one step of the work.
const MAX_MS = 10;

/** The pauses of one piece of work. */
export class Pauses {
  readonly #signal: AbortSignal | null;
  #since = performance.now();

  /** Without a signal the work cannot be cancelled, only waited for. */
  constructor(signal: AbortSignal | null) {
    this.#signal = signal;
  }

  /** Whether it is time: asked for every step, since the author of the input decides how long a step takes. */
  get isDue(): boolean {
    return performance.now() - this.#since >= MAX_MS;
  }

  /** Lets everything else go on that is ready; rejects where the work was cancelled meanwhile. */
  async take(): Promise<void> {
    this.#signal?.throwIfAborted();
    await new Promise(resolve => setImmediate(resolve));
    this.#signal?.throwIfAborted();
    this.#since = performance.now();
  }
}
