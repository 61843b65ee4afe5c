// The time limit of a network, for every backend alike: at its end the network goes and the command stays.

import type { Clock } from '../contract/ports.ts';
import type { Execution } from './backend.ts';

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

/** Takes the network of a command away after `timeoutMs`; never, if that is null. */
export function limitNetwork(execution: Execution, timeoutMs: number | null, clock: Clock): NetworkLimit {
  if (timeoutMs === null) return UNLIMITED;
  let cut: NetworkCut = 'none';
  const stopped = new AbortController();
  const disconnect = async (): Promise<void> => {
    // From now on: the command may end before the engine’s answer comes, and has lost its network all the same.
    cut = 'disconnected';
    for (let attempt = 1; attempt <= ATTEMPTS && !stopped.signal.aborted; attempt += 1) {
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
