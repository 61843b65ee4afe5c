// What exists on this host: its status, and the removal of what was left behind.

import type { CleanupOptions, CleanupReport, SandboxInfo, Status } from './contract/host.ts';
import { AcodeError } from './contract/errors.ts';
import type { Host } from './host.ts';
import { NO_LAYERS } from './policy/layers.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { METRICS } from './telemetry/operation.ts';
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
      unavailableReason: error.message,
      hint: error.hint,
      sandboxes: { running: 0, total: 0 },
      level: null,
    };
  }
}

/** Removes this user’s sandboxes of this host that have ended; with `force`, also those that run. */
export async function cleanup(
  host: Host,
  options: CleanupOptions,
  operation: Operation,
  signal: AbortSignal,
): Promise<CleanupReport> {
  const backend = await host.backend();
  const mine = (await backend.list(signal)).filter(sandbox => isMine(host, sandbox));
  const doomed = mine.filter(sandbox => options.force || hasEnded(sandbox));
  const kept = mine.filter(sandbox => !doomed.includes(sandbox));
  if (options.dryRun) return { removed: doomed, failed: [], kept, dryRun: true };
  const removed: SandboxInfo[] = [];
  const failed: { sandbox: SandboxInfo; reason: string }[] = [];
  for (const sandbox of doomed) {
    // Looked at again by id: between the list and now it may have become somebody else’s, or begun to run.
    const now = await backend.inspect(sandbox.containerId, signal);
    if (!now) continue;
    if (!isMine(host, now) || !(options.force || hasEnded(now))) {
      kept.push(now);
      continue;
    }
    const { containerId, name, sandboxId } = sandbox;
    const before = host.telemetry.clock.monotonic();
    try {
      await backend.remove(containerId, signal);
      removed.push(sandbox);
      const durationMs = host.telemetry.clock.monotonic() - before;
      host.telemetry.observe(METRICS.cleanup, durationMs);
      operation.step('debug', 'container removed', { sandboxId, containerId, name, durationMs });
    } catch (error) {
      failed.push({ sandbox, reason: error instanceof Error ? error.message : String(error) });
    }
  }
  return { removed, failed, kept, dryRun: false };
}

function isMine(host: Host, sandbox: SandboxInfo): boolean {
  return sandbox.labels['acode.uid'] === String(host.uid) && sandbox.labels['acode.host'] === host.identity;
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
