// Step 8 of the pipeline, for other sessions’ resources: judges each one, and removes it if it is still allowed to.

import { AcodeError } from '../contract/errors.ts';
import type { EngineResource, SandboxInfo } from '../contract/host.ts';
import type { RemovalReason } from '../contract/events.ts';
import type { Host } from './host.ts';
import type { EngineBackend } from '../isolation/backend.ts';
import { Kept } from '../lifecycle/kept.ts';
import { withDeadline } from '../lifecycle/clock.ts';
import { isStillHost, ownerState, Leases } from '../lifecycle/ownership.ts';
import type { OwnerState } from '../lifecycle/ownership.ts';
import { isOwn, isReachable, KEEP, SANDBOX } from '../lifecycle/labels.ts';
import { judge } from '../lifecycle/orphans.ts';
import type { Verdict } from '../lifecycle/orphans.ts';
import type { Gone, Operation } from '../records/telemetry.ts';
import { METRICS } from '../records/telemetry.ts';

/** A resource on the engine and the verdict on it. */
export interface Judged<Thing = SandboxInfo> {
  readonly thing: Thing;
  readonly verdict: Verdict;
}

/** The outcome of removing one resource. */
export type Removal = 'removed' | 'gone' | 'spared' | { readonly failed: string };

/** The rule for what may be removed, and the operation that removes it. */
export interface Sweeping<Thing> {
  /** Called again after the resource was inspected again: it may have changed since it was listed. */
  readonly may: (now: Judged<Thing>) => boolean | Promise<boolean>;
  readonly operation: Operation;
  readonly signal: AbortSignal;
}

/** Judges sandboxes, and queries the state of each owner once. */
export function judged(host: Host, sandboxes: readonly SandboxInfo[]): Promise<Judged[]> {
  return Promise.all(sandboxes.map(judging(host)));
}

/** Removes one sandbox if it may still be removed when inspected again by id. */
export async function removeSandbox(
  host: Host,
  { containerId, name, sandboxId, labels }: SandboxInfo,
  sweeping: Sweeping<SandboxInfo>,
): Promise<Removal> {
  const outcome = await removeAgainJudged(host, { kind: 'container', id: containerId, name, sandboxId }, sweeping, {
    inspect: (backend, signal) => backend.inspect(containerId, signal),
    remove: (backend, signal) => backend.remove(containerId, signal),
  });
  // Also removes the record and the lease of a persistent sandbox; its keeper process then exits.
  if (outcome === 'removed') {
    await new Kept(host).end(sandboxId).catch(() => undefined);
    // The sweep removes what is left here.
    if (labels[KEEP] === 'true') await removeKeptVolumes(host, sandboxId, sweeping.signal).catch(() => undefined);
  }
  return outcome;
}

/** Removes the volumes of a persistent sandbox that was removed: other than its session’s, nothing else removes them at once. */
export async function removeKeptVolumes(
  host: Pick<Host, 'engine' | 'uid'>,
  sandboxId: string,
  signal: AbortSignal,
): Promise<void> {
  const engine = await host.engine();
  const own = (await engine.belongings(signal)).filter(
    ({ kind, labels }) => kind === 'volume' && labels[KEEP] === 'true' && labels[SANDBOX] === sandboxId,
  );
  await Promise.all(
    own.filter(volume => isOwn(volume, host.uid)).map(volume => engine.removeBelonging(volume, signal)),
  );
}

/** Removes one network or volume if it may still be removed when inspected again by id. */
export async function removeBelonging(
  host: Host,
  belonging: EngineResource,
  sweeping: Sweeping<EngineResource>,
): Promise<Removal> {
  const { kind, id, name } = belonging;
  return removeAgainJudged(host, { kind, id, name, sandboxId: '' }, sweeping, {
    inspect: (backend, signal) => backend.belonging(belonging, signal),
    remove: (backend, signal) => backend.removeBelonging(belonging, signal),
  });
}

interface Access<Thing> {
  readonly inspect: (backend: EngineBackend, signal: AbortSignal) => Promise<Thing | null>;
  readonly remove: (backend: EngineBackend, signal: AbortSignal) => Promise<void>;
}

async function removeAgainJudged<Thing extends Look>(
  host: Host,
  gone: Gone,
  { may, operation, signal }: Sweeping<Thing>,
  { inspect, remove }: Access<Thing>,
): Promise<Removal> {
  const backend = await host.engine();
  const { clock } = host.telemetry;
  const ms = host.settings.cleanupMs;
  const reason = (): AcodeError =>
    new AcodeError('ACODE-CTN-004', {
      id: gone.id,
      reason: `the engine did not remove it within ${ms / 1000} seconds`,
    });
  try {
    // An engine may report forever that a removal is in progress. The deadline bounds how long a cleanup waits before
    // it reports a failure.
    return await withDeadline({ clock, ms, signal, reason }, async bounded => {
      const thing = await inspect(backend, bounded);
      if (!thing) return 'gone';
      const now = await judging(host)(thing);
      if (!(await may(now))) return 'spared';
      const before = clock.monotonic();
      await remove(backend, bounded);
      reportGone(host, gone, reasonOf(now.verdict), operation, clock.monotonic() - before);
      return 'removed';
    });
  } catch (error) {
    host.telemetry.increment(METRICS.cleanupFailures);
    return { failed: error instanceof Error ? error.message : String(error) };
  }
}

/** Reports a removal: one event and, for a sandbox, the end of its lifetime. */
export function reportGone(
  host: Host,
  gone: Gone,
  reason: RemovalReason,
  operation: Operation,
  durationMs?: number,
): void {
  const { correlationId } = operation;
  const about = { correlationId, operation: operation.name, ...(durationMs === undefined ? {} : { durationMs }) };
  host.reports.gone(gone, reason, about);
  if (gone.kind !== 'container') return;
  const { sandboxId } = gone;
  const now = new Date(host.telemetry.clock.now());
  host.bus.emit('SandboxTeardown', correlationId, now, { sandboxId, backend: 'docker', reason });
}

function reasonOf({ because }: Verdict): RemovalReason {
  return because === 'orphaned' || because === 'expired' ? because : 'asked';
}

type Look = Pick<SandboxInfo, 'labels'> & Partial<Pick<SandboxInfo, 'containerId' | 'name'>>;

/** Judges resources, and queries the state of each owner once. */
export function judging(host: Host): <Thing extends Look>(thing: Thing) => Promise<Judged<Thing>> {
  const owners = new Map<string, Promise<OwnerState>>();
  const leases = new Leases(host.directories.state);
  const asking = {
    uid: host.uid,
    host: host.identity,
    owner: host.session.owner,
    leases: leases.place,
    now: host.telemetry.clock.now(),
  };
  return async thing => {
    const { labels } = thing;
    const owner = labels['acode.owner'] ?? '';
    const asked = owners.get(owner) ?? stateOf(host, owner);
    owners.set(owner, asked);
    const lease = isReachable(labels) ? leases.read(labels['acode.sandbox'] ?? '') : null;
    const found = thing.containerId === undefined ? { labels } : { labels, containerName: thing.name ?? '' };
    return { thing, verdict: judge(found, await asked, asking, lease) };
  };
}

async function stateOf({ directories, identity }: Host, owner: string): Promise<OwnerState> {
  const state = await ownerState(directories.runtime, owner);
  // Checked after the socket: if the directory is removed in between, a live owner must not be taken for dead.
  return state === 'dead' && !(await isStillHost(directories.runtime, identity)) ? 'unknown' : state;
}
