// What exists on this host: its status, and the removal of what was left behind.

import type { Belonging, CleanupOptions, CleanupReport, SandboxCounts, SandboxInfo, Status } from './contract/host.ts';
import { AcodeError } from './contract/errors.ts';
import { unavailableReason } from './contract/unavailable.ts';
import { answeredInTime, capabilityMatrix } from './capabilities.ts';
import type { EffectivePolicy } from './contract/policy.ts';
import type { Host } from './host.ts';
import { chooseLevel } from './level.ts';
import type { Chosen } from './level.ts';
import { NO_LAYERS } from './policy/layers.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { fewAtOnce, removeBelonging, removeSandbox, survey, surveySandboxes } from './sweep.ts';
import type { Judged, Removal, Sweeping } from './sweep.ts';
import { isForeign, isWantedElsewhere, mayGo, mayLive } from './lifecycle/orphans.ts';
import type { Wanted } from './lifecycle/orphans.ts';
import type { Operation } from './telemetry/operation.ts';

// A person waits for a status, and an engine that has not answered by then is said to be one that does not.
const STATUS_MS = 1200;

/** The state of the host; an engine that cannot be had is a status and not an error. */
export async function statusOf(host: Host, signal: AbortSignal): Promise<Status> {
  const [levels, engine, { chosen, defaultImage, workspace }] = await Promise.all([
    capabilityMatrix(host, STATUS_MS),
    known(answeredInTime(host, engineState(host, signal), STATUS_MS)),
    commandsHere(host),
  ]);
  const state = engine instanceof AcodeError ? { sandboxes: countsOf([]) } : engine;
  return { defaultImage, workspace, levels, ...state, ...availability(chosen) };
}

async function commandsHere(
  host: Host,
): Promise<{ chosen: Chosen | AcodeError; defaultImage: string; workspace: string }> {
  const workspace = await workspaceOf(host);
  const { policy, problem } = await defaultPolicy(host, workspace);
  const chosen = problem ?? (await known(answeredInTime(host, chooseLevel(host, policy), STATUS_MS)));
  return { chosen, defaultImage: policy.image.value, workspace };
}

// What becomes of a command for which nothing more is said than the files say.
function availability(
  chosen: Pick<Chosen, 'level'> | AcodeError,
): Pick<Status, 'available' | 'level' | 'unavailableReason' | 'hint'> {
  if (!(chosen instanceof AcodeError)) return { available: true, level: chosen.level };
  return { available: false, level: null, unavailableReason: unavailableReason(chosen), hint: chosen.hint };
}

async function engineState(host: Host, signal: AbortSignal): Promise<Pick<Status, 'engine' | 'sandboxes'>> {
  const backend = await host.engine();
  const [engine, sandboxes] = await Promise.all([backend.engine(signal), surveySandboxes(host, signal)]);
  return { engine, sandboxes: countsOf(sandboxes) };
}

// An error with a code is an answer too.
async function known<Value>(answer: Promise<Value>): Promise<Value | AcodeError> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AcodeError) return error;
    throw error;
  }
}

/**
 * Removes what was left behind: orphans, what is past its hard maximum, and this user’s sandboxes that have ended. With
 * `force` also those that run; sandboxes of another session that lives only with `allSessions`.
 */
export async function cleanup(
  host: Host,
  options: CleanupOptions & Pick<Wanted, 'everyHost'>,
  operation: Operation,
  signal: AbortSignal,
): Promise<CleanupReport> {
  const found = await survey(host, signal);
  const sandboxes: Sweeping<SandboxInfo> = {
    may: ({ thing, verdict }) => mayGo(verdict, thing.state, options),
    operation,
    signal,
  };
  const belongings: Sweeping<Belonging> = { may: one => belongingMayGo(one, options), operation, signal };
  const remove = options.dryRun ? async (): Promise<Removal> => 'removed' : null;
  // Containers go first: the engine keeps what one of them still uses.
  const { removed, failed, kept } = await cleaned(
    found.sandboxes,
    sandboxes.may,
    remove ?? (one => removeSandbox(host, one, sandboxes)),
  );
  const others = await cleaned(
    found.belongings,
    belongings.may,
    remove ?? (one => removeBelonging(host, one, belongings)),
  );
  return {
    removed,
    failed: failed.map(({ thing, reason }) => ({ sandbox: thing, reason })),
    kept,
    belongings: { ...others, failed: others.failed.map(({ thing, reason }) => ({ belonging: thing, reason })) },
    dryRun: options.dryRun === true,
  };
}

interface Cleaned<Thing> {
  readonly removed: Thing[];
  readonly failed: { readonly thing: Thing; readonly reason: string }[];
  readonly kept: Thing[];
}

async function cleaned<Thing>(
  judged: readonly Judged<Thing>[],
  may: (one: Judged<Thing>) => boolean,
  remove: (thing: Thing) => Promise<Removal>,
): Promise<Cleaned<Thing>> {
  const report: Cleaned<Thing> = { removed: [], failed: [], kept: [] };
  const own = judged.filter(one => !isForeign(one.verdict) || may(one));
  const outcomes = await fewAtOnce(own, async one => (may(one) ? remove(one.thing) : 'spared'));
  for (const [at, { thing }] of own.entries()) {
    const outcome = outcomes[at] ?? 'gone';
    if (outcome === 'removed') report.removed.push(thing);
    else if (outcome === 'spared') report.kept.push(thing);
    else if (outcome !== 'gone') report.failed.push({ thing, reason: outcome.failed });
  }
  return report;
}

// What a session shares goes with the session; what is kept for the next one only when somebody says so.
function belongingMayGo(
  { thing, verdict }: Judged<Belonging>,
  options: CleanupOptions & Pick<Wanted, 'everyHost'>,
): boolean {
  if (verdict.remove || isWantedElsewhere(verdict, options)) return true;
  if (isForeign(verdict) || verdict.because === 'mine') return false;
  if (mayLive(verdict)) return options.allSessions === true && options.force === true;
  return thing.kind === 'volume' ? options.volumes === true : options.force === true;
}

function countsOf(judged: readonly Judged[]): SandboxCounts {
  const verdicts = judged.map(({ verdict }) => verdict);
  const because = (...reasons: readonly (typeof verdicts)[number]['because'][]): number =>
    verdicts.filter(verdict => reasons.includes(verdict.because)).length;
  return {
    running: judged.filter(({ thing }) => thing.state === 'running').length,
    total: judged.length,
    owned: because('mine', 'owner lives', 'owner unknown'),
    orphaned: because('orphaned'),
    expired: because('expired'),
    kept: because('kept'),
    foreign: verdicts.filter(isForeign).length,
  };
}

// A repository whose configuration is refused has no runs, and the reason is what a reader needs to know.
async function defaultPolicy(
  host: Host,
  workspace: string,
): Promise<{ policy: EffectivePolicy; problem?: AcodeError }> {
  const about = { caller: { uid: 1, gid: 1 }, cpus: 1 };
  const policy = await known(layersFor(host, workspace).then(layers => resolvePolicy({}, layers, about)));
  return policy instanceof AcodeError ? { policy: resolvePolicy({}, NO_LAYERS, about), problem: policy } : { policy };
}
