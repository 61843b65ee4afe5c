// Run: one command through the pipeline (admit, plan, obtain, verify, execute, observe, dispose, record).

import { randomBytes } from 'node:crypto';
import type { Command, RunRequest } from '../contract/command.ts';
import { networkName } from '../contract/network.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { RunningCommand } from '../contract/result.ts';
import { admitted, checkRequest } from './admission.ts';
import type { Admission } from './admission.ts';
import { obtainConnected } from './egress.ts';
import { abandonFork } from './forking.ts';
import type { Host, Planned, RunningParts } from './host.ts';
import type { WaitingSandbox } from '../isolation/backend.ts';
import { givenUp, obtainRecorded, tornDown } from './obtaining.ts';
import type { Giving } from './obtaining.ts';
import { plan } from './planning.ts';
import { releaseState } from './state.ts';
import { Capture } from './output/capture.ts';
import { printable } from './trail.ts';
import { Running } from './running.ts';
import type { Operation } from '../records/telemetry.ts';
import { takeWarm } from './warm.ts';
import { workdirFor } from '../workspace/locate.ts';

/** Runs a command up to the point where it has started. */
export async function start(
  host: Host,
  command: Command,
  request: RunRequest,
  stdinStaysOpen: boolean,
): Promise<RunningCommand> {
  const run = { command, request };
  return admitted(host, { name: 'run', signal: request.signal, run }, async admission => {
    const { operation, signal } = admission;
    const { clock } = host.telemetry;
    checkRequest(command, request);
    operation.note({ command: printable(command), risk: request.risk });
    await admission.takeSlot();
    const queued = clock.monotonic();
    const of = { correlationId: operation.correlationId, preview: false };
    const wanted = await plan(host, run, of, signal);
    // Nothing ran where this rejects: `handOver` resolves once the command has started.
    return await startPlanned(host, { run, wanted, admission, queued, stdinStaysOpen }).catch(
      async (error: unknown) => {
        await abandonFork(host, wanted.fork);
        releaseStateOf(host, wanted);
        throw error;
      },
    );
  });
}

interface PlannedRun {
  readonly run: { readonly command: Command; readonly request: RunRequest };
  readonly wanted: Planned;
  readonly admission: Admission;
  readonly queued: number;
  readonly stdinStaysOpen: boolean;
}

async function startPlanned(
  host: Host,
  { run, wanted, admission, queued, stdinStaysOpen }: PlannedRun,
): Promise<RunningCommand> {
  const { command, request } = run;
  const { operation, signal, stop, began } = admission;
  const { clock } = host.telemetry;
  await admission.takeMemory(wanted, false);
  const askedAt = clock.monotonic();
  const taken = host.pool && (await takeWarm(host.pool, wanted, request, signal));
  // A warm sandbox has its own identity, which the record names; its plan has the same hash.
  const planned = taken ? { ...wanted, spec: taken.spec, requestHash: taken.requestHash } : wanted;
  // Taken before the sandbox is created: the image’s own shell waits in it and may write long before the hand-over.
  // This uses the kernel’s clock and not the host program’s, since the kernel sets the timestamps of files.
  const { sinceMs, rest } = taken ?? { sinceMs: Date.now(), rest: undefined };
  report(operation, planned);
  const recorded = { ...run, host, operation };
  const from = { taken, sinceMs, askedAt };
  const obtain = planned.spec.network.kind === 'allow' ? obtainConnected : obtainRecorded;
  const { sandbox, intent, provision, ...opened } = await obtain(recorded, planned, from, signal);
  const obtained = clock.monotonic();
  const timings = { queueMs: queued - began, obtainMs: obtained - queued };
  const { release } = admission;
  const dispose = (): Promise<void> => disposing({ host, operation, planned, sandbox, release, ...opened });
  const used = await asUsed(sandbox, { host, operation, planned, request, signal, sinceMs });
  const running = await handOver(sandbox, {
    host,
    operation,
    planned,
    ...used,
    ...opened,
    dispose,
    warm: taken !== null,
    provision,
    intent,
    signal,
    stop,
    command,
    request,
    stdinStaysOpen,
    timings,
    sinceMs,
    rest,
    captures: captures(planned.policy, request),
    cwd: workdirFor(request.cwd, planned.spec.workdir),
    nonce: randomBytes(16).toString('hex'),
  });
  const startedAt = new Date(clock.now()).toISOString();
  const { sandboxId } = planned.spec.identity;
  host.offer({ sandboxId, info: { pid: 1, command, cwd: request.cwd ?? '.', startedAt }, running });
  return running;
}

// The caller already has the result; removes the sandbox and frees its slot.
async function disposing({
  host,
  operation,
  planned,
  sandbox,
  release,
  egress,
}: Pick<RunningParts, 'host' | 'operation' | 'planned' | 'egress'> & {
  readonly sandbox: WaitingSandbox;
  readonly release: () => void;
}): Promise<void> {
  try {
    await Promise.all([egress?.close(), sandbox[Symbol.asyncDispose]()]);
  } finally {
    release();
    releaseStateOf(host, planned);
    tornDown({ host, operation }, planned.spec, 'the command has ended');
  }
}

// Another command may have the state directory of a plan, if it has one.
function releaseStateOf(host: Host, { policy, spec }: Planned): void {
  if (policy.state.value !== null) releaseState(host, spec);
}

// A sandbox with requested artifacts is kept until they are copied out.
async function asUsed(sandbox: WaitingSandbox, run: Giving & { readonly request: RunRequest }): Promise<Used> {
  const { artifacts = [] } = run.request;
  if (artifacts.length === 0) return { sandbox };
  const { planned, host, signal } = run;
  try {
    const { clock } = host.telemetry;
    const used = await host.withArtifacts(sandbox, artifacts, { spec: planned.spec, clock, signal });
    return { sandbox: used, take: () => used.take() };
  } catch (error) {
    throw await givenUp(sandbox, run, error);
  }
}

type Used = Pick<RunningParts, 'sandbox' | 'take'>;

// A sandbox that cannot receive its command is abandoned like one that differs from its plan.
async function handOver(sandbox: WaitingSandbox, parts: RunningParts): Promise<Running> {
  try {
    return await Running.begin(parts);
  } catch (error) {
    throw await givenUp(sandbox, parts, error);
  }
}

/** Logs how the command will run, and each note for the user once. */
export function report(operation: Pick<Operation, 'note' | 'step'>, { policy, spec, notes }: Planned): void {
  const { limits } = spec;
  operation.note({
    sandboxId: spec.identity.sandboxId,
    container: spec.identity.name,
    image: spec.image.reference,
    isolation: spec.level,
    network: networkName(spec.network),
  });
  operation.step('debug', `limits: memory=${limits.memoryBytes}, cpus=${limits.cpus}, pids=${limits.pids}`, {
    limits,
    timeoutMs: policy.timeoutMs.value,
  });
  for (const warning of new Set([...policy.warnings, ...notes])) operation.step('warn', warning);
}

/** Buffers for the output of a command, with their size limits. */
export function captures(
  policy: EffectivePolicy,
  request: Pick<RunRequest, 'onStdout' | 'onStderr'>,
): { stdout: Capture; stderr: Capture } {
  const limit = policy.limits.outputBytes.value;
  return { stdout: new Capture(limit, request.onStdout), stderr: new Capture(limit, request.onStderr) };
}
