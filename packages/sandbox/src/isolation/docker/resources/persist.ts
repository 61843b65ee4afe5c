// Goes on asking while the engine is away: a restart takes seconds, and what is to be removed must not be forgotten meanwhile.

import type { Clock } from '../../../contract/ports.ts';
import { EngineError } from '../engine/error.ts';

/** How long to go on. */
export interface Patience {
  readonly clock: Clock;
  /** Whether there is no point in going on: nobody waits any more, or somebody else will do it. */
  readonly isOver: () => boolean;
}

const FIRST_MS = 50;
// Short: everything is to be gone two seconds after the engine answers again, and a socket nobody listens on costs nothing.
const MAX_MS = 500;

/** Repeats a call until the engine has answered it, well or not. */
export async function whenItAnswers<Value>(call: () => Promise<Value>, { clock, isOver }: Patience): Promise<Value> {
  for (let wait = FIRST_MS; ; wait = Math.min(2 * wait, MAX_MS)) {
    try {
      return await call();
    } catch (error) {
      if (isOver() || !isAway(error)) throw error;
    }
    // Jittered: many wait for the same engine, and would all come back in the same moment.
    const ms = wait * (0.5 + Math.random() / 2);
    await new Promise<void>(resolve => void clock.after(ms, resolve));
  }
}

function isAway(error: unknown): boolean {
  return error instanceof EngineError && ['unreachable', 'disconnected', 'timeout'].includes(error.kind);
}
