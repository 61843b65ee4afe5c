// Calls of a server that may be away for a moment: tried again until a deadline, then refused with what the server said.

import { setTimeout as pause } from 'node:timers/promises';
import { FLEET_ERRORS } from '../errors.ts';
import { CALL_MS } from './engine.ts';

const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 1000;

/** How a call is tried again. */
export interface Trying {
  /** What it is called in the error. */
  readonly operation: string;
  /** Whether the failure may be over at the next try. */
  readonly isPassing: (error: unknown) => boolean;
  /** Cancels the call. */
  readonly signal?: AbortSignal | undefined;
  /** How long it may take in all. */
  readonly deadlineMs?: number;
}

/** Calls until it succeeds, fails for good, is cancelled or too late. The pause doubles, with a little chance in it. */
export async function retried<Value>(call: () => Promise<Value>, about: Trying): Promise<Value> {
  const { operation, isPassing, signal, deadlineMs = CALL_MS } = about;
  const end = performance.now() + deadlineMs;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(MAX_PAUSE_MS, pauseMs * 2)) {
    signal?.throwIfAborted();
    try {
      return await call();
    } catch (error) {
      if (!isPassing(error)) throw error;
      if (performance.now() + pauseMs > end)
        throw FLEET_ERRORS.create(
          'ACODE-FLT-006',
          { operation, deadlineMs, reason: reasonOf(error) },
          { cause: error },
        );
    }
    await pause(pauseMs * (0.75 + Math.random() / 2), undefined, signal ? { signal } : {});
  }
}

/** What a failure says of itself, without a full stop. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // A connection that tried several addresses has a message for each, and none of its own.
  const first: unknown = error instanceof AggregateError ? error.errors[0] : null;
  const { message } = first instanceof Error && error.message === '' ? first : error;
  return (message || error.name).trim().replace(/\.$/, '');
}

/** Waits for a time, or until the signal; leaves no listener behind. Its value is null, so that a race shows which it was. */
export async function paused(ms: number, signal?: AbortSignal): Promise<null> {
  await pause(ms, undefined, signal && { signal }).catch(() => undefined);
  return null;
}
