// Workers that do nothing but wait: they claim what gates grant, and end it, so that tests and figures see the fleet and no sandbox.

import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Delivery, FleetEngine } from '@acode/fleet';
import { makeKeys, signed } from '../../packages/fleet/src/tasks/signature.ts';
import { FleetTasks } from '../../packages/fleet/src/tasks/tasks.ts';
import { GrantedTasks } from '../../packages/fleet/src/worker/granted.ts';
import { LeaseKeeper } from '../../packages/fleet/src/worker/lease-keeper.ts';

/** What all hands of a fleet have done. */
export interface Ledger {
  /** How often each task began. */
  readonly begun: Map<string, number>;
  /** The order in which tasks began. */
  readonly order: string[];
  /** When each began, as `performance.now()` counts. */
  readonly beganAt: Map<string, number>;
  /** How many tasks of each tenant run now. */
  readonly running: Map<string, number>;
  /** The most of each tenant at once. */
  readonly most: Map<string, number>;
}

/** An empty ledger. */
export const ledger = (): Ledger => ({
  begun: new Map(),
  order: [],
  beganAt: new Map(),
  running: new Map(),
  most: new Map(),
});

/** Starts one; dispose it before its engine is closed. */
export async function hand(
  engine: FleetEngine,
  {
    slots,
    taskMs,
    book,
  }: { readonly slots: number; readonly taskMs: (tenant: string) => number; readonly book: Ledger },
): Promise<AsyncDisposable> {
  const worker = `hand_${randomBytes(6).toString('hex')}`;
  const tasks = new FleetTasks(engine);
  const hot = new Set<string>();
  const keys = makeKeys();
  const perform = async (delivery: Delivery): Promise<void> => {
    const { tenant, id } = delivery.task;
    const claiming = await tasks.claim(delivery, { worker, maxAttempts: 3, holds: () => false });
    if (claiming.is !== 'claimed') {
      if (claiming.is === 'busy') await delivery.release(100);
      return;
    }
    hot.add(tenant);
    const now = (book.running.get(tenant) ?? 0) + 1;
    book.running.set(tenant, now);
    book.most.set(tenant, Math.max(book.most.get(tenant) ?? 0, now));
    book.begun.set(id, (book.begun.get(id) ?? 0) + 1);
    book.order.push(id);
    book.beganAt.set(id, performance.now());
    await pause(taskMs(tenant));
    book.running.set(tenant, (book.running.get(tenant) ?? 1) - 1);
    const { attempt, claim } = claiming.claim;
    const outcome = { tenant, id, attempt, claim, worker, logPieces: 0, result: { exitCode: 0 } };
    await tasks.finish(claiming.claim, 'succeeded', signed('result', JSON.stringify(outcome), keys));
    await delivery.done();
  };
  const lease = new LeaseKeeper(engine, worker, {
    body: () => JSON.stringify({ granted: true }),
    renewed: () => undefined,
    lost: () => undefined,
  });
  await lease.begin();
  const granted = new GrantedTasks({
    engine,
    worker,
    pool: 'default',
    slots: () => slots,
    hasSlot: () => true,
    hot: () => [...hot],
    perform,
  });
  const listening = await engine.listen({ worker }, text => void granted.noticed(text));
  return {
    [Symbol.asyncDispose]: async () => {
      granted.stop();
      await listening[Symbol.asyncDispose]();
      await lease.stop(true);
    },
  };
}
