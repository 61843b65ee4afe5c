// Finds what dead sessions left on the engine and removes it: the second net, behind the reaper.

import type { SandboxInfo } from './contract/host.ts';
import type { Host } from './host.ts';
import { judge } from './lifecycle/orphans.ts';
import type { Verdict } from './lifecycle/orphans.ts';
import { ownerState, removeDeadSockets } from './lifecycle/ownership.ts';
import type { OwnerState } from './lifecycle/ownership.ts';
import { METRICS } from './telemetry/operation.ts';
import type { Operation } from './telemetry/operation.ts';

/** A sandbox and what is to be done with it. */
export interface Judged {
  readonly sandbox: SandboxInfo;
  readonly verdict: Verdict;
}

/** What became of the removal of one sandbox. */
export type Removal = 'removed' | 'gone' | 'spared' | { readonly failed: string };

const SWEEP_MS = 20_000;

/** Every managed sandbox on the engine, judged as of now. */
export async function survey(host: Host, signal: AbortSignal): Promise<Judged[]> {
  const backend = await host.backend();
  const sandboxes = await backend.list(signal);
  const owners = new Map<string, Promise<OwnerState>>();
  return Promise.all(sandboxes.map(async sandbox => ({ sandbox, verdict: await judged(host, sandbox, owners) })));
}

/** Removes one sandbox if, looked at again by id, it still may be: between a list and now everything can have changed. */
export async function removeAgainJudged(
  host: Host,
  sandbox: SandboxInfo,
  may: (now: Judged) => boolean,
  operation: Operation,
  signal: AbortSignal,
): Promise<Removal> {
  const backend = await host.backend();
  const { containerId, name, sandboxId } = sandbox;
  try {
    const now = await backend.inspect(containerId, signal);
    if (!now) return 'gone';
    const verdict = await judged(host, now, new Map());
    if (!may({ sandbox: now, verdict })) return 'spared';
    const before = host.telemetry.clock.monotonic();
    await backend.remove(containerId, signal);
    const durationMs = host.telemetry.clock.monotonic() - before;
    host.telemetry.observe(METRICS.cleanup, durationMs);
    host.bus.emit('SandboxTeardown', operation.correlationId, new Date(host.telemetry.clock.now()), {
      sandboxId,
      backend: 'docker',
      reason: verdict.because,
    });
    const { sessionId: session } = sandbox;
    operation.step(verdict.remove ? 'warn' : 'debug', 'container removed', {
      sandboxId,
      containerId,
      name,
      session,
      durationMs,
      reason: verdict.because,
    });
    return 'removed';
  } catch (error) {
    host.telemetry.increment(METRICS.cleanupFailures);
    return { failed: error instanceof Error ? error.message : String(error) };
  }
}

/** Removes every orphan and whatever is past its hard maximum. Never rejects: a sweep that fails is repeated by the next session. */
export async function sweep(host: Host): Promise<void> {
  const operation = host.telemetry.begin('sweep');
  // Its own deadline and not the host’s end: a short command must not keep the sweep from ever finishing.
  const signal = AbortSignal.timeout(SWEEP_MS);
  try {
    const orphans = (await survey(host, signal)).filter(({ verdict }) => verdict.remove);
    host.telemetry.gauge(METRICS.orphaned, orphans.length);
    const outcomes = await Promise.all(
      orphans.map(({ sandbox }) =>
        removeAgainJudged(host, sandbox, ({ verdict }) => verdict.remove, operation, signal),
      ),
    );
    await removeDeadSockets(host.directories.runtime);
    const removed = outcomes.filter(outcome => outcome === 'removed').length;
    if (removed > 0) operation.step('warn', `removed ${removed} orphaned sandboxes`, { removed });
    operation.succeed({ found: orphans.length, removed });
  } catch (error) {
    operation.fail(error);
  }
}

async function judged(host: Host, sandbox: SandboxInfo, owners: Map<string, Promise<OwnerState>>): Promise<Verdict> {
  const { labels } = sandbox;
  const owner = labels['acode.owner'] ?? '';
  const asked = owners.get(owner) ?? ownerState(host.directories.runtime, owner);
  owners.set(owner, asked);
  const asking = {
    uid: host.uid,
    host: host.identity,
    owner: host.session.owner,
    now: host.telemetry.clock.now(),
  };
  return judge(labels, await asked, asking);
}
