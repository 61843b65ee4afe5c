// Conformance of the fleet’s engines: one body for the engine in memory, for NATS and for PostgreSQL, the last two on real servers.

import { createHash, randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Delivery, FleetEngine, LogBatch, QueuedTask } from '@acode/fleet';
import { until } from '../support/waiting.ts';
import { MAX_MESSAGE_BYTES } from '../../packages/fleet/src/engine/engine.ts';
import { ENGINES } from './engines.ts';
import type { EnginePlace, EngineSettings } from './engines.ts';
import { withoutServers } from './servers.ts';

const HIDE_MS = 1000;
const KINDS = ['memory', 'nats', 'postgres'] as const;
const HOSTILE = ['', 'a.b', '*', '>', 'a b', '../a', "a'; drop table task", 'A'.repeat(65), 'é', '$KV', 'a\n'];

const pause = (ms: number): Promise<void> => new Promise(resolve => void setTimeout(resolve, ms));
const task = (id: string, of: Partial<QueuedTask> = {}): QueuedTask => ({
  tenant: 'acme',
  id,
  pool: 'default',
  priority: 'normal',
  body: `do ${id}`,
  ...of,
});
const idsOf = (deliveries: readonly Delivery[]): string[] => deliveries.map(one => one.task.id);
const hashOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe.skipIf(withoutServers).each(KINDS)('the fleet engine %s', kind => {
  let place: EnginePlace;
  let number = 0;
  const opened: FleetEngine[] = [];
  beforeAll(async () => {
    place = await ENGINES[kind]();
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map(engine => engine.close()));
  });
  afterAll(() => place?.[Symbol.asyncDispose]());

  const open = async (settings: Partial<EngineSettings> = {}): Promise<FleetEngine> => {
    const engine = await place.open({ fleet: `f-${number}`, hideMs: HIDE_MS, ...settings });
    opened.push(engine);
    return engine;
  };
  const fresh = (settings: Partial<EngineSettings> = {}): Promise<FleetEngine> => {
    number += 1;
    return open(settings);
  };
  const take = (engine: FleetEngine, max = 10, waitMs = 0, pool = 'default'): Promise<Delivery[]> =>
    engine.take({ pool, max, waitMs });
  const collected = async (engine: FleetEngine, id: string, after: number, count: number): Promise<LogBatch[]> => {
    const found: LogBatch[] = [];
    const stop = new AbortController();
    for await (const batch of engine.followLog({ tenant: 'acme', id, attempt: 1 }, after, stop.signal)) {
      found.push(batch);
      if (found.length === count) break;
    }
    return found;
  };

  it('queues a task once by its id, and hands it out until it is done', async () => {
    const engine = await fresh();
    expect(await engine.enqueue(task('one'))).toBe('queued');
    expect(await engine.enqueue(task('one', { body: 'another' }))).toBe('present');
    expect(await engine.queued({ tenant: 'acme', id: 'one' }, 'default')).toMatchObject({
      body: 'do one',
      priority: 'normal',
    });
    const [delivery] = await take(engine);
    expect(delivery).toMatchObject({ task: task('one'), deliveries: 1 });
    expect(await take(engine)).toEqual([]);
    expect(await engine.depth('default')).toBe(1);
    await delivery?.done();
    await delivery?.done();
    expect(await engine.queued({ tenant: 'acme', id: 'one' }, 'default')).toBeNull();
    await expect.poll(() => engine.depth('default')).toBe(0);
    expect(await engine.enqueue(task('one'))).toBe('queued');
  });

  it('keeps tenants and pools apart', async () => {
    const engine = await fresh();
    await engine.enqueue(task('same'));
    await engine.enqueue(task('same', { tenant: 'other' }));
    await engine.enqueue(task('elsewhere', { pool: 'gpu' }));
    expect((await take(engine)).map(one => one.task.tenant).sort()).toEqual(['acme', 'other']);
    expect(idsOf(await take(engine, 10, 0, 'gpu'))).toEqual(['elsewhere']);
    expect(await engine.depth('default')).toBe(2);
  });

  it('hands out the most urgent tasks first, and in the order they came', async () => {
    const engine = await fresh();
    for (const [id, priority] of [
      ['a', 'low'],
      ['b', 'normal'],
      ['c', 'high'],
      ['d', 'normal'],
      ['e', 'high'],
    ] as const)
      await engine.enqueue(task(id, { priority }));
    expect([...idsOf(await take(engine, 2)), ...idsOf(await take(engine, 2)), ...idsOf(await take(engine, 2))]).toEqual(
      ['c', 'e', 'b', 'd', 'a'],
    );
  });

  it('hands a task out again when its time is over or it is released, and not while it is prolonged', async () => {
    const engine = await fresh();
    await engine.enqueue(task('held'));
    await engine.enqueue(task('left'));
    const [held, left] = await take(engine);
    expect(left?.task.id).toBe('left');
    for (let step = 0; step < 3; step += 1) {
      await pause(HIDE_MS / 2);
      await held?.prolong();
    }
    const again = await take(engine, 10, 2000);
    expect(again.map(({ task: { id }, deliveries }) => [id, deliveries])).toEqual([['left', 2]]);
    await again[0]?.done();
    await held?.release(0);
    expect(idsOf(await take(engine, 10, 4000))).toEqual(['held']);
  });

  it('waits for a task, and stops waiting when it is cancelled', async () => {
    const engine = await fresh();
    const waiting = take(engine, 1, 5000);
    await pause(300);
    await engine.enqueue(task('late'));
    expect(idsOf(await waiting)).toEqual(['late']);
    const stop = new AbortController();
    const cancelled = engine.take({ pool: 'default', max: 1, waitMs: 5000 }, stop.signal).catch(() => []);
    setTimeout(() => stop.abort(), 100);
    expect(await cancelled).toEqual([]);
    await expect(engine.enqueue(task('never'), AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough');
    expect(await engine.queued({ tenant: 'acme', id: 'never' }, 'default')).toBeNull();
  });

  it('hands each task to one of many takers', async () => {
    const [one, other] = [await fresh({ hideMs: 20_000 }), await open({ hideMs: 20_000 })];
    const ids = Array.from({ length: 150 }, (_, at) => `t${at}`);
    await Promise.all(ids.map(id => one.enqueue(task(id))));
    const taken: string[] = [];
    const taker = async (engine: FleetEngine): Promise<void> => {
      for (let got = await take(engine, 5, 200); got.length > 0; got = await take(engine, 5, 200)) {
        taken.push(...idsOf(got));
        await Promise.all(got.map(delivery => delivery.done()));
      }
    };
    await Promise.all([one, other, one, other].map(taker));
    expect(taken.sort()).toEqual(ids.sort());
    await expect.poll(() => one.depth('default')).toBe(0);
  });

  it('lets one of many writers of the same revision through', async () => {
    const [one, other] = [await fresh(), await open()];
    const key = { tenant: 'acme', id: 'state' };
    expect(await one.read(key)).toBeNull();
    const made = await Promise.all(
      Array.from({ length: 20 }, (_, at) => (at % 2 === 0 ? one : other).write(key, 0, `writer ${at}`)),
    );
    const [revision, ...more] = made.filter(result => result !== null);
    expect(more).toEqual([]);
    expect(await other.read(key)).toEqual({ revision, text: `writer ${made.findIndex(result => result !== null)}` });
    expect(await other.write(key, (revision ?? 0) + 1000, 'wrong')).toBeNull();
    expect(await other.write(key, 0, 'wrong')).toBeNull();
    const next = await other.write(key, revision ?? 0, 'next');
    expect(next).toBeGreaterThan(revision ?? Infinity);
    expect(await one.write(key, revision ?? 0, 'stale')).toBeNull();
    expect(await one.read({ ...key, tenant: 'other' })).toBeNull();
  });

  it('forgets a state after its time, and then takes a new one', async () => {
    const engine = await fresh();
    const key = { tenant: 'acme', id: 'short' };
    const revision = await engine.write(key, 0, 'short', { keepMs: 1000 });
    expect(await engine.read(key)).toEqual({ text: 'short', revision });
    await until(async () => (await engine.read(key)) === null);
    expect(await engine.write(key, revision ?? 0, 'stale')).toBeNull();
    expect(await engine.write(key, 0, 'again')).not.toBeNull();
  });

  it('ends a lease that is not renewed, and no other', async () => {
    const [one, other] = [await fresh(), await open()];
    await one.renew({ worker: 'w1', body: 'one' }, 1000);
    await one.renew({ worker: 'w2', body: 'two' }, 60_000);
    expect((await other.leases()).sort((a, b) => a.worker.localeCompare(b.worker))).toEqual([
      { worker: 'w1', body: 'one' },
      { worker: 'w2', body: 'two' },
    ]);
    await until(async () => !(await other.isLeased('w1')));
    expect(await other.isLeased('w2')).toBe(true);
    expect((await other.leases()).map(({ worker }) => worker)).toEqual(['w2']);
    await one.renew({ worker: 'w1', body: 'back' }, 60_000);
    expect(await other.isLeased('w1')).toBe(true);
    await other.endLease('w2');
    expect(await one.isLeased('w2')).toBe(false);
  });

  it('keeps the lease of a sandbox apart from those of workers and of other tenants', async () => {
    const [one, other] = [await fresh(), await open()];
    await one.renew({ tenant: 'acme', id: 'box', body: 'short' }, 1000);
    await one.renew({ tenant: 'acme', id: 'box-2', body: 'long' }, 60_000);
    await one.renew({ tenant: 'acme-2', id: 'box', body: 'of another' }, 60_000);
    await one.renew({ worker: 'box', body: 'worker' }, 60_000);
    const found = (await other.sandboxes('acme')).sort((a, b) => a.id.localeCompare(b.id));
    expect(found).toEqual([
      { tenant: 'acme', id: 'box', body: 'short' },
      { tenant: 'acme', id: 'box-2', body: 'long' },
    ]);
    expect(await other.leases()).toEqual([{ worker: 'box', body: 'worker' }]);
    await until(async () => (await other.sandboxes('acme')).length === 1);
    await other.endLease({ tenant: 'acme', id: 'box-2' });
    expect(await one.sandboxes('acme')).toEqual([]);
    // The controls: what has the same name elsewhere is still there.
    expect(await one.sandboxes('acme-2')).toHaveLength(1);
    expect(await one.isLeased('box')).toBe(true);
  });

  it('passes a message to the one who serves a sandbox and its answer back, and to nobody else', async () => {
    const [host, client] = [await fresh(), await open()];
    const large = randomBytes(MAX_MESSAGE_BYTES);
    const serving = await host.serve({ tenant: 'acme', id: 'box' }, async message =>
      message.length === 0 ? null : Buffer.concat([message]).reverse(),
    );
    await using _other = await host.serve({ tenant: 'other', id: 'box' }, async () => Buffer.from('of another'));
    const asked = async (bytes: Uint8Array): Promise<Buffer> =>
      Buffer.from(await client.ask({ tenant: 'acme', id: 'box' }, bytes));
    const answers = await Promise.all(['one', 'two'].map(async word => (await asked(Buffer.from(word))).toString()));
    expect(answers).toEqual(['eno', 'owt']);
    expect(hashOf(await asked(large))).toBe(hashOf(Buffer.from(large).reverse()));
    expect(Buffer.from(await client.ask({ tenant: 'other', id: 'box' }, large)).toString()).toBe('of another');
    await expect(asked(Buffer.alloc(MAX_MESSAGE_BYTES + 1))).rejects.toMatchObject({ code: 'ACODE-FLT-007' });
    const stop = new AbortController();
    const waiting = client.ask({ tenant: 'acme', id: 'box' }, new Uint8Array(), stop.signal);
    stop.abort(new Error('not waited for'));
    await expect(waiting).rejects.toThrow('not waited for');
    await serving[Symbol.asyncDispose]();
    await expect(asked(Buffer.from('late'))).rejects.toMatchObject({ code: 'ACODE-FLT-050' });
  });

  it('replays a log, then follows it, and goes on after a number', async () => {
    const [writer, reader] = [await fresh(), await open()];
    const key = { tenant: 'acme', id: 'log', attempt: 1 };
    const piece = (sequence: number): LogBatch => ({ sequence, bytes: Buffer.from(`piece ${sequence}`) });
    await writer.appendLog(key, piece(1));
    await writer.appendLog(key, piece(2));
    await writer.appendLog(key, piece(2));
    await writer.appendLog({ ...key, attempt: 2 }, piece(1));
    const reading = collected(reader, 'log', 0, 4);
    await pause(300);
    await writer.appendLog(key, piece(3));
    await writer.appendLog(key, piece(4));
    expect((await reading).map(({ sequence, bytes }) => [sequence, Buffer.from(bytes).toString()])).toEqual(
      [1, 2, 3, 4].map(sequence => [sequence, `piece ${sequence}`]),
    );
    expect((await collected(reader, 'log', 2, 2)).map(({ sequence }) => sequence)).toEqual([3, 4]);
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 200);
    for await (const batch of reader.followLog({ ...key, attempt: 3 }, 0, stop.signal)) expect(batch).toBeUndefined();
  });

  it('stores bytes for one tenant', async () => {
    const engine = await fresh();
    const bytes = randomBytes(8 * 1024 ** 2);
    const empty = new Uint8Array();
    await engine.putBlob('acme', hashOf(bytes), bytes);
    await engine.putBlob('acme', hashOf(bytes), bytes);
    await engine.putBlob('acme', hashOf(empty), empty);
    expect(hashOf((await engine.getBlob('acme', hashOf(bytes))) ?? empty)).toBe(hashOf(bytes));
    expect(await engine.getBlob('acme', hashOf(empty))).toHaveLength(0);
    expect(await engine.getBlob('other', hashOf(bytes))).toBeNull();
    expect(await engine.getBlob('acme', '0'.repeat(64))).toBeNull();
    const large = new Uint8Array(bytes.length + 1);
    await expect(engine.putBlob('acme', hashOf(large), large)).rejects.toMatchObject({ code: 'ACODE-FLT-007' });
  });

  it('shows the queue of a pool in its order, then each task as it comes, and hands one out by its name', async () => {
    const engine = await open();
    for (const id of ['one', 'two']) await engine.enqueue(task(id, { body: `do ${id}` }));
    await engine.enqueue(task('elsewhere', { pool: 'other' }));
    const stop = new AbortController();
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { id, tenant, pool, priority } of engine.watchQueue('default', stop.signal))
        if (!seen.includes(id)) seen.push([tenant, id, pool, priority].join(' '));
    })();
    await until(async () => seen.length >= 2);
    await engine.enqueue(task('three', { priority: 'high', tenant: 'other' }));
    await until(async () => new Set(seen).size === 3);
    expect([...new Set(seen)]).toEqual([
      'acme one default normal',
      'acme two default normal',
      'other three default high',
    ]);
    stop.abort();
    await watching;
    expect(await engine.unfinished('acme')).toBe(3);
    const picked = await engine.pick({ tenant: 'acme', id: 'two' }, 'default');
    expect(picked?.task).toMatchObject({ id: 'two', body: 'do two', priority: 'normal' });
    await picked?.release(0);
    await picked?.done();
    expect(await engine.pick({ tenant: 'acme', id: 'two' }, 'default')).toBeNull();
    expect(await engine.pick({ tenant: 'acme', id: 'elsewhere' }, 'default')).toBeNull();
    expect(await engine.unfinished('acme')).toBe(2);
  });

  it('wakes those who listen, each to its topic', async () => {
    const [one, other] = [await fresh(), await open()];
    const heard: string[] = [];
    const listening = await other.listen({ tenant: 'acme' }, text => heard.push(`tenant ${text}`));
    await using _worker = await other.listen({ worker: 'w1' }, text => heard.push(`worker ${text}`));
    await one.notify({ tenant: 'acme' }, 'first one');
    await one.notify({ tenant: 'other' }, 'not heard');
    await one.notify({ worker: 'w1' }, 'drain');
    await expect.poll(() => heard).toEqual(['tenant first one', 'worker drain']);
    await listening[Symbol.asyncDispose]();
    await one.notify({ tenant: 'acme' }, 'nobody hears it');
    await one.notify({ worker: 'w1' }, 'last');
    await expect.poll(() => heard).toEqual(['tenant first one', 'worker drain', 'worker last']);
  });

  it('refuses names that would lead elsewhere', async () => {
    const engine = await fresh();
    const refused = { code: 'ACODE-FLT-004', exitStatus: 2 };
    for (const name of HOSTILE) {
      const calls: (() => Promise<unknown>)[] = [
        () => engine.enqueue(task(name)),
        () => engine.enqueue(task('a', { tenant: name })),
        () => engine.enqueue(task('a', { pool: name })),
        () => take(engine, 1, 0, name),
        () => engine.read({ tenant: name, id: 'a' }),
        () => engine.write({ tenant: 'a', id: name }, 0, ''),
        () => engine.renew({ worker: name, body: '' }, 1000),
        () => engine.appendLog({ tenant: name, id: 'a', attempt: 1 }, { sequence: 1, bytes: new Uint8Array() }),
        () => engine.getBlob(name, '0'.repeat(64)),
        () => engine.getBlob('a', name),
        () => engine.renew({ tenant: name, id: 'a', body: '' }, 1000),
        () => engine.renew({ tenant: 'a', id: name, body: '' }, 1000),
        async () => engine.sandboxes(name),
        async () => engine.serve({ tenant: 'a', id: name }, async () => null),
        async () => engine.ask({ tenant: name, id: 'a' }, new Uint8Array()),
        async () => engine.notify({ tenant: name }, ''),
        async () => engine.listen({ worker: name }, () => undefined),
      ];
      for (const call of calls) await expect(call(), `${name} ${call.toString()}`).rejects.toMatchObject(refused);
    }
    // The control: the same calls with names that may be.
    expect(await engine.enqueue(task('a', { tenant: 'a-1', pool: 'p-1' }))).toBe('queued');
    expect(idsOf(await take(engine, 1, 0, 'p-1'))).toEqual(['a']);
  });

  it('refuses a task when the queue is full, and one that is too large', async () => {
    const engine = await fresh({ maxQueued: 2 });
    for (const id of ['a', 'b']) expect(await engine.enqueue(task(id))).toBe('queued');
    await expect(engine.enqueue(task('c'))).rejects.toMatchObject({ code: 'ACODE-FLT-005' });
    expect(await engine.enqueue(task('a'))).toBe('present');
    await (await take(engine, 1))[0]?.done();
    expect(await engine.enqueue(task('c'))).toBe('queued');
    await expect(engine.enqueue(task('d', { body: 'x'.repeat(600_000) }))).rejects.toMatchObject({
      code: 'ACODE-FLT-007',
    });
  });

  if (kind === 'memory') return;

  it('has everything that it acknowledged after its server was killed', async () => {
    const engine = await fresh();
    const ids = Array.from({ length: 20 }, (_, at) => `t${at}`);
    for (const id of ids) await engine.enqueue(task(id));
    const key = { tenant: 'acme', id: 'state' };
    const revision = await engine.write(key, 0, 'before');
    const [done] = await take(engine, 1);
    await done?.done();
    const waiting = take(engine, 1, 5000, 'another').catch(() => []);
    await place.restart?.();
    await waiting;
    expect(await engine.read(key)).toEqual({ text: 'before', revision });
    expect(await engine.write(key, revision ?? 0, 'after')).not.toBeNull();
    const left = new Set(ids.filter(id => id !== done?.task.id));
    await until(async () => {
      for (const delivery of await take(engine, 10, 200).catch(() => [])) {
        left.delete(delivery.task.id);
        await delivery.done();
      }
      return left.size === 0;
    });
    expect(await engine.enqueue(task('t1'))).toBe('queued');
    const batch = { sequence: 1, bytes: Buffer.from('x') };
    await engine.appendLog({ ...key, attempt: 1 }, batch);
    expect(await collected(engine, 'state', 0, 1)).toHaveLength(1);
  });
});
