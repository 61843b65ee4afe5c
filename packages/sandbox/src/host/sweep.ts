// Finds resources that dead sessions left on the engine and removes them: the second safety net, behind the reaper.

import { AcodeError } from '../contract/errors.ts';
import { sweepForks } from './forks.ts';
import type { EngineResource } from '../contract/host.ts';
import type { Host } from '../run/host.ts';
import { Leases, removeDeadSockets } from '../lifecycle/ownership.ts';
import { takeReaped } from '../lifecycle/orphans.ts';
import type { Labels } from '../lifecycle/orphans.ts';
import { judged, judging, removeBelonging, removeSandbox, reportGone } from '../run/removing.ts';
import type { Judged } from '../run/removing.ts';
import { hasForks } from '../workspace/fork/leftover.ts';
import { METRICS } from '../records/telemetry.ts';
import type { Operation } from '../records/telemetry.ts';

/** All resources of acode on the engine, with current verdicts. */
export interface Survey {
  readonly sandboxes: readonly Judged[];
  readonly belongings: readonly Judged<EngineResource>[];
}

const SWEEP_MS = 20_000;
// How long a closing session still lets the sweep run; the next session removes the rest.
const CLOSING_MS = 1500;
const MAX_AT_ONCE = 8;
const MAX_NAMED = 5;

/** Judges every sandbox, network and volume that acode created. */
export async function survey(host: Host, signal: AbortSignal): Promise<Survey> {
  const backend = await host.engine();
  const [sandboxes, belongings] = await Promise.all([surveySandboxes(host, signal), backend.belongings(signal)]);
  return { sandboxes, belongings: await Promise.all(belongings.map(judging(host))) };
}

/** Judges every sandbox that acode created. */
export async function surveySandboxes(host: Host, signal: AbortSignal): Promise<Judged[]> {
  return judged(host, await (await host.engine()).list(signal));
}

/** Removes all orphans and expired resources. Never rejects: the next session repeats a failed sweep. */
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
    // Containers first: the engine does not remove what a container still uses.
    const left = belongings.filter(({ verdict }) => verdict.remove);
    const others = { may: ({ verdict }: Judged<EngineResource>) => verdict.remove, operation, signal };
    outcomes.push(...(await fewAtOnce(left, ({ thing }) => removeBelonging(host, thing, others))));
    await removeDeadSockets(host.directories.runtime);
    await (await import('../images/project/stage.ts')).removeForgottenStages(signal);
    if (hasForks(host.directories.state)) await sweepForks(host, signal);
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

// A sandbox that the engine is already removing needs no help or is stuck: waiting for it would delay every command.
function isSwept({ thing, verdict }: Judged): boolean {
  return verdict.remove && thing.state !== 'removing';
}

// The sweep has its own deadline and does not end with the host: otherwise, sessions with one short command would never
// finish a sweep. It must not delay the end of a command either, so little time remains once the host closes.
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

/** Processes many items, a few at a time: there may be thousands, and the engine has other work. */
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
