// Figures of gates on a real server: how long small tenants wait beside a dump, and how long a task takes that does nothing.
// `ACODE_TEST_TARGETS=all npx vitest run --project real tests/fleet/gate-figures.test.ts` prints them.

import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Fleet, Gate, NatsEngine, gateFileFrom, makeKeys } from '@acode/fleet';
import type { FleetEngine } from '@acode/fleet';
import { figure, until } from '../support/waiting.ts';
import { hand, ledger } from './hands.ts';
import type { Ledger } from './hands.ts';
import { NatsServers, withoutServers } from './servers.ts';

const SMALL = 49;
const DUMP = 4000;
const ROUNDS = 12;
const EVERY_MS = 1000;
const NOTHING = 300;
const keys = makeKeys();
const names = Array.from({ length: SMALL }, (_, at) => `small-${at}`);

const percentile = (values: readonly number[], part: number): number =>
  values.toSorted((one, other) => one - other)[Math.ceil(values.length * part) - 1] ?? 0;

describe.skipIf(withoutServers)('gates on NATS', () => {
  let servers: NatsServers;
  const closing: (() => Promise<unknown>)[] = [];
  const open = (): Promise<FleetEngine> =>
    NatsEngine.open({
      servers: servers.urls,
      monitors: servers.monitors,
      logBytes: 16 * 1024 ** 2,
      blobBytes: 64 * 1024 ** 2,
    });
  const start = async (slots: number, taskMs: (tenant: string) => number, book: Ledger): Promise<void> => {
    for (let number = 0; number < 4; number += 1) {
      const engine = await open();
      const one = await hand(engine, { slots, taskMs, book });
      closing.push(async () => {
        await one[Symbol.asyncDispose]();
        await engine.close();
      });
    }
  };
  const client = async (tenant: string): Promise<Fleet> => {
    const fleet = await Fleet.open({ tenant, keys, gate: { nats: { servers: servers.urls } } });
    closing.push(() => fleet.close());
    return fleet;
  };

  beforeAll(async () => {
    servers = await NatsServers.start();
    const registered = { keys: [keys.publicKey] };
    const small = Object.fromEntries(names.map(name => [name, registered]));
    const tenants = { dump: { ...registered, quota: 48 }, ...small };
    const file = gateFileFrom({ engine: { nats: { servers: servers.urls } }, tenants });
    for (const _ of [1, 2]) {
      const gate = await Gate.start({ file, engine: await open() });
      closing.push(() => gate.close());
    }
  });
  afterAll(async () => {
    for (const close of closing.reverse()) await close();
    await servers?.[Symbol.asyncDispose]();
  });

  it(
    'begin a small tenant’s task soon, and return a task that does nothing at once',
    { timeout: 240_000 },
    async () => {
      const book = ledger();
      await start(16, () => 0, book);
      const small = await Promise.all(names.map(name => client(name)));
      const [first] = small;
      const took: number[] = [];
      for (let round = 0; round < NOTHING; round += 1) {
        const began = performance.now();
        await (await first?.submit('true', { id: `nothing-${round}` }))?.end();
        took.push(performance.now() - began);
      }
      while (closing.length > 2 + SMALL) await closing.splice(2, 1)[0]?.();
      await start(16, tenant => (tenant === 'dump' ? 1000 : 50), book);
      const dump = await open();
      closing.push(() => dump.close());
      const task = (at: number) =>
        ({ tenant: 'dump', id: `d${at}`, pool: 'default', priority: 'normal', body: '{}' }) as const;
      for (let at = 0; at < DUMP; at += 200)
        await Promise.all(Array.from({ length: 200 }, async (_, next) => dump.enqueue(task(at + next))));
      await until(async () => book.most.get('dump') === 48);
      const waits: number[] = [];
      await Promise.all(
        small.map(async (fleet, at) => {
          await pause((at * EVERY_MS) / SMALL);
          for (let round = 0; round < ROUNDS; round += 1) {
            const began = performance.now();
            const id = `s${at}-${round}`;
            await fleet.submit('true', { id });
            await until(async () => book.beganAt.has(id));
            waits.push((book.beganAt.get(id) ?? Infinity) - began);
            await pause(Math.max(0, EVERY_MS - (performance.now() - began)));
          }
        }),
      );
      const [p50, p99] = [percentile(took, 0.5), percentile(took, 0.99)];
      const [wait50, wait99] = [percentile(waits, 0.5), percentile(waits, 0.99)];
      const told = [
        `a task that does nothing, submit to result: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`,
        `small tenants beside a dump of ${DUMP}: wait p50 ${wait50.toFixed(1)} ms, p99 ${wait99.toFixed(1)} ms, of ${waits.length}`,
        `tasks of the dump at once, quota 48: ${book.most.get('dump')}`,
      ];
      for (const line of told) process.stdout.write(`FIGURE ${line}\n`);
      expect(book.most.get('dump')).toBe(48);
      figure('submit to result of a task that does nothing, p50', p50, 10);
      figure('submit to result of a task that does nothing, p99', p99, 50);
      figure('waits of small tenants beside a dump, p99', wait99, 50);
    },
  );
});
