// Steps 4 and 5 of the pipeline: obtains a sandbox for a plan, from the warm pool or newly created, and records it.

import { setImmediate as nextTurn } from 'node:timers/promises';
import type { AuditHead, AuditProvision, AuditScan } from '../contract/audit.ts';
import { AcodeError } from '../contract/errors.ts';
import { backendOf, isBoundary, usesEngine } from '../contract/levels.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Host, Planned } from './host.ts';
import type { Backend, WaitingSandbox } from '../isolation/backend.ts';
import type { PreparedSandbox } from '../isolation/pool/pool-kind.ts';
import { METRICS } from '../records/telemetry.ts';
import type { Operation } from '../records/telemetry.ts';
import { recordIntent, recordRisk } from './trail.ts';
import type { Recorded } from './trail.ts';
import { findingsOf } from '../records/audit/files.ts';
import type { RiskyChange } from '../contract/result.ts';
import type { RestPeriod, ScanJob, ScanReport } from '../contract/scan.ts';
import { rendered } from '../contract/wording.ts';
import { continueScan, loggable } from './scanning.ts';
import type { ScannedRun } from './scanning.ts';
import { changesOfCancelledRun, changesOfRun } from '../workspace/after-run.ts';
import { scanJobs } from '../workspace/continued-scan.ts';

/**
 * Obtains a sandbox while the intent record is being written, so that the record costs no time. The command is handed
 * over only when both are complete.
 */
export async function obtainRecorded(
  run: Recorded,
  planned: Planned,
  { taken, sinceMs, askedAt }: Taken,
  signal: AbortSignal,
): Promise<Obtained> {
  const writing = recordIntent(run, planned, signal);
  writing.catch(() => undefined);
  const giving = { ...run, planned, signal, sinceMs };
  const { clock } = run.host.telemetry;
  const began = clock.monotonic();
  const sandbox = taken ? given(run, taken) : await obtain(giving);
  try {
    // While the sandbox waited, a cleanup by another process may have removed the marker that its owner is alive.
    if (taken && usesEngine(planned.spec.level)) await run.host.claim();
    const provision = {
      sandboxId: planned.spec.identity.sandboxId,
      sandbox_provisioning_ms: readable(clock.monotonic() - (taken ? askedAt : began)),
      warm: taken !== null,
    };
    provisioned(run, planned.spec, provision);
    return { sandbox, intent: await writing, provision };
  } catch (error) {
    throw await givenUp(sandbox, giving, error);
  }
}

/** A sandbox of the warm pool, or null if one has to be created. */
export interface Taken {
  readonly taken: PreparedSandbox | null;
  /** A moment before the sandbox existed, by the kernel’s clock. */
  readonly sinceMs: number;
  /** When the pool was asked, by the host’s monotonic clock. */
  readonly askedAt: number;
}

/** A sandbox that may receive its command. */
export interface Obtained {
  readonly sandbox: WaitingSandbox;
  readonly intent: AuditHead;
  readonly provision: AuditProvision;
}

/** Rounds to microseconds: digits such as `25.568349000000012` are noise. */
export function readable(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

// A sandbox that differs from its plan is removed before it receives anything.
async function obtain(run: Giving): Promise<WaitingSandbox> {
  const { host, planned, signal } = run;
  const { spec } = planned;
  const backend = await backendFor(host, spec);
  const make = (): Promise<WaitingSandbox> =>
    prepareVerified(backend, spec, signal, (made, error) => givenUp(made, run, error));
  return await (host.pool ? host.pool.during(spec, signal, make) : make());
}

/** The backend that creates the sandbox of a plan. */
export async function backendFor(
  host: Pick<Host, 'backend' | 'claim'>,
  { level }: Pick<SandboxSpec, 'level'>,
): Promise<Backend> {
  const backend = await host.backend(level);
  if (!backend) throw new AcodeError('ACODE-SBX-012', { required: level, available: 'none' });
  // Processes on this machine end with this process; sandboxes on an engine would outlive it and need an owner.
  if (usesEngine(level)) await host.claim();
  return backend;
}

/**
 * Creates a sandbox and verifies it. If either fails, `giveUp` removes the sandbox, scans for files it left and reports
 * the violation; the error that it returns is thrown. If creation failed there is nothing to remove, but the image’s
 * first process may have run.
 */
export async function prepareVerified(
  backend: Backend,
  spec: SandboxSpec,
  signal: AbortSignal,
  giveUp: (made: WaitingSandbox | null, error: unknown) => Promise<unknown>,
): Promise<WaitingSandbox> {
  let made: WaitingSandbox | null = null;
  try {
    made = await backend.prepare(spec, signal);
    await made.verify(signal);
    return made;
  } catch (error) {
    throw await giveUp(made, error);
  }
}

// A warm sandbox was verified when it was created, and compared with its plan again when it was taken from the pool.
function given({ host, operation }: Recorded, { sandbox, spec }: PreparedSandbox): WaitingSandbox {
  if (usesEngine(spec.level)) host.reports.given(spec, operation.correlationId);
  host.telemetry.increment(METRICS.warm);
  return sandbox;
}

function provisioned(
  { host, operation }: Pick<Recorded, 'host' | 'operation'>,
  spec: SandboxSpec,
  provision: AuditProvision,
): void {
  const at = new Date(host.telemetry.clock.now());
  host.telemetry.observe(METRICS.provision, provision.sandbox_provisioning_ms);
  host.telemetry.kpis.provisioned({ ...provision, at: at.toISOString() });
  host.bus.emit('SandboxProvisioned', operation.correlationId, at, {
    sandboxId: spec.identity.sandboxId,
    backend: backendOf(spec.level),
    isolationLevel: isBoundary(spec.level) ? 'strict' : 'reduced',
    level: spec.level,
  });
}

/** A run whose sandbox may have to be abandoned. */
export type Giving = Omit<GivenUp, 'removed'>;

/**
 * Removes a sandbox that will not receive a command, reports a violation, and returns the error with the findings of
 * the scan. A caller that cancelled does not wait for the scan; a caller that was refused gets the error only after the
 * removal.
 */
export async function givenUp(sandbox: WaitingSandbox | null, run: Giving, error: unknown): Promise<unknown> {
  const { host, planned, operation, signal } = run;
  // Reported first, since a failed removal throws its own error.
  reportViolation(host, planned.spec, sandbox, error, operation);
  const removed = sandbox ? sandbox[Symbol.asyncDispose]() : Promise.resolve();
  host.keep(removed);
  const found = withFindings({ ...run, removed }, error);
  host.keep(found);
  return signal.aborted ? error : removed.then(() => found);
}

/** Reports a sandbox that differs from its plan. A sandbox of the warm pool has no operation yet. */
export function reportViolation(
  { bus, telemetry }: Pick<Host, 'bus' | 'telemetry'>,
  { identity }: SandboxSpec,
  sandbox: Pick<WaitingSandbox, 'id'> | null,
  error: unknown,
  operation?: Operation,
): void {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) return;
  const { violation } = error.context;
  const detail = rendered(error.context.detail);
  const { sandboxId } = identity;
  operation?.step('error', 'security violation: acode removes the sandbox', { sandboxId, violation, detail });
  const { correlationId } = operation ?? identity;
  bus.emit('SecurityViolation', correlationId, new Date(telemetry.clock.now()), {
    sandboxId,
    violation,
    detail,
    ...(sandbox && sandbox.id !== '' ? { containerId: sandbox.id } : {}),
  });
}

/** Reports that a sandbox was removed. */
export function tornDown(
  { host, operation }: Pick<Recorded, 'host' | 'operation'>,
  spec: SandboxSpec,
  reason: string,
): void {
  host.bus.emit('SandboxTeardown', operation.correlationId, new Date(host.telemetry.clock.now()), {
    sandboxId: spec.identity.sandboxId,
    backend: backendOf(spec.level),
    reason,
  });
}

/** Called with files that appeared while a warm sandbox of an image waited, if it never received a command. */
export type FoundWhileWaiting = (report: ScanReport, image: string) => void;

/** The parts of a host that these scans need. */
export type UnusedHost = Pick<Host, 'audit' | 'closing' | 'keep' | 'session' | 'telemetry'>;

// Closing the host waits for these scans, so they are short; one that runs out of time is recorded as incomplete.
const MAX_SCAN_MS = 2000;
const REST_MS = 10;
const MAX_SHOWN = 5;
const MAX_PATH = 100;

/** Scans for files that unused warm sandboxes left. Sandboxes removed at the same time share one scan. */
export class UnusedScans {
  readonly #host: UnusedHost;
  #queue: { readonly job: ScanJob; readonly image: string }[] = [];
  #working = false;
  readonly #found: FoundWhileWaiting | undefined;

  constructor(host: UnusedHost, found?: FoundWhileWaiting) {
    this.#host = host;
    this.#found = found;
  }

  /**
   * Adds a removed sandbox that existed since `sinceMs` and was idle during `atRest`. At a level without images the
   * shell is the host’s own, which leaves nothing to scan for.
   */
  add(spec: SandboxSpec, sinceMs: number, atRest: RestPeriod | null = null): void {
    const { rest } = changesOfCancelledRun(spec.mounts, sinceMs, true);
    const workspace = spec.mounts.find(({ purpose }) => purpose === 'workspace')?.source;
    if (!rest || workspace === undefined || !usesEngine(spec.level)) return;
    const { directories, untilMs } = rest;
    const { sandboxId, correlationId } = spec.identity;
    const sessionId = this.#host.session.id;
    const window = { sinceMs, untilMs, ...(atRest ? { rest: atRest } : {}) };
    const job = { workspace, directories, ...window, sandboxId, correlationId, sessionId, known: [] };
    this.#queue.push({ job, image: spec.image.reference });
    if (!this.#working) this.#host.keep(nextTurn().then(() => this.#work()));
    this.#working = true;
  }

  async #work(): Promise<void> {
    try {
      while (this.#queue.length > 0) {
        const queue = this.#queue;
        this.#queue = [];
        const restMs = this.#host.closing.aborted ? 0 : REST_MS;
        for await (const report of scanJobs(
          queue.map(({ job }) => job),
          { maxMs: MAX_SCAN_MS, restMs },
        ))
          this.#tell(report, queue.find(({ job }) => report.jobs.includes(job))?.image ?? '');
      }
    } finally {
      this.#working = false;
    }
  }

  #tell(report: ScanReport, image: string): void {
    const { telemetry, audit, keep } = this.#host;
    const [first] = report.jobs;
    if (!first) return;
    const found = report.riskyChanges.filter(({ kind }) => kind !== 'scan-incomplete');
    const { correlationId, sandboxId } = first;
    const fields = { correlationId, sandboxId, image, left: loggable(report.riskyChanges) };
    if (found.length > 0)
      telemetry.log(
        'warn',
        `while a sandbox of ${image} waited for a command, files appeared that tools on this machine might execute or follow: ${shown(found)}. Check who made them before you use the workspace`,
        fields,
      );
    else telemetry.log('debug', 'the workspace was scanned after a warm sandbox that went unused', fields);
    if (found.length > 0) this.#report(report, image);
    const unwritten = (error: unknown): void =>
      telemetry.log('error', 'the audit log could not be written', { reason: String(error) });
    keep(audit.append(recordOf(report, first)).catch(unwritten));
  }

  // The callback belongs to the host program and may throw; the audit log has the findings anyway.
  #report(report: ScanReport, image: string): void {
    try {
      this.#found?.(report, image);
    } catch (error) {
      const reason = String(error);
      this.#host.telemetry.log('error', 'what appeared while a warm sandbox waited could not be reported', { reason });
    }
  }
}

function recordOf({ jobs, riskyChanges, changed, complete }: ScanReport, first: ScanJob): AuditScan {
  const { correlationId, sessionId, workspace } = first;
  return {
    kind: 'event',
    operation: 'scan',
    event: 'a warm sandbox went unused, and the workspace was scanned for the time it lived',
    correlationId,
    ...(sessionId === undefined ? {} : { sessionId }),
    workspace,
    sandboxIds: jobs.map(({ sandboxId }) => sandboxId),
    correlationIds: jobs.map(job => job.correlationId),
    ...findingsOf({ riskyChanges: [...riskyChanges], changed, scan: complete ? 'complete' : 'incomplete' }),
  };
}

// The creator of a file chose its path, so the path is quoted and truncated.
function shown(found: readonly RiskyChange[]): string {
  const paths = found.slice(0, MAX_SHOWN).map(({ path }) => JSON.stringify(path.slice(0, MAX_PATH)));
  return [...paths, ...(found.length > MAX_SHOWN ? [`${found.length - MAX_SHOWN} more`] : [])].join(', ');
}

/** A sandbox that was abandoned before it received its command. */
export interface GivenUp extends ScannedRun {
  readonly signal: AbortSignal;
  /** A moment before the sandbox existed, by the kernel’s clock. */
  readonly sinceMs: number;
  /** Settles when the sandbox is removed. */
  readonly removed: Promise<unknown>;
}

/** The error for an abandoned sandbox, with the findings of a scan if the image’s own shell could write. */
async function withFindings(run: GivenUp, error: unknown): Promise<unknown> {
  const { host, operation, planned, signal, sinceMs, removed } = run;
  const { mounts, level, identity } = planned.spec;
  if (!usesEngine(level)) return error;
  if (signal.aborted) {
    // The caller cancelled and no longer waits; the scan continues in the background if a scanner accepts it.
    const [ended] = await Promise.allSettled([removed]);
    const { rest } = changesOfCancelledRun(mounts, sinceMs, ended.status === 'fulfilled');
    if (rest) continueScan(run, { riskyChanges: [], scan: 'incomplete' }, rest);
    return error;
  }
  const tookMs = Date.now() - sinceMs;
  const { clock } = host.telemetry;
  const { rest, riskyChanges, complete } = await changesOfRun({ mounts, sinceMs, dead: removed, tookMs }, clock);
  const result = { riskyChanges: [...riskyChanges], scan: complete ? ('complete' as const) : ('incomplete' as const) };
  if (rest) continueScan(run, result, rest);
  recordRisk(operation, identity.sandboxId, result.riskyChanges);
  if (result.riskyChanges.length === 0 || !(error instanceof AcodeError)) return error;
  return new AcodeError(error.code, { ...error.context, riskyChanges: result.riskyChanges }, { cause: error });
}
