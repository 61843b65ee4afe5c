// Finds what dead sessions left on the engine and removes it: the second net, behind the reaper.

import { AcodeError } from '../contract/errors.ts';
import type { EngineResource } from '../contract/host.ts';
import type { Host } from '../run/host.ts';
import { Leases } from '../lifecycle/leases.ts';
import { takeReaped } from '../lifecycle/orphans.ts';
import type { Labels } from '../lifecycle/orphans.ts';
import { removeDeadSockets } from '../lifecycle/ownership.ts';
import { judged, judging, removeBelonging, removeSandbox, reportGone } from '../run/removing.ts';
import type { Judged } from '../run/removing.ts';
import { METRICS } from '../records/telemetry/operation.ts';
import type { Operation } from '../records/telemetry/operation.ts';

/** Everything of acode’s on the engine, judged as of now. */
export interface Survey {
  readonly sandboxes: readonly Judged[];
  readonly belongings: readonly Judged<EngineResource>[];
}

const SWEEP_MS = 20_000;
// What a session that closes still gives it; the rest is the next session’s.
const CLOSING_MS = 1500;
const MAX_AT_ONCE = 8;
const MAX_NAMED = 5;

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
    const others = { may: ({ verdict }: Judged<EngineResource>) => verdict.remove, operation, signal };
    outcomes.push(...(await fewAtOnce(left, ({ thing }) => removeBelonging(host, thing, others))));
    await removeDeadSockets(host.directories.runtime);
    await (await import('../images/project/stage.ts')).removeForgottenStages(signal);
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
  const some = names.slice(0, MAX_NAMED).join(', ');
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
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
  await Promise.all(Array.from({ length: MAX_AT_ONCE }, worker));
  return values;
}

async function tellReaped(host: Host, operation: Operation): Promise<void> {
  for (const gone of await takeReaped(host.directories.runtime)) reportGone(host, gone, 'reaped', operation);
}
