// The limits of a command, for every backend alike: when its time is over it is asked to end, then killed; when its sandbox is not
// what was verified any more, it is killed.

import { AcodeError } from '../contract/errors.ts';
import { rendered } from '../contract/wording.ts';
import type { Clock } from '../contract/ports.ts';
import type { Ending, Execution } from './backend.ts';

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
  /** Whether the command ends when the kernel kills one of its processes for lack of memory. */
  readonly endsOnOom?: boolean;
  /** Ends the command as its time limit does, when it resolves. */
  readonly stopped?: Promise<unknown>;
}

/** Waits for the end of a command; at `timeoutMs` it gets SIGTERM, SIGKILL `graceMs` later, and at last it is given up. */
export async function supervise(execution: Execution, limits: Supervision, clock: Clock): Promise<Supervised> {
  let timedOut = false;
  let hasEnded = false;
  let cancel: () => void = () => undefined;
  const givenUp = new Promise<never>((_, reject) => {
    const kill = (): void => {
      void attempt(execution.kill('SIGKILL'));
      cancel = clock.after(LAST_MS, () => {
        const reason = `the command did not end within ${LAST_MS / 1000} s of being killed`;
        reject(new AcodeError('ACODE-SBX-018', { operation: 'ending the command', reason }));
      });
    };
    const end = (): void => {
      cancel();
      void attempt(execution.kill('SIGTERM'));
      cancel = clock.after(limits.graceMs, kill);
    };
    cancel = clock.after(limits.timeoutMs, () => {
      timedOut = true;
      end();
    });
    const stop = (): void => {
      if (!timedOut && !hasEnded) end();
    };
    limits.stopped?.then(stop, () => undefined);
  });
  const unhear = limits.endsOnOom
    ? execution.onOutOfMemory?.(() => void attempt(execution.kill('SIGKILL')))
    : undefined;
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
    hasEnded = true;
    cancel();
    unhear?.();
    unwatch();
  }
}

// A kill that fails means that the engine fails, and the ending reports that.
async function attempt(kill: Promise<void>): Promise<void> {
  await kill.catch(() => undefined);
}

// Whether a sandbox is still what it was verified as, looked at while it is used.
//
// Somebody on the host who replaces a directory or file that lies under a mount takes that mount away, and what it protected
// could be written from inside. That is the end of the sandbox.

// Whoever saves a file may replace it at any moment.
const LOOK_MS = 1000;

/** Looks from time to time, and tells once why a sandbox is not what it was, and by which error. Returns what ends the watch. */
export function watchSame(
  same: () => void,
  clock: Clock,
  changed: (reason: string, cause: unknown) => void,
): () => void {
  let stop: () => void = () => undefined;
  const look = (): void => {
    try {
      same();
    } catch (error) {
      const why = whyChanged(error);
      // That it has ended is told by its end. What could not be looked at now is looked at again.
      if (why !== null) return changed(why, error);
    }
    stop = clock.after(LOOK_MS, look);
  };
  stop = clock.after(LOOK_MS, look);
  return () => stop();
}

/** Why a sandbox is not what it was, in words, where an error says that; null for any other. */
export function whyChanged(error: unknown): string | null {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) return null;
  return `something it has mounted was replaced or moved: ${rendered(error.context.detail)}`;
}

// The time limit of a network, for every backend alike: at its end the network goes and the command stays.

/** What the limit did: nothing yet, took the network away, or ended the command because the network would not go. */
export type NetworkCut = 'none' | 'disconnected' | 'killed';

/** A network limit that is being watched. */
export interface NetworkLimit {
  readonly cut: NetworkCut;
  /** The command has ended. */
  stop(): void;
}

const ATTEMPTS = 3;
const UNLIMITED: NetworkLimit = { cut: 'none', stop: () => undefined };

/** A command whose network can be taken away, or which can be ended. */
interface Disconnectable {
  disconnect(): Promise<unknown>;
  kill(signal: string): Promise<void>;
}

/** Takes the network of a command away after `timeoutMs`; never, if that is null. */
export function limitNetwork(execution: Disconnectable, timeoutMs: number | null, clock: Clock): NetworkLimit {
  if (timeoutMs === null) return UNLIMITED;
  let cut: NetworkCut = 'none';
  const stopped = new AbortController();
  const disconnect = async (): Promise<void> => {
    // From now on: the command may end before the engine’s answer comes, and has lost its network all the same.
    cut = 'disconnected';
    for (let count = 1; count <= ATTEMPTS && !stopped.signal.aborted; count += 1) {
      try {
        await execution.disconnect();
        return;
      } catch {
        // An engine that fails once may not fail again; one that keeps failing is answered below.
      }
    }
    if (stopped.signal.aborted) return;
    // A network that cannot be taken away would be one without a limit.
    cut = 'killed';
    await execution.kill('SIGKILL').catch(() => undefined);
  };
  const cancel = clock.after(timeoutMs, () => void disconnect());
  return {
    get cut() {
      return cut;
    },
    stop() {
      stopped.abort();
      cancel();
    },
  };
}
