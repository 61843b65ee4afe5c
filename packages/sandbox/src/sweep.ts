// Finds what dead sessions left on the engine and removes it: the second net, behind the reaper.

import type { Belonging, SandboxInfo } from './contract/host.ts';
import type { RemovalReason } from './contract/events.ts';
import type { Host } from './host.ts';
import type { Backend } from './isolation/backend.ts';
import { isStillHost } from './lifecycle/host.ts';
import { Leases } from './lifecycle/leases.ts';
import { judge } from './lifecycle/orphans.ts';
import type { Labels, Verdict } from './lifecycle/orphans.ts';
import { ownerState, removeDeadSockets } from './lifecycle/ownership.ts';
import type { OwnerState } from './lifecycle/ownership.ts';
import { takeReaped } from './lifecycle/reaped.ts';
import type { Gone } from './telemetry/containers.ts';
import { METRICS } from './telemetry/operation.ts';
import type { Operation } from './telemetry/operation.ts';

/** A thing on the engine and what is to be done with it. */
export interface Judged<Thing = SandboxInfo> {
  readonly thing: Thing;
  readonly verdict: Verdict;
}

/** Everything of acode’s on the engine, judged as of now. */
export interface Survey {
  readonly sandboxes: readonly Judged[];
  readonly belongings: readonly Judged<Belonging>[];
}

/** What became of the removal of one thing. */
export type Removal = 'removed' | 'gone' | 'spared' | { readonly failed: string };

/** What may be removed, and in the course of what. */
export interface Sweeping<Thing> {
  /** Asked again when the thing was looked at again: between a list and now everything can have changed. */
  readonly may: (now: Judged<Thing>) => boolean;
  readonly operation: Operation;
  readonly signal: AbortSignal;
}

const SWEEP_MS = 20_000;
const MOST_AT_ONCE = 8;
const MOST_NAMED = 5;

/** Looks at every sandbox, network and volume of ours. */
export async function survey(host: Host, signal: AbortSignal): Promise<Survey> {
  const backend = await host.backend();
  const [sandboxes, belongings] = await Promise.all([surveySandboxes(host, signal), backend.belongings(signal)]);
  return { sandboxes, belongings: await Promise.all(belongings.map(judging(host))) };
}

/** Looks at every sandbox of ours. */
export async function surveySandboxes(host: Host, signal: AbortSignal): Promise<Judged[]> {
  const sandboxes = await (await host.backend()).list(signal);
  return Promise.all(sandboxes.map(judging(host)));
}

/** Removes one sandbox if, looked at again by id, it still may be. */
export async function removeSandbox(
  host: Host,
  { containerId, name, sandboxId }: SandboxInfo,
  sweeping: Sweeping<SandboxInfo>,
): Promise<Removal> {
  return removeAgainJudged(host, { kind: 'container', id: containerId, name, sandboxId }, sweeping, {
    inspect: (backend, signal) => backend.inspect(containerId, signal),
    remove: (backend, signal) => backend.remove(containerId, signal),
  });
}

/** Removes one network or volume if, looked at again by id, it still may be. */
export async function removeBelonging(
  host: Host,
  belonging: Belonging,
  sweeping: Sweeping<Belonging>,
): Promise<Removal> {
  const { kind, id, name } = belonging;
  return removeAgainJudged(host, { kind, id, name, sandboxId: '' }, sweeping, {
    inspect: (backend, signal) => backend.belonging(belonging, signal),
    remove: (backend, signal) => backend.removeBelonging(belonging, signal),
  });
}

/** Removes every orphan and whatever is past its time. Never rejects: a sweep that fails is repeated by the next session. */
export async function sweep(host: Host): Promise<void> {
  const operation = host.telemetry.begin('sweep');
  // Its own deadline and not the host’s end: a short command must not keep the sweep from ever finishing.
  const signal = AbortSignal.timeout(SWEEP_MS);
  const sweeping = { may: ({ verdict }: { verdict: Verdict }) => verdict.remove, operation, signal };
  try {
    await tellReaped(host, operation);
    const { sandboxes, belongings } = await survey(host, signal);
    const orphans = sandboxes.filter(sweeping.may);
    host.telemetry.gauge(METRICS.orphaned, orphans.length);
    const outcomes = await fewAtOnce(orphans, ({ thing }) => removeSandbox(host, thing, sweeping));
    // Containers go first: the engine keeps what one of them still uses.
    const left = belongings.filter(sweeping.may);
    outcomes.push(...(await fewAtOnce(left, ({ thing }) => removeBelonging(host, thing, sweeping))));
    await removeDeadSockets(host.directories.runtime);
    await new Leases(host.directories.state).prune(new Set(sandboxes.map(({ thing }) => thing.sandboxId)));
    const things = [...orphans, ...left].map(({ thing }) => thing);
    const removed = things.filter((_, at) => outcomes[at] === 'removed');
    if (removed.length > 0) warnOf(removed, operation);
    operation.succeed({ found: things.length, removed: removed.length });
  } catch (error) {
    operation.fail(error);
  }
}

function warnOf(removed: readonly { readonly name: string; readonly labels: Labels }[], operation: Operation): void {
  const names = removed.map(({ name }) => name);
  const sessions = [...new Set(removed.map(({ labels }) => labels['acode.session'] ?? ''))];
  const what = names.length === 1 ? 'one thing that a dead session' : `${names.length} things that dead sessions`;
  const some = names.slice(0, MOST_NAMED).join(', ');
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  operation.step('warn', `removed ${what} had left: ${some}${more}`, { removed: names.length, names, sessions });
}

// Somebody may have left thousands, and the engine has other things to do.
async function fewAtOnce<Item, Value>(items: readonly Item[], work: (item: Item) => Promise<Value>): Promise<Value[]> {
  const values: Value[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [at, item] of queue) values[at] = await work(item);
  };
  await Promise.all(Array.from({ length: MOST_AT_ONCE }, worker));
  return values;
}

interface Access<Thing> {
  readonly inspect: (backend: Backend, signal: AbortSignal) => Promise<Thing | null>;
  readonly remove: (backend: Backend, signal: AbortSignal) => Promise<void>;
}

async function removeAgainJudged<Thing extends { readonly labels: Labels }>(
  host: Host,
  gone: Gone,
  { may, operation, signal }: Sweeping<Thing>,
  { inspect, remove }: Access<Thing>,
): Promise<Removal> {
  const backend = await host.backend();
  try {
    const thing = await inspect(backend, signal);
    if (!thing) return 'gone';
    const now = await judging(host)(thing);
    if (!may(now)) return 'spared';
    const before = host.telemetry.clock.monotonic();
    await remove(backend, signal);
    const durationMs = host.telemetry.clock.monotonic() - before;
    tell(host, gone, reasonOf(now.verdict), operation, durationMs);
    return 'removed';
  } catch (error) {
    host.telemetry.increment(METRICS.cleanupFailures);
    return { failed: error instanceof Error ? error.message : String(error) };
  }
}

// The one event of a removal; for a sandbox also the end of what was provisioned.
function tell(host: Host, gone: Gone, reason: RemovalReason, operation: Operation, durationMs?: number): void {
  const { correlationId } = operation;
  const about = { correlationId, operation: operation.name, ...(durationMs === undefined ? {} : { durationMs }) };
  host.reports.gone(gone, reason, about);
  if (gone.kind !== 'container') return;
  const { sandboxId } = gone;
  const now = new Date(host.telemetry.clock.now());
  host.bus.emit('SandboxTeardown', correlationId, now, { sandboxId, backend: 'docker', reason });
}

async function tellReaped(host: Host, operation: Operation): Promise<void> {
  for (const gone of await takeReaped(host.directories.runtime)) tell(host, gone, 'reaped', operation);
}

function reasonOf({ because }: Verdict): RemovalReason {
  return because === 'orphaned' || because === 'expired' ? because : 'asked';
}

// Judges things, asking each owner once.
function judging(host: Host): <Thing extends { readonly labels: Labels }>(thing: Thing) => Promise<Judged<Thing>> {
  const owners = new Map<string, Promise<OwnerState>>();
  const leases = new Leases(host.directories.state);
  const asking = { uid: host.uid, host: host.identity, owner: host.session.owner, now: host.telemetry.clock.now() };
  return async thing => {
    const { labels } = thing;
    const owner = labels['acode.owner'] ?? '';
    const asked = owners.get(owner) ?? stateOf(host, owner);
    owners.set(owner, asked);
    const lease = labels['acode.keep'] === 'true' ? await leases.read(labels['acode.sandbox'] ?? '') : null;
    return { thing, verdict: judge(labels, await asked, asking, lease) };
  };
}

async function stateOf({ directories, identity }: Host, owner: string): Promise<OwnerState> {
  const state = await ownerState(directories.runtime, owner);
  // Asked after the socket: a directory that goes in between must not make the dead of the living.
  return state === 'dead' && !(await isStillHost(directories.runtime, identity)) ? 'unknown' : state;
}
