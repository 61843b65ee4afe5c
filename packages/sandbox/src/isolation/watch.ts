// Whether a sandbox is still what it was verified as, looked at while it is used.
//
// Somebody on the host who replaces a directory or file that lies under a mount takes that mount away, and what it protected
// could be written from inside. That is the end of the sandbox.

import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';

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
  return `something it has mounted was replaced or moved: ${error.context.detail}`;
}
