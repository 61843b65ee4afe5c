// Step 9 of the pipeline, the part that must not fail: the audit record before the hand-over, and the outcome after it.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { createHash } from 'node:crypto';
import { findingsOf } from '../records/audit/files.ts';
import type { Scanned } from '../records/audit/files.ts';
import type {
  AuditCreation,
  AuditFindings,
  AuditHead,
  AuditIntent,
  AuditMadeAhead,
  AuditOutcome,
  AuditProvision,
  AuditRemoval,
  AuditSandbox,
} from '../contract/audit.ts';
import type { EventBus } from '../contract/events.ts';
import type { Command, RunRequest } from '../contract/command.ts';
import type { EgressConnection } from '../contract/egress.ts';
import { denialParts } from '../contract/denial-text.ts';
import { AcodeError } from '../contract/errors.ts';
import { networkName } from '../contract/network.ts';
import { isAtLeast, usesEngine } from '../contract/levels.ts';
import type { RiskyChange, RunResult } from '../contract/result.ts';
import type { SandboxSpec, ServiceSpec } from '../contract/spec.ts';
import type { Host, Planned, RunningParts } from './host.ts';
import type { Backend } from '../isolation/backend.ts';
import { setBy } from '../policy/layers.ts';
import { METRICS } from '../records/telemetry.ts';
import type { Operation } from '../records/telemetry.ts';
import { chooseChanges } from '../contract/changes.ts';
import type { Denials } from './denials/denials.ts';
import { redact, redactArguments } from '../contract/redact.ts';

/** One run, as its audit records identify it. */
export interface Recorded {
  readonly host: Host;
  readonly operation: Operation;
  readonly command: Command;
  readonly request: RunRequest;
  /** The operation; a run by default. */
  readonly as?: 'create' | 'exec';
}

/** Records what is about to run. Without this record, the command is not handed over. */
export async function recordIntent(run: Recorded, planned: Planned, signal: AbortSignal): Promise<AuditHead> {
  const commandHash = await run.host.audit.fingerprint(asGiven(run));
  return run.host.audit.append({ ...intentOf(run, planned), commandHash }, signal);
}

/**
 * Records that a warm sandbox is about to be created. Without this record none is created, since its image’s shell
 * starts at once.
 */
export async function recordMadeAhead(
  { audit, session }: Pick<Host, 'audit' | 'session'>,
  {
    spec,
    profile,
    requestHash,
  }: { readonly spec: SandboxSpec; readonly profile: string; readonly requestHash: string },
  signal: AbortSignal,
): Promise<void> {
  const { correlationId } = spec.identity;
  const entry: AuditMadeAhead = {
    kind: 'event',
    operation: 'create',
    event: 'a sandbox is made ahead of its command',
    correlationId,
    sessionId: session.id,
    profile,
    ...sandboxOf(spec),
    specHash: spec.hash,
    requestHash,
  };
  await audit.append(entry, signal);
}

/**
 * Records the outcome. The caller does not wait: the command has already run, whether or not the record can be written.
 */
export function recordOutcome(
  run: Recorded,
  intent: AuditHead,
  ended: {
    readonly result?: RunResult | undefined;
    readonly error?: unknown;
    readonly durationMs: number;
    /** The connections of an allow-list, if no result contains them. */
    readonly connections?: readonly EgressConnection[] | undefined;
    /** The findings of the scan, if no result contains them. */
    readonly scanned?: Scanned;
    /** Absent for a command in an existing sandbox. */
    readonly provision?: AuditProvision | undefined;
  },
): void {
  const { result, error, durationMs } = ended;
  const entry: AuditOutcome = {
    ...contextOf(run),
    kind: 'outcome',
    operation: run.as ?? 'run',
    intent: intent.seq,
    exitCode: result?.exitCode ?? null,
    durationMs: Math.round(durationMs),
    ...(result ? { oomKilled: result.oomKilled, timedOut: result.timedOut } : {}),
    ...(result?.containerId === undefined ? {} : { containerId: result.containerId }),
    ...(error === undefined ? {} : { errorCode: codeOf(error) }),
    ...ended.provision,
    ...connectionsOf(ended),
    ...found(ended.scanned ?? result ?? partialOf(error)),
  };
  // Written after the caller has its result, which must not wait for the audit log.
  inBackground(
    run,
    nextTurn().then(() => run.host.audit.append(entry)),
  );
}

// As many as a record has room for: a command can ask for ever new hosts.
const MAX_CONNECTIONS = 64;

/** The connections of a command, as its record names them: what was refused first, then what moved most. */
function connectionsOf({
  connections,
  result,
}: {
  readonly connections?: readonly EgressConnection[] | undefined;
  readonly result?: RunResult | undefined;
}): Pick<AuditOutcome, 'connections' | 'connectionsTotal'> {
  const rows = connections ?? result?.network ?? [];
  if (rows.length === 0) return {};
  const weight = ({ verdict, bytesIn, bytesOut }: EgressConnection): number =>
    verdict === 'denied' ? Infinity : bytesIn + bytesOut;
  const sorted = rows.toSorted((one, other) => (weight(one) === weight(other) ? 0 : weight(other) - weight(one)));
  return { connections: sorted.slice(0, MAX_CONNECTIONS), connectionsTotal: rows.length };
}

function found(scanned: Scanned | undefined): AuditFindings {
  return scanned ? findingsOf(scanned) : {};
}

/** Records findings in a workspace that belong to no command: they appeared after the last command of a sandbox. */
export function recordFindings(
  run: Pick<Recorded, 'host' | 'operation' | 'request'>,
  event: string,
  { sandboxId, workspace }: { readonly sandboxId?: string; readonly workspace?: string },
  scanned: Scanned,
): void {
  if (scanned.riskyChanges.length === 0) return;
  const about = {
    ...(sandboxId === undefined ? {} : { sandboxId }),
    ...(workspace === undefined ? {} : { workspace }),
  };
  const entry = {
    ...contextOf(run),
    kind: 'event',
    operation: 'exec',
    event,
    ...about,
    ...findingsOf(scanned),
  } as const;
  inBackground(
    run,
    nextTurn().then(() => run.host.audit.append(entry)),
  );
}

// The known findings if there is no result: from a cancelled command, or from an error that lists them.
function partialOf(error: unknown): Scanned | undefined {
  if (!(error instanceof AcodeError)) return undefined;
  const partial = error.is('ACODE-SBX-014') || error.is('ACODE-SBX-025') ? error.context.result : undefined;
  if (partial || error.riskyChanges.length === 0) return partial;
  const complete = error.riskyChanges.every(({ kind }) => kind !== 'scan-incomplete');
  return { riskyChanges: [...error.riskyChanges], scan: complete ? 'complete' : 'incomplete' };
}

/** Records a request that was refused before the hand-over. */
export function recordRefusal(run: Recorded, error: unknown): void {
  // A failure to write the audit log cannot be recorded in the audit log.
  if (error instanceof AcodeError && error.is('ACODE-AUD-001')) return;
  const { request, command } = run;
  const message = error instanceof Error ? error.message : String(error);
  const scanned = partialOf(error);
  const writing = run.host.audit.append({
    ...contextOf(run),
    kind: 'refusal',
    operation: 'deny',
    command: wordsOf(command),
    ...(request.risk === undefined ? {} : { risk: request.risk }),
    errorCode: codeOf(error),
    message,
    ...(scanned ? { workspace: run.host.workspace, ...findingsOf(scanned) } : {}),
  });
  inBackground(run, writing);
}

/**
 * Records every sandbox that is created or removed, and every other removal: of orphans, of expired resources, and by
 * cleanups. The records are written in parallel with the command, which waits only for its intent record.
 */
export function recordLives(
  bus: EventBus,
  { audit, keep, telemetry }: Pick<Host, 'audit' | 'keep' | 'telemetry'>,
): void {
  const write = (entry: AuditCreation | AuditRemoval): void =>
    keep(
      audit.append(entry).catch((error: unknown) => {
        const { correlationId, operation } = entry;
        telemetry.log('error', 'the audit log could not be written', {
          correlationId,
          operation,
          reason: String(error),
        });
      }),
    );
  const created = (of: Pick<AuditCreation, 'what' | 'id' | 'name' | 'sandboxId' | 'correlationId'>): void =>
    write({ kind: 'creation', operation: 'create', ...of });
  const removed = (of: Pick<AuditRemoval, 'what' | 'id' | 'sandboxId' | 'reason' | 'correlationId'>): void =>
    write({ kind: 'removal', operation: 'remove', ...of });
  bus.on('ContainerCreated', ({ containerId: id, name, sandboxId, correlationId }) =>
    created({ what: 'container', id, name, sandboxId, correlationId }),
  );
  bus.on('ContainerRemoved', ({ containerId: id, sandboxId, reason, correlationId }) =>
    removed({ what: 'container', id, ...(sandboxId === '' ? {} : { sandboxId }), reason, correlationId }),
  );
  bus.on('SandboxProvisioned', ({ backend, sandboxId, correlationId }) => {
    if (backend !== 'docker') created({ what: 'process', id: sandboxId, sandboxId, correlationId });
  });
  bus.on('SandboxTeardown', ({ backend, sandboxId, correlationId }) => {
    if (backend !== 'docker') removed({ what: 'process', id: sandboxId, sandboxId, reason: 'finished', correlationId });
  });
  // The removal of a network or volume together with its sandbox needs no record of its own.
  bus.on('NetworkRemoved', ({ networkId: id, reason, correlationId }) => {
    if (reason !== 'finished') removed({ what: 'network', id, reason, correlationId });
  });
  bus.on('VolumeRemoved', ({ name: id, reason, correlationId }) => {
    if (reason !== 'finished') removed({ what: 'volume', id, reason, correlationId });
  });
}

function inBackground({ host, operation }: Pick<Recorded, 'host' | 'operation'>, writing: Promise<unknown>): void {
  host.keep(
    writing.catch((error: unknown) =>
      operation.step('error', 'the audit log could not be written', { reason: String(error) }),
    ),
  );
}

// Everything that determines what runs, before anything is redacted or truncated.
function asGiven({ command, request: { cwd = '.', env = {}, stdin } }: Recorded): unknown {
  const input = typeof stdin === 'string' || stdin instanceof Uint8Array ? Buffer.from(stdin).toString('base64') : null;
  return { command: wordsOf(command), cwd, env: { ...env }, stdin: input };
}

function inputOf({ request: { stdin } }: Recorded): AuditIntent['stdin'] {
  if (stdin === undefined) return 'none';
  return typeof stdin === 'string' || stdin instanceof Uint8Array ? 'given' : 'stream';
}

/** Hash of the request that a backend builds for a plan. */
export function requestHashOf(backend: Pick<Backend, 'describe'>, spec: SandboxSpec): string {
  return hashOf(backend.describe(spec));
}

function sandboxOf(
  spec: SandboxSpec,
): Pick<AuditIntent, 'sandbox_level'> & AuditSandbox & { readonly sandboxId: string } {
  return {
    sandboxId: spec.identity.sandboxId,
    sandbox_level: spec.level,
    runtime: spec.runtime,
    containerName: spec.identity.name,
    ...(usesEngine(spec.level) ? { image: spec.image.reference, imageDigest: spec.image.digest } : {}),
    ...(spec.services ? { services: spec.services.map(audited) } : {}),
    network: networkName(spec.network),
    mounts: spec.mounts.map(({ target, readOnly }) => ({ target, mode: readOnly ? 'ro' : 'rw' })),
    user: `${spec.user.uid}:${spec.user.gid}`,
    ...workspaceOf(spec),
  };
}

function audited({ name, spec: { image } }: ServiceSpec): NonNullable<AuditSandbox['services']>[number] {
  return { name, image: image.reference, imageDigest: image.digest };
}

function intentOf(run: Recorded, { policy, spec, backend, requestHash }: Planned): Omit<AuditIntent, 'commandHash'> {
  const { command, request } = run;
  return {
    ...contextOf(run),
    kind: 'intent',
    operation: run.as ?? 'run',
    ...sandboxOf(spec),
    profile: policy.profile.value,
    command: wordsOf(command),
    env: Object.keys(request.env ?? {}),
    cwd: request.cwd ?? '.',
    stdin: inputOf(run),
    limits: { ...spec.limits, timeoutMs: policy.timeoutMs.value },
    risk: policy.risk.value,
    riskReasons: policy.riskReasons,
    requiredLevel: policy.required.value,
    policyHash: hashOf(policy),
    specHash: spec.hash,
    requestHash: requestHash ?? requestHashOf(backend, spec),
    decision: decisionOf(policy, spec),
  };
}

/** The workspace of a plan, as its audit records name it. */
export function workspaceOf({ mounts }: Pick<SandboxSpec, 'mounts'>): { workspace?: string } {
  const mount = mounts.find(({ purpose }) => purpose === 'workspace');
  const workspace = mount?.copyOf?.path ?? mount?.source;
  return workspace === undefined ? {} : { workspace };
}

function decisionOf({ required }: Planned['policy'], { level }: Planned['spec']): string {
  if (isAtLeast(level, 'docker')) return 'allowed';
  return `allowed at ${level}, which is weaker than docker: ${setBy(required)}`;
}

function contextOf({
  host,
  operation,
  request,
}: Pick<Recorded, 'host' | 'operation' | 'request'>): Pick<AuditIntent, 'correlationId' | 'sessionId' | 'taskId'> {
  return {
    correlationId: operation.correlationId,
    sessionId: request.sessionId ?? host.session.id,
    ...(request.taskId === undefined ? {} : { taskId: request.taskId }),
  };
}

function wordsOf(command: Command): readonly string[] {
  return typeof command === 'string' ? ['/bin/sh', '-c', command] : command;
}

function hashOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex');
}

function codeOf(error: unknown): string {
  return error instanceof AcodeError ? String(error.code) : 'unexpected';
}

// As many as are useful in a log; the result has all of them.
const SHOWN_CHANGES = 20;

/** Reports denials. Network denials are separate because a metric counts them. */
export function recordDenials({ host, operation }: RunningParts, sandboxId: string, { network, other }: Denials): void {
  for (const denial of [...network, ...other])
    operation.step('warn', `denied: ${denialParts(denial).what}`, { sandboxId, ...denial });
  for (const { rule, suspected } of network) {
    host.telemetry.increment(METRICS.networkDenied);
    host.bus.emit('NetworkDenied', operation.correlationId, new Date(host.telemetry.clock.now()), {
      sandboxId,
      rule,
      ...(suspected === undefined ? {} : { suspected }),
    });
  }
}

/** Reports the end of a command, before the removal of its sandbox is reported. */
export function recordExit(parts: RunningParts, exitCode: number | null): void {
  const { host, operation, planned, sandbox, stays } = parts;
  if (stays) return;
  host.bus.emit('ContainerExited', operation.correlationId, new Date(host.telemetry.clock.now()), {
    sandboxId: planned.spec.identity.sandboxId,
    containerId: sandbox.id,
    exitCode,
  });
}

/** Reports how a command ended in one canonical event, and saves its output. */
export function recordResult(parts: RunningParts, result: RunResult): void {
  const { host, operation } = parts;
  const at = new Date(host.telemetry.clock.now());
  host.telemetry.observe(METRICS.execute, result.durationMs);
  if (result.oomKilled) host.telemetry.increment(METRICS.oom);
  const { sandboxId, limitExceeded, exitCode } = result;
  if (limitExceeded) {
    host.telemetry.increment(METRICS.limits, { limit: limitExceeded });
    operation.step('warn', `limit exceeded: ${limitExceeded}`, { sandboxId, limit: limitExceeded });
    host.bus.emit('LimitExceeded', operation.correlationId, at, { sandboxId, limit: limitExceeded });
  }
  recordRisk(parts.operation, result.sandboxId, result.riskyChanges);
  operation.step('info', parts.stays ? 'command ended' : 'container stopped', {
    sandboxId,
    containerId: result.containerId,
    exitCode,
  });
  operation.succeed({
    exitCode,
    timedOut: result.timedOut,
    oomKilled: result.oomKilled,
    limitExceeded,
    runMs: result.durationMs,
    usage: result.usage,
    dropped: result.dropped,
    denials: result.denials.map(({ rule }) => rule),
    riskyChanges: result.riskyChanges.length,
  });
  keepOutput(parts, result, at);
}

/** A command with secrets redacted, for logs. */
export function printable(command: Command): string | string[] {
  return typeof command === 'string' ? redact(command) : redactArguments(command);
}

/** Logs the risky changes of a run. */
export function recordRisk(operation: Operation, sandboxId: string, riskyChanges: readonly RiskyChange[]): void {
  if (riskyChanges.length === 0) return;
  const { shown, incomplete } = chooseChanges(riskyChanges, SHOWN_CHANGES);
  operation.step('warn', 'the run left things in the workspace that programs on this host might execute or follow', {
    sandboxId,
    count: riskyChanges.length,
    riskyChanges: [...shown, ...incomplete],
  });
}

function keepOutput({ host, operation, command, planned }: RunningParts, result: RunResult, at: Date): void {
  if (!host.savedLogs) return;
  const text = printable(command);
  const log = {
    name: planned.spec.identity.name,
    sandboxId: result.sandboxId,
    command: typeof text === 'string' ? text : text.join(' '),
    endedAt: at.toISOString(),
    exitCode: result.exitCode,
    stdout: result.stdout,
    stderr: result.stderr,
    dropped: result.dropped,
    correlationId: result.correlationId,
  };
  const { savedLogs } = host;
  const saving = nextTurn()
    .then(() => savedLogs.save(log, at.getTime()))
    .catch((error: unknown) =>
      operation.step('warn', 'the output of the run could not be kept', { reason: String(error) }),
    );
  host.keep(saving);
}
