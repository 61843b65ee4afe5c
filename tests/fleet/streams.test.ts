// Streams of a fleet that a server has lost: they are made again, and nothing of before counts in them.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { NatsEngine } from '@acode/fleet';
import type { Delivery, FleetEngine, QueuedTask } from '@acode/fleet';
import { connect } from '@nats-io/transport-node';
import { until } from '../support/waiting.ts';
import { NatsServers, withoutServers } from './servers.ts';

const SIZES = { logBytes: 8 * 1024 ** 2, blobBytes: 8 * 1024 ** 2 };
const task = (id: string): QueuedTask => ({ tenant: 'acme', id, pool: 'default', priority: 'normal', body: id });

describe.skipIf(withoutServers)('a stream that was deleted', () => {
  let servers: NatsServers;
  let engine: FleetEngine;
  beforeAll(async () => {
    servers = await NatsServers.start();
    engine = await NatsEngine.open({ ...SIZES, servers: servers.urls, monitors: servers.monitors });
  });
  afterAll(async () => {
    await engine?.close();
    await servers?.[Symbol.asyncDispose]();
  });

  const deleted = async (stream: string): Promise<void> => {
    const connection = await connect({ servers: servers.urls });
    const answer = await connection.request(`$JS.API.STREAM.DELETE.${stream}`, '', { timeout: 5000 });
    expect(answer.string()).toContain('"success":true');
    await connection.close();
  };

  // As a worker does: the first answer may be that the consumer is gone.
  const take = async (max: number): Promise<Delivery[]> => {
    let taken: Delivery[] = [];
    await until(async () => {
      taken = await engine.take({ pool: 'default', max, waitMs: 1000 }).catch(() => []);
      return taken.length > 0;
    });
    return taken;
  };

  it('is made again by whoever needs it', async () => {
    await deleted('ACODE_TASKS');
    expect(await engine.enqueue(task('one'))).toBe('queued');
    const [delivery] = await take(1);
    expect(delivery?.task.id).toBe('one');
    await delivery?.done();
    await deleted('KV_acode_task');
    expect(await engine.read({ tenant: 'acme', id: 'one' })).toBeNull();
    expect(await engine.write({ tenant: 'acme', id: 'one' }, 0, 'state')).not.toBeNull();
    await deleted('KV_acode_lease');
    await engine.renew({ worker: 'w1', body: '' }, 60_000);
    expect(await engine.isLeased('w1')).toBe(true);
  });

  it('takes nothing away: the end of a task of before removes no other one', async () => {
    await engine.enqueue(task('before'));
    const [delivery] = await take(1);
    expect(delivery?.task.id).toBe('before');
    await deleted('ACODE_TASKS');
    // As many that one of them has the number of the one before.
    for (const id of ['a', 'b', 'c']) await engine.enqueue(task(id));
    await delivery?.done();
    const taken = await take(10);
    expect(taken.map(one => one.task.id)).toEqual(['a', 'b', 'c']);
    // The control: what is there is removed.
    await taken[0]?.done();
    expect(await engine.queued(task('a'), 'default')).toBeNull();
    expect(await engine.queued(task('b'), 'default')).not.toBeNull();
  });
});
