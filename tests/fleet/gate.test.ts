// Gates on every engine: two at once, quotas, turns, and what happens when the one that leads is killed.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Gate, NatsEngine, gateFileFrom, makeKeys } from '@acode/fleet';
import type { FleetEngine } from '@acode/fleet';
import { until } from '../support/waiting.ts';
import { ENGINES } from './engines.ts';
import type { EnginePlace } from './engines.ts';
import { hand, ledger } from './hands.ts';
import { NatsServers, freePort, withoutServers } from './servers.ts';

const PROGRAM = new URL('../../packages/fleet/dist/gate/program.js', import.meta.url).pathname;
const { publicKey } = makeKeys();
const tenants = { dump: { keys: [publicKey], quota: 2 }, small: { keys: [publicKey] } };
// No door: these tests submit straight to the engine.
const file = gateFileFrom({ engine: { postgres: { url: 'postgres://nowhere' } }, tenants });
const task = (tenant: string, id: string) => ({ tenant, id, pool: 'default', priority: 'normal', body: '{}' }) as const;

describe.skipIf(withoutServers)('gates', () => {
  const closing: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  const hands = async (engine: FleetEngine, count: number, book: ReturnType<typeof ledger>): Promise<void> => {
    for (let number = 0; number < count; number += 1) {
      const one = await hand(engine, { slots: 3, taskMs: () => 20, book });
      closing.push(() => Promise.resolve(one[Symbol.asyncDispose]()));
    }
  };
  const submitAll = async (engine: FleetEngine, count: number): Promise<void> => {
    await Promise.all(Array.from({ length: count }, (_, at) => engine.enqueue(task('dump', `dump-${at}`))));
    for (let at = 0; at < 5; at += 1) await engine.enqueue(task('small', `small-${at}`));
  };

  describe.each(['memory', 'nats', 'postgres'] as const)('on %s', kind => {
    let place: EnginePlace;
    beforeAll(async () => {
      place = await ENGINES[kind]();
    });
    afterAll(() => place?.[Symbol.asyncDispose]());

    it('run each task once, hold a tenant at its quota, and let others pass; one leads, and another when it leaves', async () => {
      const engine = await place.open({ fleet: 'gates' });
      closing.push(() => engine.close());
      const gates: Gate[] = [];
      for (const _ of [1, 2]) gates.push(await Gate.start({ file, engine: await place.open({ fleet: 'gates' }) }));
      closing.push(() => Promise.all(gates.map(gate => gate.close())));
      const book = ledger();
      await hands(engine, 2, book);
      await submitAll(engine, 60);
      await until(async () => book.order.length > 20);
      const leading = gates.filter(gate => gate.isLeading);
      expect(leading).toHaveLength(1);
      gates.splice(
        gates.findIndex(gate => gate === leading[0]),
        1,
      );
      await leading[0]?.close();
      await until(async () => book.begun.size === 65 && (await engine.unfinished('dump')) === 0);
      expect(gates.map(gate => gate.isLeading)).toEqual([true]);
      expect([...book.begun.values()].every(count => count === 1)).toBe(true);
      expect(book.most.get('dump')).toBe(2);
      // Submitted last, and not begun last.
      expect(book.order.findLastIndex(id => id.startsWith('small'))).toBeLessThan(40);
    });
  });

  describe('on NATS, as programs', () => {
    let servers: NatsServers;
    let top: string;
    beforeAll(async () => {
      servers = await NatsServers.start();
      top = mkdtempSync('/var/tmp/acode-gate-');
    });
    afterAll(async () => {
      await servers?.[Symbol.asyncDispose]();
      rmSync(top, { recursive: true, force: true });
    });

    it('go on when the one that leads is killed, with at most one task beyond the quota, each run once', async () => {
      const address = { servers: servers.urls, monitors: servers.monitors };
      const engine = await NatsEngine.open({ ...address, logBytes: 16 * 1024 ** 2, blobBytes: 64 * 1024 ** 2 });
      closing.push(() => engine.close());
      const path = join(top, 'gate.yml');
      writeFileSync(path, JSON.stringify({ engine: { nats: address }, tenants }), { mode: 0o600 });
      const logs = new Map<ChildProcess, string>();
      const ports = [await freePort(), await freePort()];
      for (const port of ports) {
        const argv = [PROGRAM, '--file', path, '--metrics', String(port)];
        const child = spawn(process.execPath, argv, { stdio: ['ignore', 'ignore', 'pipe'] });
        closing.push(async () => child.kill('SIGKILL'));
        child.stderr.on('data', chunk => logs.set(child, `${logs.get(child) ?? ''}${String(chunk)}`));
      }
      const leader = (): ChildProcess | undefined =>
        [...logs].find(([child, log]) => child.signalCode === null && log.includes('hands out tasks'))?.[0];
      const figures = (): Promise<string[]> =>
        Promise.all(
          ports.map(port =>
            fetch(`http://127.0.0.1:${port}/metrics`).then(
              answer => answer.text(),
              () => '',
            ),
          ),
        );
      const book = ledger();
      await submitAll(engine, 80);
      // Nobody works yet: the gate that leads says how long the oldest task has waited, the other one nothing.
      await until(async () =>
        (await figures()).some(text => text.includes('acode_gate_tasks_waiting{pool="default"} 85')),
      );
      const told = await figures();
      expect(told.filter(text => text.includes('acode_gate_leads 1'))).toHaveLength(1);
      expect(told.join('')).toMatch(/acode_gate_oldest_seconds\{pool="default"\} \d+\.\d+/);
      await hands(engine, 2, book);
      await until(async () => book.order.length > 20);
      expect((await figures()).join('')).toMatch(/acode_gate_grants_total\{pool="default"\} [1-9]/);
      leader()?.kill('SIGKILL');
      await until(async () => book.begun.size === 85 && (await engine.unfinished('dump')) === 0);
      expect(leader()).toBeDefined();
      expect([...book.begun.values()].every(count => count === 1)).toBe(true);
      expect(book.most.get('dump')).toBeLessThanOrEqual(3);
    });
  });
});
