// Continued scans: completes a scan that exceeded its run’s time budget, in this process or another, and reports it.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { findingsOf } from '../records/audit/files.ts';
import type { AuditScan } from '../contract/audit.ts';
import { chooseChanges } from '../contract/changes.ts';
import type { RunRequest } from '../contract/command.ts';
import type { RiskyChange, RunResult } from '../contract/result.ts';
import type { ContinuedScans, ScanJob, ScanReport } from '../contract/scan.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Host } from './host.ts';
import type { Operation } from '../records/telemetry.ts';
import type { ScanRest } from '../workspace/after-run.ts';
import { scanJobs } from '../workspace/continued-scan.ts';

// A scan pauses for half of the time, since the streams of other sandboxes use the same thread.
const REST_MS = 10;
// Enough for a host that runs many commands at once; beyond that, results report an incomplete scan.
const MAX_QUEUED = 64;
// A log line holds no more; the event has all of them.
const MAX_LOGGED = 100;

/** The dependencies of scans that continue in this process. */
export interface ScansHere {
  readonly closing: AbortSignal;
  readonly keep: Host['keep'];
  readonly report: (report: ScanReport) => void;
}

/** Continues scans in this process, one after the other, until the host is closed. */
export class ScansInProcess implements ContinuedScans {
  readonly #parts: ScansHere;
  #queue: ScanJob[] = [];
  #working = false;

  constructor(parts: ScansHere) {
    this.#parts = parts;
  }

  begin(job: ScanJob): boolean {
    if (this.#parts.closing.aborted || this.#queue.length >= MAX_QUEUED) return false;
    this.#queue.push(job);
    if (!this.#working) this.#parts.keep(nextTurn().then(() => this.#work()));
    this.#working = true;
    return true;
  }

  async #work(): Promise<void> {
    const { closing: signal, report } = this.#parts;
    try {
      while (this.#queue.length > 0) {
        const jobs = this.#queue;
        this.#queue = [];
        for await (const found of scanJobs(jobs, { signal, restMs: REST_MS })) report(found);
      }
    } finally {
      this.#working = false;
    }
  }
}

/** A run whose scan may continue. */
export interface ScannedRun {
  readonly host: Host;
  readonly operation: Operation;
  readonly planned: { readonly spec: SandboxSpec };
  readonly request: Pick<RunRequest, 'sessionId' | 'taskId'>;
}

/** Continues the scan of a run that exceeded its budget, and reports that in the result. */
export function continueScan(run: ScannedRun, result: ScannedResult, rest: ScanRest): void {
  const { host, operation, planned, request } = run;
  const { sandboxId } = planned.spec.identity;
  const { directories, sinceMs, untilMs, rest: atRest, final } = rest;
  const found = result.riskyChanges.filter(({ kind }) => kind !== 'scan-incomplete');
  const taken = takenOn(host, {
    workspace: planned.spec.mounts.find(({ purpose }) => purpose === 'workspace')?.source ?? host.workspace,
    directories,
    sinceMs,
    untilMs,
    ...(atRest ? { rest: atRest } : {}),
    sandboxId,
    correlationId: operation.correlationId,
    sessionId: request.sessionId ?? host.session.id,
    ...(request.taskId === undefined ? {} : { taskId: request.taskId }),
    known: found.map(({ kind, path }) => ({ kind, path })),
  });
  if (!taken) return;
  operation.step('info', 'the scan of the workspace goes on in the background', { sandboxId });
  // If more time cannot complete the scan, the result still reports it as incomplete.
  if (final) return;
  result.riskyChanges = found;
  result.scan = 'continuing';
}

// The callback belongs to the host program and may throw; the result is then the same as without a callback.
function takenOn({ scans, telemetry }: Host, job: ScanJob): boolean {
  try {
    return scans.begin(job);
  } catch (error) {
    telemetry.log('error', 'the scan of the workspace could not go on', { reason: String(error) });
    return false;
  }
}

type ScannedResult = Pick<RunResult, 'riskyChanges' | 'scan'>;

/** Reports the findings of a continued scan to event listeners, the log and the audit log. */
export function tellScan(host: Pick<Host, 'bus' | 'telemetry' | 'audit' | 'keep'>, report: ScanReport): void {
  const { riskyChanges, changed, complete, jobs } = report;
  const [first] = jobs;
  if (!first) return;
  const at = new Date(host.telemetry.clock.now());
  for (const { sandboxId, correlationId, workspace } of jobs)
    host.bus.emit('WorkspaceScanned', correlationId, at, {
      sandboxId,
      workspace,
      riskyChanges: [...riskyChanges],
      changed,
      complete,
    });
  const level = riskyChanges.length > 0 ? 'warn' : 'info';
  host.telemetry.log(level, 'the scan of the workspace that went on after a run has ended', {
    correlationId: first.correlationId,
    sandboxId: first.sandboxId,
    complete,
    riskyChanges: loggable(riskyChanges),
  });
  const unwritten = (error: unknown): void =>
    host.telemetry.log('error', 'the audit log could not be written', { reason: String(error) });
  host.keep(host.audit.append(scanRecord(report, first)).catch(unwritten));
}

/** The audit record of a continued scan. */
export function scanRecord({ jobs, riskyChanges, changed, complete }: ScanReport, first: ScanJob): AuditScan {
  const { correlationId, sessionId, taskId, workspace } = first;
  return {
    kind: 'event',
    operation: 'scan',
    event: 'the scan of the workspace that went on after a run has ended',
    correlationId,
    ...(sessionId === undefined ? {} : { sessionId }),
    ...(taskId === undefined ? {} : { taskId }),
    workspace,
    sandboxIds: jobs.map(({ sandboxId }) => sandboxId),
    correlationIds: jobs.map(job => job.correlationId),
    ...findingsOf({ riskyChanges: [...riskyChanges], changed, scan: complete ? 'complete' : 'incomplete' }),
  };
}

/** As many changes as a log line has room for. It always includes the note that a scan is incomplete. */
export function loggable(changes: readonly RiskyChange[]): readonly RiskyChange[] {
  const { shown, incomplete } = chooseChanges(changes, MAX_LOGGED);
  return [...incomplete, ...shown];
}
