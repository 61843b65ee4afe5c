// What exists on this host: its status, and the removal of what was left behind.

import type { Belonging, CleanupOptions, CleanupReport, SandboxCounts, SandboxInfo, Status } from './contract/host.ts';
import { AcodeError } from './contract/errors.ts';
import { unavailableReason } from './contract/unavailable.ts';
import type { Host } from './host.ts';
import { NO_LAYERS } from './policy/layers.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { removeBelonging, removeSandbox, survey, surveySandboxes } from './sweep.ts';
import type { Judged, Removal, Sweeping } from './sweep.ts';
import { isForeign, mayGo } from './lifecycle/orphans.ts';
import type { Operation } from './telemetry/operation.ts';

/** The state of the host; an engine that cannot be had is a status and not an error. */
export async function statusOf(host: Host, signal: AbortSignal): Promise<Status> {
  const workspace = await workspaceOf(host);
  const { image, problem } = await defaultImage(host, workspace);
  const base = { defaultImage: image, workspace };
  try {
    if (problem) throw problem;
    const backend = await host.backend();
    const [engine, capability, sandboxes] = await Promise.all([
      backend.engine(signal),
      host.capability(),
      surveySandboxes(host, signal),
    ]);
    const counts = countsOf(sandboxes);
    if (!capability.available) {
      return {
        ...base,
        available: false,
        unavailableReason: capability.reason ?? 'unknown',
        engine,
        sandboxes: counts,
        level: null,
      };
    }
    return { ...base, available: true, engine, sandboxes: counts, level: capability.level };
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    return {
      ...base,
      available: false,
      unavailableReason: unavailableReason(error),
      hint: error.hint,
      sandboxes: countsOf([]),
      level: null,
    };
  }
}

/**
 * Removes what was left behind: orphans, what is past its hard maximum, and this user’s sandboxes that have ended. With
 * `force` also those that run; sandboxes of another session that lives only with `allSessions`.
 */
export async function cleanup(
  host: Host,
  options: CleanupOptions,
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
  for (const one of judged.filter(({ verdict }) => !isForeign(verdict))) {
    const outcome = may(one) ? await remove(one.thing) : 'spared';
    if (outcome === 'removed') report.removed.push(one.thing);
    else if (outcome === 'spared') report.kept.push(one.thing);
    else if (outcome !== 'gone') report.failed.push({ thing: one.thing, reason: outcome.failed });
  }
  return report;
}

// What a session shares goes with the session; what is kept for the next one only when somebody says so.
function belongingMayGo({ thing, verdict }: Judged<Belonging>, options: CleanupOptions): boolean {
  if (verdict.remove) return true;
  if (isForeign(verdict) || verdict.because === 'mine') return false;
  if (verdict.because === 'owner lives') return options.allSessions === true && options.force === true;
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
async function defaultImage(host: Host, workspace: string): Promise<{ image: string; problem?: Error }> {
  const about = { caller: { uid: 1, gid: 1 }, cpus: 1 };
  try {
    return { image: resolvePolicy({}, await layersFor(host, workspace), about).image.value };
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    return { image: resolvePolicy({}, NO_LAYERS, about).image.value, problem: error };
  }
}
