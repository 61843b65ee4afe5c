// Steps 4 and 5 of the pipe: a sandbox for a plan, one that waited or one that is made, and the record that it is there.

import { formatBytes } from '../policy/config/units.ts';
import type { AuditHead } from '../contract/audit.ts';
import { AcodeError } from '../contract/errors.ts';
import { backendOf, isBoundary, usesEngine } from '../contract/levels.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Host } from './host.ts';
import type { Backend, WaitingSandbox } from '../isolation/backend.ts';
import type { PreparedSandbox } from '../isolation/pool/pool-kind.ts';
import type { Planned } from './planned.ts';
import { METRICS } from '../records/telemetry/operation.ts';
import type { Operation } from '../records/telemetry/operation.ts';
import { recordIntent } from './trail.ts';
import type { Recorded } from './trail.ts';
import { withFindings } from './unused.ts';
import type { GivenUp } from './unused.ts';

/** The record is written while the sandbox is made, so it costs no time; nothing is handed over before both are there. */
export async function obtainRecorded(
  run: Recorded,
  planned: Planned,
  { taken, sinceMs }: { readonly taken: PreparedSandbox | null; readonly sinceMs: number },
  signal: AbortSignal,
): Promise<{ sandbox: WaitingSandbox; intent: AuditHead }> {
  const writing = recordIntent(run, planned, signal);
  writing.catch(() => undefined);
  const giving = { ...run, planned, signal, sinceMs };
  const sandbox = taken ? given(run, taken) : await obtain(giving);
  try {
    // Whoever tidied up while it waited may have taken away what shows that its owner lives.
    if (taken && usesEngine(planned.spec.level)) await run.host.claim();
    return { sandbox, intent: await writing };
  } catch (error) {
    throw await givenUp(sandbox, giving, error);
  }
}

// Steps 4 and 5. A sandbox that is not what was planned is removed before anything was handed to it.
async function obtain(run: Giving): Promise<WaitingSandbox> {
  const { host, operation, planned, signal } = run;
  const { spec } = planned;
  const backend = await host.backend(spec.level);
  if (!backend) throw new AcodeError('ACODE-SBX-012', { required: spec.level, available: 'none' });
  // What runs on this host itself ends with this process; what is on an engine would outlive it.
  if (usesEngine(spec.level)) await host.claim();
  const began = host.telemetry.clock.monotonic();
  const make = async (): Promise<WaitingSandbox> => {
    const made = await prepared(run, backend);
    try {
      await made.verify(signal);
      return made;
    } catch (error) {
      const failure = await givenUp(made, run, error);
      reportViolation(host, spec, operation, made.id, error);
      throw failure;
    }
  };
  const sandbox = await (host.pool ? host.pool.during(spec, signal, make) : make());
  provisioned({ host, operation }, spec, host.telemetry.clock.monotonic() - began);
  return sandbox;
}

// Where it fails nothing is left of it, but its first process may have run, and that is the image’s.
async function prepared(run: Giving, backend: Backend): Promise<WaitingSandbox> {
  try {
    return await backend.prepare(run.planned.spec, run.signal);
  } catch (error) {
    throw await withFindings({ ...run, removed: Promise.resolve() }, error);
  }
}

// One that waited was verified when it was made, and compared again when it was taken.
function given({ host, operation }: Recorded, { sandbox, spec }: PreparedSandbox): WaitingSandbox {
  if (usesEngine(spec.level)) host.reports.given(spec, operation.correlationId);
  host.telemetry.increment(METRICS.warm);
  provisioned({ host, operation }, spec, 0);
  return sandbox;
}

function provisioned(
  { host, operation }: Pick<Recorded, 'host' | 'operation'>,
  spec: SandboxSpec,
  provisionMs: number,
): void {
  const at = new Date(host.telemetry.clock.now());
  host.telemetry.observe(METRICS.provision, provisionMs);
  host.telemetry.kpis.provisioned(spec.identity.sandboxId, provisionMs, at);
  host.bus.emit('SandboxProvisioned', operation.correlationId, at, {
    sandboxId: spec.identity.sandboxId,
    backend: backendOf(spec.level),
    isolationLevel: isBoundary(spec.level) ? 'strict' : 'reduced',
    level: spec.level,
  });
}

/** A run whose sandbox may have to be given up. */
export type Giving = Omit<GivenUp, 'removed'>;

/**
 * Removes a sandbox that will have no command, and gives the error with what the scan found: who cancelled does not wait for
 * that; who was refused hears of it only when nothing is left.
 */
export async function givenUp(sandbox: WaitingSandbox, run: Giving, error: unknown): Promise<unknown> {
  const { host, signal } = run;
  const removed = sandbox[Symbol.asyncDispose]();
  host.keep(removed);
  const found = withFindings({ ...run, removed }, error);
  host.keep(found);
  if (signal.aborted) return error;
  await removed;
  return found;
}

/** Tells of a sandbox that was not what was planned. */
export function reportViolation(
  host: Host,
  spec: SandboxSpec,
  operation: Operation,
  containerId: string,
  error: unknown,
): void {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) return;
  const { violation, detail } = error.context;
  const { sandboxId } = spec.identity;
  operation.step('error', 'security violation: sandbox removed', {
    sandboxId,
    violation,
    detail,
  });
  host.bus.emit('SecurityViolation', operation.correlationId, new Date(host.telemetry.clock.now()), {
    sandboxId,
    violation,
    detail,
    ...(containerId === '' ? {} : { containerId }),
  });
}

/** Tells that a sandbox is gone. */
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

/**
 * Waits until the sandbox of a plan has its share of the memory that all sandboxes of the user have together. What comes back
 * gives up that share and the place that was taken before.
 */
export async function withMemory(
  { host, operation, release }: Pick<Recorded, 'host' | 'operation'> & { readonly release: () => void },
  { spec, machineBytes }: Pick<Planned, 'spec' | 'machineBytes'>,
  persistent: boolean,
  signal: AbortSignal,
): Promise<() => void> {
  // Without walls nothing holds a command to its limit, so that a sum of limits would say nothing.
  if (!isBoundary(spec.level)) return release;
  const { sandboxId } = spec.identity;
  const { memoryBytes } = spec.limits;
  const share = await host.memory.take(
    { sandboxId, memoryBytes, machineBytes, persistent },
    {
      deadlineMs: host.settings.queueMs,
      signal,
      onWait: (others, most) =>
        operation.step(
          'warn',
          `waiting for memory: your sandboxes may use ${formatBytes(most)} together; others hold ${formatBytes(others)} or wait for it, and this one asks for ${formatBytes(memoryBytes)}`,
        ),
    },
  );
  return () => {
    share();
    release();
  };
}
