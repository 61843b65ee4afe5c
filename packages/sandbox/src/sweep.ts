// Finds what dead sessions left on the engine and removes it: the second net, behind the reaper.

import { AcodeError } from './contract/errors.ts';
import type { Belonging, SandboxInfo } from './contract/host.ts';
import type { RemovalReason } from './contract/events.ts';
import type { Host } from './host.ts';
import type { EngineBackend } from './isolation/backend.ts';
import { Kept } from './kept.ts';
import { withDeadline } from './lifecycle/deadline.ts';
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
  readonly may: (now: Judged<Thing>) => boolean | Promise<boolean>;
  readonly operation: Operation;
  readonly signal: AbortSignal;
}

const SWEEP_MS = 20_000;
// What a session that closes still gives it; the rest is the next session’s.
const CLOSING_MS = 1500;
const MOST_AT_ONCE = 8;
const MOST_NAMED = 5;

/** Looks at every sandbox, network and volume of ours. */
export async function survey(host: Host, signal: AbortSignal): Promise<Survey> {
  const backend = await host.engine();
  const [sandboxes, belongings] = await Promise.all([surveySandboxes(host, signal), backend.belongings(signal)]);
  return { sandboxes, belongings: await Promise.all(belongings.map(judging(host))) };
}

/** Looks at every sandbox of ours. */
export async function surveySandboxes(host: Host, signal: AbortSignal): Promise<Judged[]> {
  return judged(host, await (await host.engine()).list(signal));
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
  const { signal, over } = timeToSweep(host);
  try {
    await tellReaped(host, operation);
    const { sandboxes, belongings } = await survey(host, signal);
    const orphans = sandboxes.filter(isSwept);
    host.telemetry.gauge(METRICS.orphaned, orphans.length);
    const sweeping = { may: isSwept, operation, signal };
    const outcomes = await fewAtOnce(orphans, ({ thing }) => removeSandbox(host, thing, sweeping));
    // Containers go first: the engine keeps what one of them still uses.
    const left = belongings.filter(({ verdict }) => verdict.remove);
    const others = { may: ({ verdict }: Judged<Belonging>) => verdict.remove, operation, signal };
    outcomes.push(...(await fewAtOnce(left, ({ thing }) => removeBelonging(host, thing, others))));
    await removeDeadSockets(host.directories.runtime);
    await (await import('./project-image/stage.ts')).removeForgottenStages(signal);
    const existing = new Set(sandboxes.map(({ thing }) => thing.sandboxId));
    await new Leases(host.directories.state).prune(existing, host.telemetry.clock.now());
    const things = [...orphans, ...left].map(({ thing }) => thing);
    const removed = things.filter((_, at) => outcomes[at] === 'removed');
    if (removed.length > 0) warnOf(removed, operation);
    operation.succeed({ found: things.length, removed: removed.length });
  } catch (error) {
    operation.fail(error);
  } finally {
    over();
  }
}

// What the engine is removing already goes without us, or is stuck: waiting for it would hold every command up.
function isSwept({ thing, verdict }: Judged): boolean {
  return verdict.remove && thing.state !== 'removing';
}

// Its own deadline and not the host’s end: a short command must not keep the sweep from ever finishing. Nor may the sweep
// keep a command from ending, so once the host closes there is little time left.
function timeToSweep({ telemetry: { clock }, closing }: Host): { signal: AbortSignal; over: () => void } {
  const own = new AbortController();
  const tooLong = (): void => own.abort(new AcodeError('ACODE-SBX-014', {}));
  let cancel = clock.after(SWEEP_MS, tooLong);
  const hurry = (): void => {
    cancel();
    cancel = clock.after(CLOSING_MS, tooLong);
  };
  if (closing.aborted) hurry();
  else closing.addEventListener('abort', hurry, { once: true });
  const over = (): void => {
    cancel();
    closing.removeEventListener('abort', hurry);
  };
  return { signal: own.signal, over };
}

function warnOf(removed: readonly { readonly name: string; readonly labels: Labels }[], operation: Operation): void {
  const names = removed.map(({ name }) => name);
  const sessions = [...new Set(removed.map(({ labels }) => labels['acode.session'] ?? ''))];
  const what = names.length === 1 ? 'one thing that a dead session' : `${names.length} things that dead sessions`;
  const some = names.slice(0, MOST_NAMED).join(', ');
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  operation.step('warn', `removed ${what} had left: ${some}${more}`, { removed: names.length, names, sessions });
}

/** Does the same for many, a few at a time: somebody may have left thousands, and the engine has other things to do. */
export async function fewAtOnce<Item, Value>(
  items: readonly Item[],
  work: (item: Item) => Promise<Value>,
): Promise<Value[]> {
  const values: Value[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [at, item] of queue) values[at] = await work(item);
  };
  await Promise.all(Array.from({ length: MOST_AT_ONCE }, worker));
  return values;
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
      tell(host, gone, reasonOf(now.verdict), operation, clock.monotonic() - before);
      return 'removed';
    });
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

type Look = Pick<SandboxInfo, 'labels'> & Partial<Pick<SandboxInfo, 'containerId' | 'name'>>;

// Judges things, asking each owner once.
function judging(host: Host): <Thing extends Look>(thing: Thing) => Promise<Judged<Thing>> {
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
    const lease = labels['acode.keep'] === 'true' ? await leases.read(labels['acode.sandbox'] ?? '') : null;
    const found = thing.containerId === undefined ? { labels } : { labels, containerName: thing.name ?? '' };
    return { thing, verdict: judge(found, await asked, asking, lease) };
  };
}

async function stateOf({ directories, identity }: Host, owner: string): Promise<OwnerState> {
  const state = await ownerState(directories.runtime, owner);
  // Asked after the socket: a directory that goes in between must not make the dead of the living.
  return state === 'dead' && !(await isStillHost(directories.runtime, identity)) ? 'unknown' : state;
}
