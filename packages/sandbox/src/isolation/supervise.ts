// The time limit of a command, for every backend alike: asked to end, then killed.

import type { Clock } from '../contract/ports.ts';
import type { Ending, Execution } from './backend.ts';

/** How a supervised command ended. */
export interface Supervised {
  readonly ending: Ending;
  readonly timedOut: boolean;
}

/** Waits for the end of a command; at `timeoutMs` it gets SIGTERM, and SIGKILL `graceMs` later. */
export async function supervise(
  execution: Execution,
  limits: { timeoutMs: number; graceMs: number },
  clock: Clock,
): Promise<Supervised> {
  let timedOut = false;
  let cancel = clock.after(limits.timeoutMs, () => {
    timedOut = true;
    void attempt(execution.kill('SIGTERM'));
    cancel = clock.after(limits.graceMs, () => void attempt(execution.kill('SIGKILL')));
  });
  try {
    const ending = await execution.ended;
    return { ending, timedOut };
  } finally {
    cancel();
  }
}

// A kill that fails means that the engine fails, and the ending reports that.
async function attempt(kill: Promise<void>): Promise<void> {
  await kill.catch(() => undefined);
}
