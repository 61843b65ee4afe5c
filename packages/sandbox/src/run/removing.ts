// Step 8 of the pipe for what other sessions made: judged by its labels and its owner, looked at again, and removed if it still may be.

import { AcodeError } from '../contract/errors.ts';
import type { EngineResource, SandboxInfo } from '../contract/host.ts';
import type { RemovalReason } from '../contract/events.ts';
import type { Host } from './host.ts';
import type { EngineBackend } from '../isolation/backend.ts';
import { Kept } from '../lifecycle/kept.ts';
import { withDeadline } from '../lifecycle/deadline.ts';
import { isStillHost, ownerState } from '../lifecycle/ownership.ts';
import type { OwnerState } from '../lifecycle/ownership.ts';
import { Leases } from '../lifecycle/leases.ts';
import { judge } from '../lifecycle/orphans.ts';
import type { Verdict } from '../lifecycle/orphans.ts';
import type { Gone } from '../records/telemetry/containers.ts';
import { METRICS } from '../records/telemetry/operation.ts';
import type { Operation } from '../records/telemetry/operation.ts';

/** A thing on the engine and what is to be done with it. */
export interface Judged<Thing = SandboxInfo> {
  readonly thing: Thing;
  readonly verdict: Verdict;
}

/** What became of the removal of one thing. */
export type Removal = 'removed' | 'gone' | 'spared' | { readonly failed: string };

/** What may be removed, and in the course of what. */
export interface Sweeping<Thing> {
  /** Asked again when the thing was looked at again: between a list and now everything can have changed. */
  readonly may: (now: Judged<Thing>) => boolean | Promise<boolean>;
  readonly operation: Operation;
  readonly signal: AbortSignal;
}

/** What is to be done with sandboxes, each owner asked once. */
export function judged(host: Host, sandboxes: readonly SandboxInfo[]): Promise<Judged[]> {
  return Promise.all(sandboxes.map(judging(host)));
}

/** Removes one sandbox if, looked at again by id, it still may be. */
export async function removeSandbox(
  host: Host,
  { containerId, name, sandboxId }: SandboxInfo,
  sweeping: Sweeping<SandboxInfo>,
): Promise<Removal> {
  const outcome = await removeAgainJudged(host, { kind: 'container', id: containerId, name, sandboxId }, sweeping, {
    inspect: (backend, signal) => backend.inspect(containerId, signal),
    remove: (backend, signal) => backend.remove(containerId, signal),
  });
  // What was written down about one that was kept goes too, and with it its keeper.
  if (outcome === 'removed') await new Kept(host).end(sandboxId).catch(() => undefined);
  return outcome;
}

/** Removes one network or volume if, looked at again by id, it still may be. */
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
    new AcodeError('ACODE-CTN-004', { id: gone.id, reason: `it was not gone after ${ms / 1000} seconds` });
  try {
    // An engine may say for ever that it is at it: whoever cleans up hears in bounded time what could not be removed.
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

/** Reports a removal: one event, and for a sandbox also the end of what was provisioned. */
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

/** Judges things, asking each owner once. */
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
    const lease = labels['acode.keep'] === 'true' ? leases.read(labels['acode.sandbox'] ?? '') : null;
    const found = thing.containerId === undefined ? { labels } : { labels, containerName: thing.name ?? '' };
    return { thing, verdict: judge(found, await asked, asking, lease) };
  };
}

async function stateOf({ directories, identity }: Host, owner: string): Promise<OwnerState> {
  const state = await ownerState(directories.runtime, owner);
  // Asked after the socket: a directory that goes in between must not make the dead of the living.
  return state === 'dead' && !(await isStillHost(directories.runtime, identity)) ? 'unknown' : state;
}
