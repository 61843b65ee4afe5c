// Change times: whether a file was changed during a run, by the time that only the kernel sets, and the counts of
// changes.

import { statfsSync } from 'node:fs';
import type { Stats } from 'node:fs';
import type { RestPeriod } from '../contract/scan.ts';
import { keepsExactTimes } from './presence.ts';
import type { ChangeCounts } from '../contract/result.ts';

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

/** No file of any kind. */
export const NO_CHANGES: ChangeCounts = { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 };

/** A kind of file that is counted. */
export type ChangeKind = keyof ChangeCounts;

/** Counts that grow. */
export type Counting = { -readonly [Kind in ChangeKind]: number };

const CONFIGURATION = new Set(
  'cfg cnf conf config csproj env gradle ini json json5 jsonc lock plist properties props service targets toml xml yaml yml'.split(
    ' ',
  ),
);
const SOURCE = new Set(
  'asm astro awk bash bat c cc cjs clj cljs cmd coffee cpp cs css cts cu cxx d dart elm erl ex exs f90 fish fs go groovy h hh hpp hrl hs htm html ipynb java jl js jsx kt kts less lisp lua m mjs ml mli mm mts nim nix pas php pl pm proto ps1 py pyi pyx r rb rs s sass scala scm scss sh sol sql svelte swift tcl tf ts tsx v vb vim vue zig zsh'.split(
    ' ',
  ),
);
const EXECUTABLE = 0o111;

/**
 * The kind of a file.
 *
 * @param path relative to what was scanned.
 * @param mode the permission bits of a regular file; 0 of anything else.
 * @param isKnown whether tools obey it because of its name.
 */
export function changeKindOf(path: string, mode: number, isKnown: boolean): ChangeKind {
  if ((mode & EXECUTABLE) !== 0) return 'executable';
  if (path.startsWith('.') || path.includes('/.')) return 'hidden';
  const ending = path.slice(path.lastIndexOf('.') + 1).toLowerCase();
  if (isKnown || CONFIGURATION.has(ending)) return 'configuration';
  return SOURCE.has(ending) ? 'source' : 'other';
}

/** The sum of two counts. */
export function addCounts(one: ChangeCounts, other: ChangeCounts): ChangeCounts {
  return {
    executable: one.executable + other.executable,
    hidden: one.hidden + other.hidden,
    configuration: one.configuration + other.configuration,
    source: one.source + other.source,
    other: one.other + other.other,
  };
}
