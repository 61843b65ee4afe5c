// Work that must end in time: a signal of its own, which hears its caller’s and lets go of it when the work is over.

import type { Clock } from '../contract/ports.ts';

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
