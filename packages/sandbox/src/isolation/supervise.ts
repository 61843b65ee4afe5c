// The time limit of a command, for every backend alike: asked to end, then killed.

import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';
import type { Ending, Execution } from './backend.ts';

/** How a supervised command ended. */
export interface Supervised {
  readonly ending: Ending;
  readonly timedOut: boolean;
}

// After SIGKILL a command is gone within moments; an engine that does not say so has failed.
const LAST_MS = 10_000;

/** Waits for the end of a command; at `timeoutMs` it gets SIGTERM, SIGKILL `graceMs` later, and at last it is given up. */
export async function supervise(
  execution: Execution,
  limits: { timeoutMs: number; graceMs: number },
  clock: Clock,
): Promise<Supervised> {
  let timedOut = false;
  let cancel: () => void = () => undefined;
  const givenUp = new Promise<never>((_, reject) => {
    const kill = (): void => {
      void attempt(execution.kill('SIGKILL'));
      cancel = clock.after(LAST_MS, () => {
        const reason = `the command did not end within ${LAST_MS / 1000} s of being killed`;
        reject(new AcodeError('ACODE-SBX-018', { operation: 'ending the command', reason }));
      });
    };
    cancel = clock.after(limits.timeoutMs, () => {
      timedOut = true;
      void attempt(execution.kill('SIGTERM'));
      cancel = clock.after(limits.graceMs, kill);
    });
  });
  try {
    const ending = await Promise.race([execution.ended, givenUp]);
    return { ending, timedOut };
  } finally {
    cancel();
  }
}

// A kill that fails means that the engine fails, and the ending reports that.
async function attempt(kill: Promise<void>): Promise<void> {
  await kill.catch(() => undefined);
}
