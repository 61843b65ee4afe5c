// The scan of a workspace that goes on after its run: what is to be scanned, and what came of it. Plain data, so that another process can do it.

import type { ChangeCounts, RiskyChange } from './result.ts';

/** Something of the host that a run could write: the workspace, or another directory or file that was mounted writable. */
export interface ScanRoot {
  readonly path: string;
  /** Where it was inside the sandbox; absent for the workspace, whose paths are shown relative to it. */
  readonly shownAs?: string;
  /** Git directories outside whose configuration counts here: that of the repository of a worktree. */
  readonly repositories?: readonly string[];
  /** Names at the top that the run could not change. */
  readonly skipped: readonly string[];
}

/** A scan that its run had no time for. Survives JSON. */
export interface ScanJob {
  readonly workspace: string;
  readonly directories: readonly ScanRoot[];
  /** When nothing of the sandbox existed yet, in milliseconds since the epoch. */
  readonly sinceMs: number;
  /** When nothing of the sandbox lived any more; null where that is not known. */
  readonly untilMs: number | null;
  readonly sandboxId: string;
  /** The correlation id of the run. */
  readonly correlationId: string;
  readonly sessionId?: string;
  readonly taskId?: string;
  /** What the result of the run has already, so that it is not told twice. */
  readonly known: readonly Pick<RiskyChange, 'kind' | 'path'>[];
}

/** Where a scan goes on that its run had no time for. */
export interface ContinuedScans {
  /** Takes a scan on; false where that is not possible. Returns at once. */
  begin(job: ScanJob): boolean;
}

/** What a scan that went on has found. */
export interface ScanReport {
  /** The runs it is about: more than one where commands ran at the same time, or many in a row. */
  readonly jobs: readonly ScanJob[];
  /** What the results of the runs do not have yet. Where not everything was seen, an entry of kind `scan-incomplete` says why. */
  readonly riskyChanges: readonly RiskyChange[];
  /** Of the whole scan. */
  readonly changed: ChangeCounts;
  readonly complete: boolean;
}
