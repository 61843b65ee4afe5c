// The way of one command through the pipe: resolve, decide, plan, obtain, verify, execute, observe, dispose, record.

import { randomBytes } from 'node:crypto';
import type { AuditHead } from './contract/audit.ts';
import { AcodeError } from './contract/errors.ts';
import { backendOf, isAtLeast, usesEngine } from './contract/levels.ts';
import type { Command, RunRequest } from './contract/command.ts';
import type { EffectivePolicy } from './contract/policy.ts';
import type { RunningCommand } from './contract/result.ts';
import type { SandboxSpec } from './contract/spec.ts';
import type { Host } from './host.ts';
import type { WaitingSandbox } from './isolation/backend.ts';
import type { Made } from './isolation/pool-kind.ts';
import { WORKSPACE_TARGET } from './isolation/plan.ts';
import { plan } from './planning.ts';
import { Capture } from './output/capture.ts';
import { checkRequest } from './request-check.ts';
import { printable } from './record.ts';
import { Running, cancelled } from './running.ts';
import type { Planned, RunningParts } from './running.ts';
import { METRICS } from './telemetry/operation.ts';
import type { Operation } from './telemetry/operation.ts';
import { recordIntent, recordRefusal } from './trail.ts';
import type { Recorded } from './trail.ts';
import { takeWarm } from './warm.ts';
import { workdirFor } from './workspace/locate.ts';

/** Runs a command up to the point where it is under way. */
export async function start(
  host: Host,
  command: Command,
  request: RunRequest,
  stdinStaysOpen: boolean,
): Promise<RunningCommand> {
  const operation = host.telemetry.begin('run');
  const stop = new AbortController();
  const signal = AbortSignal.any([
    host.closing,
    stop.signal,
    ...(request.signal instanceof AbortSignal ? [request.signal] : []),
  ]);
  const clock = host.telemetry.clock;
  const began = clock.monotonic();
  let release: () => void = () => undefined;
  try {
    signal.throwIfAborted();
    checkRequest(command, request);
    operation.note({ command: printable(command), risk: request.risk });
    release = await host.slots.take(host.settings.queueMs, signal);
    host.telemetry.gauge(METRICS.active, host.slots.taken);
    const queued = clock.monotonic();
    const of = { correlationId: operation.correlationId, preview: false };
    const wanted = await plan(host, { command, request }, of, signal);
    const taken = await takeWarm(host, wanted, request, signal);
    // One that waited has an identity of its own, which is what the record names; its plan is the same by its hash.
    const planned = taken ? { ...wanted, spec: taken.spec, requestHash: taken.requestHash } : wanted;
    // Before the sandbox is made: the shell that waits in it is the image’s, and may write long before the hand-over. Not by
    // the clock of the host program, since files are stamped by the kernel’s.
    const sinceMs = taken?.sinceMs ?? Date.now();
    report(operation, planned);
    const { sandbox, intent } = await obtainRecorded({ host, operation, command, request }, planned, taken, signal);
    const obtained = clock.monotonic();
    const timings = { queueMs: queued - began, obtainMs: obtained - queued };
    return await handOver({
      host,
      operation,
      planned,
      sandbox,
      warm: taken !== null,
      intent,
      signal,
      stop,
      command,
      request,
      stdinStaysOpen,
      timings,
      sinceMs,
      release,
      captures: captures(planned.policy, request),
      cwd: workdirFor(request.cwd, WORKSPACE_TARGET),
      nonce: randomBytes(16).toString('hex'),
    });
  } catch (error) {
    release();
    host.telemetry.gauge(METRICS.active, host.slots.taken);
    const failure = signal.aborted ? cancelled(error) : error;
    if (failure instanceof AcodeError && failure.is('ACODE-SBX-005')) host.telemetry.increment(METRICS.networkDenied);
    recordRefusal({ host, operation, command, request }, failure);
    operation.fail(failure);
    throw failure;
  }
}

// A sandbox that cannot be handed its command is given up like one that is not what was planned.
async function handOver(parts: RunningParts): Promise<RunningCommand> {
  try {
    return await Running.begin(parts);
  } catch (error) {
    await giveUp(parts.sandbox, parts.host, parts.signal);
    reportViolation(parts.host, parts.planned.spec, parts.operation, parts.sandbox.id, error);
    throw error;
  }
}

// The record is written while the sandbox is made, so it costs no time; nothing is handed over before both are there.
async function obtainRecorded(
  run: Recorded,
  planned: Planned,
  taken: Made | null,
  signal: AbortSignal,
): Promise<{ sandbox: WaitingSandbox; intent: AuditHead }> {
  const writing = recordIntent(run, planned, signal);
  writing.catch(() => undefined);
  const sandbox = taken ? given(run, taken) : await obtain(run.host, planned, run.operation, signal);
  try {
    // Whoever tidied up while it waited may have taken away what shows that its owner lives.
    if (taken && usesEngine(planned.spec.level)) await run.host.claim();
    return { sandbox, intent: await writing };
  } catch (error) {
    await giveUp(sandbox, run.host, signal);
    throw error;
  }
}

// Steps 4 and 5. A sandbox that is not what was planned is removed before anything was handed to it.
async function obtain(
  host: Host,
  { spec }: Planned,
  operation: Operation,
  signal: AbortSignal,
): Promise<WaitingSandbox> {
  const backend = await host.backend(spec.level);
  if (!backend) throw new AcodeError('ACODE-SBX-012', { required: spec.level, available: 'none' });
  // What runs on this host itself ends with this process; what is on an engine would outlive it.
  if (usesEngine(spec.level)) await host.claim();
  const began = host.telemetry.clock.monotonic();
  const make = async (): Promise<WaitingSandbox> => {
    const made = await backend.prepare(spec, signal);
    try {
      await made.verify(signal);
      return made;
    } catch (error) {
      await giveUp(made, host, signal);
      reportViolation(host, spec, operation, made.id, error);
      throw error;
    }
  };
  const sandbox = await (host.pool ? host.pool.during(spec, signal, make) : make());
  provisioned({ host, operation }, spec, host.telemetry.clock.monotonic() - began);
  return sandbox;
}

// One that waited was verified when it was made, and compared again when it was taken.
function given({ host, operation }: Recorded, { sandbox, spec }: Made): WaitingSandbox {
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
    isolationLevel: isAtLeast(spec.level, 'bubblewrap') ? 'strict' : 'reduced',
    level: spec.level,
  });
}

// Who cancelled does not wait for the removal; who was refused hears of it only when nothing is left.
async function giveUp(sandbox: WaitingSandbox, host: Host, signal: AbortSignal): Promise<void> {
  const removed = sandbox[Symbol.asyncDispose]();
  host.keep(removed);
  if (!signal.aborted) await removed;
}

function reportViolation(
  host: Host,
  spec: SandboxSpec,
  operation: Operation,
  containerId: string,
  error: unknown,
): void {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) return;
  const { violation, detail } = error.context;
  const { sandboxId } = spec.identity;
  operation.step('error', 'security violation: sandbox removed before the command was handed over', {
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

/** Tells the log what a run will be, and its reader what they should know of it: each thing once. */
export function report(operation: Pick<Operation, 'note' | 'step'>, { policy, spec, notes }: Planned): void {
  const { limits } = spec;
  operation.note({
    sandboxId: spec.identity.sandboxId,
    container: spec.identity.name,
    image: spec.image.reference,
    isolation: spec.level,
    network: typeof spec.network === 'string' ? spec.network : spec.network.name,
  });
  operation.step('debug', `limits: memory=${limits.memoryBytes}, cpus=${limits.cpus}, pids=${limits.pids}`, {
    limits,
    timeoutMs: policy.timeoutMs.value,
  });
  for (const warning of new Set([...policy.warnings, ...notes])) operation.step('warn', warning);
}

function captures(policy: EffectivePolicy, request: RunRequest): { stdout: Capture; stderr: Capture } {
  const limit = policy.limits.outputBytes.value;
  return { stdout: new Capture(limit, request.onStdout), stderr: new Capture(limit, request.onStderr) };
}
