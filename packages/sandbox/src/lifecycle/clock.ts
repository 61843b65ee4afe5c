// The system’s own time, for everyone who was not given another.

import type { Clock } from '../contract/ports.ts';

/** The real clock. Its timers keep the process alive, or a promise waiting for one might never settle. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, action) {
    const timer = setTimeout(action, ms);
    return () => clearTimeout(timer);
  },
};
