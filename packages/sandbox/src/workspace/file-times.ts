// Change times: whether a file was changed during a run, by the time that only the kernel sets, and the counts of
// changes.

import { statfsSync } from 'node:fs';
import type { Stats } from 'node:fs';
import type { RestPeriod } from '../contract/scan.ts';
import { keepsExactTimes } from './file-identity.ts';

/** The time in which a change is taken for one of the run, by the clock of the kernel. */
export interface ScanWindow {
  /** When nothing of the sandbox existed yet. */
  readonly sinceMs: number;
  /** When nothing of the sandbox lived any more; `Infinity` where that is not known. */
  readonly untilMs: number;
  /** When nothing of the sandbox ran, though it was there. */
  readonly rests?: readonly RestPeriod[];
}

// The kernel stamps files by a clock that lags behind the one we read by up to a tick, and may be finer than ours by less than 1 ms.
const CLOCK_LAG_MS = 20;
const FINER_MS = 1;
const SECOND_MS = 1000;
// The coarsest time that a file system in use keeps: FAT has steps of two seconds.
const COARSEST_MS = 2000;
const OVERLAY = 0x794c7630n;
// What clocks are corrected by while they run, at most; anything more is a step.
const SLEW = 0.001;
const STEP_MS = 100;

/** What is said of a file system whose change times prove nothing. */
export const INEXACT =
  'on this file system another clock, or the command itself, may set file times: what the command changed may look older than the run';

/** Tells what was changed in a window of time. */
export class FileTimes {
  readonly #since: number;
  readonly #until: number;
  readonly #rests: readonly RestPeriod[];

  constructor({ sinceMs, untilMs, rests = [] }: ScanWindow, isExact: boolean) {
    this.#since = sinceMs - CLOCK_LAG_MS - (isExact ? 0 : COARSEST_MS);
    this.#until = untilMs + FINER_MS + (isExact ? 0 : COARSEST_MS);
    // Where times are not exact, what was changed in one cannot be distinguished from earlier or later changes.
    this.#rests = isExact
      ? rests.map(({ fromMs, toMs }) => ({ fromMs: fromMs + FINER_MS, toMs: toMs - CLOCK_LAG_MS }))
      : [];
  }

  /** Whether it was last changed in the window. */
  isChanged(stats: Pick<Stats, 'ctimeMs'>): boolean {
    return this.isTouched(stats) && stats.ctimeMs <= this.#until && !this.#isAtRest(stats);
  }

  #isAtRest({ ctimeMs }: Pick<Stats, 'ctimeMs'>): boolean {
    const lastMs = ctimeMs + (isWholeSecond(ctimeMs) ? SECOND_MS : 0);
    return this.#rests.some(({ fromMs, toMs }) => ctimeMs > fromMs && lastMs < toMs);
  }

  /** Whether it was changed in the window or later: the earlier state of a file changed later is unknown. */
  isTouched({ ctimeMs }: Pick<Stats, 'ctimeMs'>): boolean {
    return ctimeMs >= (isWholeSecond(ctimeMs) ? Math.floor(this.#since / SECOND_MS) * SECOND_MS : this.#since);
  }

  /** Whether it was made in the window. */
  isBorn({ birthtimeMs }: Pick<Stats, 'birthtimeMs'>): boolean {
    return birthtimeMs >= this.#since;
  }

  /** Whether it was made in the window, and changed after that: where no time of making is kept, that of the change stands for it. */
  isMade({ birthtimeMs, ctimeMs }: Pick<Stats, 'birthtimeMs' | 'ctimeMs'>): boolean {
    return this.isBorn({ birthtimeMs }) && birthtimeMs < ctimeMs;
  }
}

/** Whether change times in a directory can be relied on. */
export function hasReliableTimes(directory: string): boolean {
  if (process.platform !== 'linux') return true;
  try {
    return keepsExactTimes(directory);
  } catch {
    // The scan says itself that it could not look into it.
    return true;
  }
}

/** Whether when something was made is kept, whatever becomes of it: an overlay makes what comes from a lower layer anew. */
export function keepsBirth(directory: string): boolean {
  try {
    return hasReliableTimes(directory) && statfsSync(directory, { bigint: true }).type !== OVERLAY;
  } catch {
    return false;
  }
}

/** How far the wall clock is ahead of one that is never set. Only the difference between two readings means something. */
export function clockOffsetMs(): number {
  return Date.now() - performance.now();
}

/**
 * By how much the window of a run must begin earlier, since the wall clock was set back while it ran: what was written after
 * that has an earlier time than the run's beginning.
 */
export function setBackMs(offsetBefore: number, offsetNow: number, tookMs: number): number {
  const back = offsetBefore - offsetNow;
  return back > STEP_MS + (Number.isFinite(tookMs) ? tookMs * SLEW : 0) ? back : 0;
}

// A file system that keeps whole seconds says of a change that it happened up to a second before it did.
function isWholeSecond(timeMs: number): boolean {
  return timeMs % SECOND_MS === 0;
}
