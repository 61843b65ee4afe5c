// Warm pool of a host: which commands can use a pre-started sandbox, how one is created, and what is reported about it.

import { randomUUID } from 'node:crypto';
import { totalmem } from 'node:os';
import type { RunRequest } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import type { PoolOptions, WarmPool } from '../contract/host.ts';
import { isBoundary, usesEngine } from '../contract/levels.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Host, Planned } from './host.ts';
import { exposedTo, reachOf } from '../isolation/kernel.ts';
import { Pool } from '../isolation/pool/pool.ts';
import type { Discarded, PoolObserver } from '../isolation/pool/pool.ts';
import type { PreparedSandbox, SandboxTemplate } from '../isolation/pool/pool-kind.ts';
import type { PoolLimits } from '../isolation/pool/pool-size.ts';
import { METRICS } from '../records/telemetry.ts';
import { recordMadeAhead, requestHashOf } from './trail.ts';
import { UnusedScans, backendFor, prepareVerified, reportViolation } from './obtaining.ts';
import type { FoundWhileWaiting } from './obtaining.ts';

/** The parts of a host that a pool needs. */
export type PoolHost = Pick<Host, 'audit' | 'backend' | 'bus' | 'claim' | 'closing' | 'keep' | 'session' | 'telemetry'>;

/** The pool options of a host. */
export interface PoolRequest {
  readonly pool?: false | PoolOptions | undefined;
  readonly foundWhileWaiting?: FoundWhileWaiting | undefined;
}

/** Whether a command would get a warm sandbox, and why. */
export interface Warmth {
  readonly warm: boolean;
  readonly why: string;
  /** Set if the host has no pool at all. */
  readonly cause?: 'no pool';
}

const MAX_WAITING = 64;
const DEFAULTS = { min: 1, max: 4, idleMs: 5 * 60 * 1000 };
const MAX_IDLE_MS = 24 * 3600 * 1000;
// The share of the machine’s memory that the limits of all waiting sandboxes may add up to. They use almost none of it
// while they wait, but each may receive a command at any moment.
const MEMORY_SHARE = 0.5;
// In addition to the command’s time limit: time to end the command and to remove the sandbox.
const AFTERWARDS_MS = 5 * 60 * 1000;

/** The caller’s pool options with all defaults; null if the caller wants no pool. */
export function poolLimits({ pool = false }: Pick<PoolRequest, 'pool'>): PoolLimits | null {
  if (pool === false) return null;
  const max = within('pool.max', pool.max ?? Math.max(DEFAULTS.max, pool.min ?? 0), 1, MAX_WAITING);
  const min = within('pool.min', pool.min ?? Math.min(DEFAULTS.min, max), 0, max);
  const idleMs = within('pool.idleMs', pool.idleMs ?? DEFAULTS.idleMs, 1000, MAX_IDLE_MS);
  return { min, max, idleMs, memoryBytes: Math.floor(totalmem() * MEMORY_SHARE) };
}

/** The pool of a host; null if its caller wants none. */
export function openPool(options: PoolRequest, host: PoolHost): Pool | null {
  const limits = poolLimits(options);
  if (!limits) return null;
  const scans = new UnusedScans(host, options.foundWhileWaiting);
  return new Pool({
    limits,
    clock: host.telemetry.clock,
    closing: host.closing,
    keep: work => host.keep(work),
    make: (template, signal) => makeWaiting(host, template, scans, signal),
    observer: observing(host, scans),
  });
}

/**
 * Prepares sandboxes for a plan before its first command arrives. Never rejects: if it fails, the first command reports
 * why.
 */
export async function warmUp(
  { pool, closing, telemetry }: Pick<Host, 'pool' | 'closing' | 'telemetry'>,
  planning: () => Promise<Planned>,
): Promise<void> {
  if (!pool) return;
  try {
    const planned = await planning();
    if (planned.spec.image.id !== '' && whyCold(planned.spec, {}) === null) pool.expect(templateOf(planned));
  } catch (error) {
    if (!closing.aborted) telemetry.log('debug', 'nothing could be made ready', { reason: String(error) });
  }
}

/** Takes a waiting sandbox that has exactly this plan; null if the command needs a new one. */
export async function takeWarm(
  pool: Pool,
  planned: Planned,
  request: RunRequest,
  signal: AbortSignal,
): Promise<PreparedSandbox | null> {
  if (whyCold(planned.spec, request) !== null) return null;
  return pool.take(templateOf(planned), { lifeMs: planned.policy.timeoutMs.value + AFTERWARDS_MS, signal });
}

/** Whether a command would get a waiting sandbox, with a reason for the user. */
export function warmthOf(host: Pick<Host, 'pool'>, planned: Planned, request: RunRequest): Warmth {
  const { pool } = host;
  const cold = whyCold(planned.spec, request);
  if (cold !== null) return { warm: false, why: cold };
  if (!pool) return { warm: false, cause: 'no pool', why: 'this host keeps none waiting (AcodeOptions.pool)' };
  const ready = pool.ready(templateOf(planned));
  if (ready === null) return { warm: false, why: 'the image has no /bin/sh that could wait for a command' };
  if (ready === 0) return { warm: false, why: 'no sandbox with this plan is warm yet; the first command starts one' };
  return { warm: true, why: `${ready} with this plan ${ready === 1 ? 'is' : 'are'} warm` };
}

/** Reports the pool of a host, and what a command without special requests would get from it. Never rejects. */
export async function poolReport({ pool }: Pick<Host, 'pool'>, planning: () => Promise<Planned>): Promise<WarmPool> {
  const sandboxes = pool?.images() ?? [];
  try {
    const planned = await planning();
    const image = usesEngine(planned.spec.level) ? planned.spec.image.reference : null;
    const first = firstOf(pool, planned);
    if (sandboxes.length === 0 || first.state === 'ready') return { sandboxes, image, ...first };
    // The pool has sandboxes of the plan that was used last.
    const reason = 'sandboxes of the plan that was used last are warm';
    return { sandboxes, image, state: 'ready', cause: null, reason };
  } catch (error) {
    const state = sandboxes.length > 0 ? 'ready' : 'none';
    const reason = error instanceof Error ? error.message : String(error);
    return { sandboxes, image: null, state, cause: null, reason };
  }
}

function firstOf(pool: Pool | null, planned: Planned): Pick<WarmPool, 'state' | 'cause' | 'reason'> {
  const { spec } = planned;
  const { warm, why: reason } = warmthOf({ pool }, planned, {});
  if (warm) return { state: 'ready', cause: null, reason };
  const cause = spec.caches.length > 0 ? 'caches' : null;
  if (!pool || whyCold(spec, {}) !== null || pool.ready(templateOf(planned)) === null)
    return { state: 'none', cause, reason };
  if (usesEngine(spec.level) && spec.image.id === '')
    return { state: 'none', cause: 'no image', reason: `the image ${spec.image.reference} is not on this engine` };
  const failure = pool.failure(templateOf(planned));
  if (failure === null) return { state: 'making', cause, reason: 'the first is being made' };
  const why = failure instanceof Error ? failure.message : 'unknown reason';
  return { state: 'none', cause, reason: `one could not be made: ${why}` };
}

/** Why a command cannot use a pre-started sandbox; null if it can. */
export function whyCold(spec: SandboxSpec, request: Pick<RunRequest, 'taskId' | 'sessionId'>): string | null {
  // Without isolation, an earlier command could tamper with a waiting sandbox.
  if (!isBoundary(spec.level)) return `nothing keeps other commands away from it at level ${spec.level}`;
  if (spec.ports.length > 0) return 'it publishes ports, which are taken when it is made';
  if (spec.caches.length > 0) return 'it has caches, and one that waits would keep them from being filled';
  const own = forOneCommand(spec);
  if (own !== null) return own;
  if (spec.dependencies)
    return 'it has dependencies of the project image, on a directory that could be replaced meanwhile';
  if (spec.network.kind === 'named') return `the network ${spec.network.name} is looked up for each command`;
  // A command in one sandbox could swap a mount source of the next one.
  if (exposedTo([reachOf(spec)], spec).length > 0) return 'it mounts a part of what it can write';
  if (request.taskId !== undefined || request.sessionId !== undefined)
    return 'the command names its task or session, which are part of a sandbox’s name from the beginning';
  return null;
}

// What the sandbox of a single command has to itself.
function forOneCommand({ mounts, services }: SandboxSpec): string | null {
  if (services) return 'it has services, which are started for each command';
  if (mounts.some(({ overlay, copyOf }) => overlay ?? copyOf))
    return 'it writes a fork, whose layer is made for each command';
  return mounts.some(({ purpose }) => purpose === 'state')
    ? 'it has a state directory, which one sandbox has at a time'
    : null;
}

function templateOf({ spec, policy }: Pick<Planned, 'spec' | 'policy'>): SandboxTemplate {
  const profile = policy.profile.value;
  // The profile is a label, so it is part of the template although it does not change what the sandbox can do.
  return { key: `${spec.hash} ${profile}`, spec, profile };
}

// The same steps as for a command: owned and recorded before it is created, verified before it is used, and removed if
// it differs from its plan.
async function makeWaiting(
  host: PoolHost,
  { spec: planned, profile }: SandboxTemplate,
  scans: UnusedScans,
  signal: AbortSignal,
): Promise<PreparedSandbox> {
  const { level, hash: specHash } = planned;
  const backend = await backendFor(host, planned);
  signal.throwIfAborted();
  const about = { task: undefined, session: undefined, correlationId: randomUUID(), preview: false };
  const spec = { ...planned, identity: host.session.identify({ ...about, profile, level, specHash }) };
  const requestHash = requestHashOf(backend, spec);
  await recordMadeAhead(host, { spec, profile, requestHash }, signal);
  const sinceMs = Date.now();
  const sandbox = await prepareVerified(backend, spec, signal, async (made, error) => {
    reportViolation(host, spec, made, error);
    try {
      await made?.[Symbol.asyncDispose]();
    } finally {
      scans.add(spec, sinceMs);
    }
    return error;
  });
  return { sandbox, spec, sinceMs, requestHash };
}

function observing(host: PoolHost, scans: UnusedScans): PoolObserver {
  return {
    waiting: count => host.telemetry.gauge(METRICS.waiting, count),
    discarded: (made, why, error) => discarded(host, made, why, error),
    removed: ({ spec, sinceMs }, rest) => scans.add(spec, sinceMs, rest),
    failed: ({ spec }, error) => {
      const reason = error instanceof Error ? error.message : String(error);
      const fields = { image: spec.image.reference, isolation: spec.level, reason };
      host.telemetry.log('warn', 'no sandbox could be made ahead; commands have theirs made as before', fields);
    },
  };
}

function discarded(host: PoolHost, { sandbox, spec }: PreparedSandbox, why: Discarded, error: unknown): void {
  const { sandboxId, name, correlationId } = spec.identity;
  const reason = error instanceof Error ? error.message : undefined;
  const fields = { correlationId, operation: 'pool', sandboxId, name, why, ...(reason ? { reason } : {}) };
  const level = why === 'changed' || why === 'lost' ? 'warn' : 'debug';
  host.telemetry.log(level, 'a waiting sandbox goes unused', fields);
  host.telemetry.increment(METRICS.unused, { why });
  reportViolation(host, spec, sandbox, error);
}

function within(field: string, value: number, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new AcodeError('ACODE-SBX-017', { field, reason: `must be a whole number from ${least} to ${most}` });
}
