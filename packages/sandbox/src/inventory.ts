// What exists on this host: its status, and the removal of what was left behind.

import type { CleanupOptions, CleanupReport, SandboxInfo, Status } from './contract/host.ts';
import { AcodeError } from './contract/errors.ts';
import { unavailableReason } from './contract/unavailable.ts';
import type { Host } from './host.ts';
import { NO_LAYERS } from './policy/layers.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { removeAgainJudged, survey } from './sweep.ts';
import type { Judged } from './sweep.ts';
import type { Verdict } from './lifecycle/orphans.ts';
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
      backend.list(signal),
    ]);
    const running = sandboxes.filter(({ state }) => state === 'running').length;
    const counts = { running, total: sandboxes.length };
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
      sandboxes: { running: 0, total: 0 },
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
  const may = (one: Judged): boolean => mayGo(one, options);
  const mine = (await survey(host, signal)).filter(({ verdict }) => !FOREIGN.has(verdict.because));
  const doomed = mine.filter(may).map(({ sandbox }) => sandbox);
  const kept = mine.filter(one => !may(one)).map(({ sandbox }) => sandbox);
  if (options.dryRun) return { removed: doomed, failed: [], kept, dryRun: true };
  const removed: SandboxInfo[] = [];
  const failed: { sandbox: SandboxInfo; reason: string }[] = [];
  for (const sandbox of doomed) {
    const outcome = await removeAgainJudged(host, sandbox, may, operation, signal);
    if (outcome === 'removed') removed.push(sandbox);
    else if (outcome === 'spared') kept.push(sandbox);
    else if (outcome !== 'gone') failed.push({ sandbox, reason: outcome.failed });
  }
  return { removed, failed, kept, dryRun: false };
}

const FOREIGN: ReadonlySet<Verdict['because']> = new Set(['not ours', 'another user', 'another host']);

function mayGo({ sandbox, verdict }: Judged, { force, allSessions }: CleanupOptions): boolean {
  if (verdict.remove) return true;
  if (FOREIGN.has(verdict.because)) return false;
  if (verdict.because === 'owner lives' && !allSessions) return false;
  return force === true || (verdict.because !== 'kept' && hasEnded(sandbox));
}

function hasEnded({ state }: SandboxInfo): boolean {
  return state === 'exited' || state === 'dead';
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
