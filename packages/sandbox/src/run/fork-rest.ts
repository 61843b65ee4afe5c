// Forks at rest: work on a fork while nothing writes its layer. A persistent sandbox is paused for it.

import { AcodeError } from '../contract/errors.ts';
import type { SandboxInfo } from '../contract/host.ts';
import type { ForkRecord } from '../workspace/fork/record.ts';
import type { ForkStore } from '../workspace/fork/store.ts';
import { keepBase, ofSandbox, refuseBusy, settleLayer, underLock } from './forking.ts';
import type { ForkHost } from './forking.ts';

const UNPAUSE_MS = 10_000;

/** A fork whose layer does not change: nothing writes it, or the sandbox that does is paused. */
interface RestingFork {
  readonly record: ForkRecord;
  /** Whether a persistent sandbox goes on writing the layer afterwards. */
  readonly isLive: boolean;
}

/**
 * Does work on a fork while its layer does not change. A persistent sandbox that writes it is paused, and goes on afterwards; any
 * other command is in the way. The caller holds the lock of the fork.
 */
export async function atRest<Value>(
  host: ForkHost,
  id: string,
  work: (fork: RestingFork) => Promise<Value>,
): Promise<Value> {
  const store = await host.forks();
  const signal = host.closing;
  const container = await containerOf(host, store.read(id), signal);
  if (container === null) {
    await refuseBusy(host, store.read(id), signal);
    await settleLayer(host, id);
    store.touch(id);
    return work({ record: recordOf(store, id), isLive: false });
  }
  store.paused(id, true);
  const engine = await host.engine();
  try {
    if (container.state === 'running') await engine.freeze(container.containerId, 'pause', signal);
    const record = recordOf(store, id);
    await keepBase(host, store, record, true);
    store.touch(id);
    return await work({ record: recordOf(store, id), isLive: true });
  } finally {
    await letGoOn(host, id, container.containerId);
  }
}

// Also where the caller has given up: a sandbox that stays paused is of no use to anybody.
async function letGoOn(host: ForkHost, id: string, containerId: string): Promise<void> {
  const engine = await host.engine();
  try {
    await engine.freeze(containerId, 'unpause', AbortSignal.timeout(UNPAUSE_MS));
    (await host.forks()).paused(id, false);
  } catch (error) {
    host.telemetry.log('warn', 'a paused sandbox could not be let go on', {
      container: containerId,
      reason: String(error),
    });
  }
}

/** Lets a persistent sandbox go on that acode had paused when it was killed; waits for one that has paused it now. */
export async function resumePaused(host: ForkHost, sandboxId: string, signal: AbortSignal): Promise<void> {
  const store = await host.forks();
  const found = await ofSandbox(store, sandboxId);
  if (!found) return;
  await underLock(host, found.id, signal, async () => {
    const record = store.read(found.id);
    if (record?.active?.paused !== true) return;
    const container = await containerOf(host, record, signal);
    if (container?.state === 'paused') await letGoOn(host, found.id, container.containerId);
  });
}

// The container of the persistent sandbox that writes a fork; null where none does. One that another program paused is in the way.
async function containerOf(
  host: ForkHost,
  record: ForkRecord | null,
  signal: AbortSignal,
): Promise<Pick<SandboxInfo, 'containerId' | 'state'> | null> {
  const active = record?.active;
  if (!active || active.holder !== null || active.sandboxId === null) return null;
  const all = await (await host.engine()).list(signal);
  const found = all.find(({ sandboxId }) => sandboxId === active.sandboxId);
  if (found?.state === 'running') return found;
  return found?.state === 'paused' && active.paused === true ? found : null;
}

function recordOf(store: ForkStore, id: string): ForkRecord {
  const record = store.read(id);
  if (!record) throw new AcodeError('ACODE-FRK-001', { fork: id });
  return record;
}
