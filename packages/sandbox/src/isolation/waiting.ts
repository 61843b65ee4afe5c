// Waiting for work that goes on without its waiter: it cannot be taken back, or others wait for it too.

import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';

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

/** Begins work when whoever waits for something now has had their turn. */
export function afterwards<Value>(work: () => Promise<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    setImmediate(() => void work().then(resolve, reject));
  });
}
