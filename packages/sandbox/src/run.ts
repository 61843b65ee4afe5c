// The way of one command through the pipe: resolve, decide, plan, obtain, verify, execute, observe, dispose, record.

import { randomBytes } from 'node:crypto';
import { AcodeError } from './contract/errors.ts';
import { isAtLeast } from './contract/levels.ts';
import type { Command, RunRequest } from './contract/command.ts';
import type { Explanation } from './contract/host.ts';
import type { EffectivePolicy } from './contract/policy.ts';
import type { RunningCommand } from './contract/result.ts';
import type { SandboxSpec } from './contract/spec.ts';
import type { Host } from './host.ts';
import type { WaitingSandbox } from './isolation/backend.ts';
import { WORKSPACE_TARGET, planSandbox } from './isolation/plan.ts';
import { Capture } from './output/capture.ts';
import { decideImage } from './policy/images.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { decideRuntime } from './policy/runtime.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { checkRequest } from './request-check.ts';
import { printable } from './record.ts';
import { Running, cancelled } from './running.ts';
import type { Planned, RunningParts } from './running.ts';
import { METRICS } from './telemetry/operation.ts';
import type { Operation } from './telemetry/operation.ts';
import { validateWorkspace, workdirFor } from './workspace/locate.ts';
import { planMounts } from './workspace/mounts.ts';

/** What a plan is made for. */
interface PlanFor {
  readonly correlationId: string;
  /** Whether it is only to be shown. */
  readonly preview: boolean;
}

// Steps 1 to 3: what the command may do, at which level, and the plan of its sandbox.
async function plan(host: Host, request: RunRequest, of: PlanFor, signal: AbortSignal): Promise<Planned> {
  const backend = await host.backend();
  const capability = await host.capability();
  const around = { engineSocket: backend.socket, environment: process.env };
  const workspace = await validateWorkspace(await workspaceOf(host), host.directories, around);
  const layers = await layersFor(host, workspace.root);
  const resolved = resolvePolicy(request.policy ?? {}, layers, { caller: host.caller, cpus: capability.cpus });
  const { level, runtime } = decideRuntime(resolved, capability);
  const policy = { ...resolved, runtime: { ...resolved.runtime, value: runtime } };
  const image = await backend.resolveImage(policy, signal);
  decideImage(policy.image.value, image, policy.imageTrust);
  const identify = (specHash: string) =>
    host.session.identify({
      task: request.taskId,
      session: request.sessionId,
      profile: policy.profile.value,
      level,
      specHash,
      ...of,
    });
  const { mounts, notes } = await planMounts({
    workspace,
    target: WORKSPACE_TARGET,
    readOnly: policy.workspace.value === 'readonly',
    additional: policy.mounts.value,
    hostRoots: policy.hostRoots.value,
    uid: host.uid,
  });
  return { policy, spec: planSandbox(policy, { level, image, mounts }, identify), notes };
}

/** What a command would come to. */
export async function explain(
  host: Host,
  command: Command,
  request: RunRequest,
  signal: AbortSignal,
): Promise<Explanation> {
  checkRequest(command, request);
  const { policy, spec, notes } = await plan(host, request, { correlationId: '', preview: true }, signal);
  const backend = await host.backend();
  return {
    command,
    policy,
    level: spec.level,
    spec,
    engineRequest: backend.describe(spec),
    notes: [...notes, ...notesOn(policy, spec)],
  };
}

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
    const planned = await plan(host, request, { correlationId: operation.correlationId, preview: false }, signal);
    // Before the sandbox is made: the shell that waits in it is the image’s, and may write long before the hand-over. Not by
    // the clock of the host program, since files are stamped by the kernel’s.
    const sinceMs = Date.now();
    report(operation, planned);
    const sandbox = await obtain(host, planned.spec, operation, signal);
    const obtained = clock.monotonic();
    const timings = { queueMs: queued - began, obtainMs: obtained - queued };
    return await handOver({
      host,
      operation,
      planned,
      sandbox,
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

// Steps 4 and 5. A sandbox that is not what was planned is removed before anything was handed to it.
async function obtain(
  host: Host,
  spec: SandboxSpec,
  operation: Operation,
  signal: AbortSignal,
): Promise<WaitingSandbox> {
  const backend = await host.backend();
  await host.claim();
  const sandbox = await backend.prepare(spec, signal);
  try {
    await sandbox.verify(signal);
  } catch (error) {
    await giveUp(sandbox, host, signal);
    reportViolation(host, spec, operation, sandbox.id, error);
    throw error;
  }
  host.bus.emit('SandboxProvisioned', operation.correlationId, new Date(host.telemetry.clock.now()), {
    sandboxId: spec.identity.sandboxId,
    backend: 'docker',
    isolationLevel: 'strict',
    level: spec.level,
  });
  return sandbox;
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

function notesOn(policy: EffectivePolicy, spec: SandboxSpec): string[] {
  const notes = [...policy.warnings];
  if (spec.image.removed.length > 0)
    notes.push(`Removed from the image’s environment: ${spec.image.removed.join(', ')}.`);
  notes.push(
    'Before the command is handed over, engine and kernel are compared with this plan; any difference removes the sandbox.',
  );
  if (isAtLeast(spec.level, 'gvisor'))
    notes.push(
      'The runtime has a kernel of its own: it does not apply the system call filter, and is proven to be what its name says before the first sandbox of it is used.',
    );
  notes.push(
    'Where the kernel’s view cannot be read (an engine in a virtual machine), the engine’s account alone is compared.',
  );
  return notes;
}
