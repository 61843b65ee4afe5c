// Background scans: the job that a run leaves when its own scan was too short, and the report. Plain data, so that another process can do it.

import type { ChangeCounts, RiskyChange } from './result.ts';

/** A directory or file of the host that a run could write: the workspace, or another one that was mounted writable. */
export interface ScanRoot {
  /** Its absolute path on the host. */
  readonly path: string;
  /** Its path inside the sandbox; absent for the workspace, whose paths are shown relative to it. */
  readonly shownAs?: string;
  /** Git directories elsewhere whose configuration applies here, such as the repository of a worktree. */
  readonly repositories?: readonly string[];
  /** Names at the top that the run could not change. */
  readonly skipped: readonly string[];
  /** Names at the top where there was nothing when the run began, of those that virtual environments have. */
  readonly absent?: readonly string[];
}

/** A time in which nothing of a sandbox ran, in milliseconds since the epoch: the sandbox made none of the changes of that time. */
export interface RestPeriod {
  /** The beginning, in milliseconds since the epoch. */
  readonly fromMs: number;
  /** The end, in milliseconds since the epoch. */
  readonly toMs: number;
}

/** A scan job: what to scan for which run. Can be stored as JSON. */
export interface ScanJob {
  /** The workspace, as an absolute path. */
  readonly workspace: string;
  /** Every directory that the run could write. */
  readonly directories: readonly ScanRoot[];
  /** A time before the sandbox existed, in milliseconds since the epoch. */
  readonly sinceMs: number;
  /** A time after the sandbox had ended; null if that is not known. */
  readonly untilMs: number | null;
  /** When the sandbox was there and nothing of it ran; absent where that is not known. */
  readonly rest?: RestPeriod;
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** The correlation id of the run. */
  readonly correlationId: string;
  /** The session of the run. */
  readonly sessionId?: string;
  /** The task of the run, if its request named one. */
  readonly taskId?: string;
  /** Findings that the result of the run already has, so that they are not reported twice. */
  readonly known: readonly Pick<RiskyChange, 'kind' | 'path'>[];
}

/** Takes over scans that continue after their run. */
export interface ContinuedScans {
  /** Accepts a job; false if it cannot. Returns at once. */
  begin(job: ScanJob): boolean;
}

/** The findings of a background scan. */
export interface ScanReport {
  /** The runs it covers: more than one if commands ran at the same time, or many in a row. */
  readonly jobs: readonly ScanJob[];
  /** Findings that the results of the runs do not have. If not everything was scanned, an entry of kind `scan-incomplete` says why. */
  readonly riskyChanges: readonly RiskyChange[];
  /** Counts of the whole scan. */
  readonly changed: ChangeCounts;
  /** Whether everything was scanned. */
  readonly complete: boolean;
}
