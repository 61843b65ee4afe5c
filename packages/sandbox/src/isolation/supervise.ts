// The limits of a command, for every backend alike: when its time is over it is asked to end, then killed; when its sandbox is not
// what was verified any more, it is killed.

import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';
import type { Ending, Execution } from './backend.ts';
import { watchSame } from './watch.ts';

/** How a supervised command ended. */
export interface Supervised {
  readonly ending: Ending;
  readonly timedOut: boolean;
}

// After SIGKILL a command is gone within moments; an engine that does not say so has failed.
const LAST_MS = 10_000;

const RUN_AGAIN =
  'Run the command again: its next sandbox has what is there now. What it wrote into the workspace is still there.';

/** How long a command may take, and in which sandbox it is. */
export interface Supervision {
  readonly timeoutMs: number;
  readonly graceMs: number;
  readonly sandboxId: string;
}

/** Waits for the end of a command; at `timeoutMs` it gets SIGTERM, SIGKILL `graceMs` later, and at last it is given up. */
export async function supervise(execution: Execution, limits: Supervision, clock: Clock): Promise<Supervised> {
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
  let unwatch: () => void = () => undefined;
  const changed = new Promise<never>((_, reject) => {
    if (!execution.assertSame) return;
    unwatch = watchSame(execution.assertSame, clock, (reason, cause) => {
      void attempt(execution.kill('SIGKILL'));
      reject(new AcodeError('ACODE-SBX-025', { sandbox: limits.sandboxId, reason, remedy: RUN_AGAIN }, { cause }));
    });
  });
  try {
    const ending = await Promise.race([execution.ended, givenUp, changed]);
    return { ending, timedOut };
  } finally {
    cancel();
    unwatch();
  }
}

// A kill that fails means that the engine fails, and the ending reports that.
async function attempt(kill: Promise<void>): Promise<void> {
  await kill.catch(() => undefined);
}
