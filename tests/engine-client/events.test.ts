// Shows that nothing that happens to a container after a subscription is missed.
import { describe, expect, it } from 'vitest';
import type { EngineEvent, EventSubscription } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { Bench, engines, withoutEngines } from './engines.ts';

async function untilAction(subscription: EventSubscription, last: string): Promise<EngineEvent[]> {
  const seen: EngineEvent[] = [];
  for await (const event of subscription) {
    seen.push(event);
    if (event.action === last) break;
  }
  return seen;
}

describe.skipIf(withoutEngines).each(engines)('events of $name', { concurrent: true }, engine => {
  it('show the whole life of a container that has a label', async () => {
    await using bench = await Bench.at(engine);
    const { containers, events } = bench.engine;
    const { signal, label } = bench;
    const subscription = await events.subscribe({ filters: { label: [label], type: ['container'] }, signal });
    const id = await bench.container('exit 3');
    await containers.start(id, bench);
    await containers.wait(id, 'not-running', { signal, deadlineMs: 60_000 });
    await containers.remove(id, bench);
    const seen = await untilAction(subscription, 'destroy');
    expect(seen.map(({ action }) => action)).toEqual(['create', 'start', 'die', 'destroy']);
    expect(seen.every(event => event.id === id && event.type === 'container')).toBe(true);
    expect(seen.find(({ action }) => action === 'die')?.attributes['exitCode']).toBe('3');
    const times = seen.map(({ timeNano }) => timeNano);
    expect(times).toEqual(times.toSorted((a, b) => Number(a - b)));
    const age = BigInt(Date.now()) * 1_000_000n - (times[0] ?? 0n);
    expect(age).toBeLessThan(60_000_000_000n);
  });

  it('tell of memory that ran out before the death it caused', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const id = await bench.container('tail /dev/zero', {
      HostConfig: { Memory: 16 * 1024 * 1024, MemorySwap: 16 * 1024 * 1024 },
    });
    const filters = { container: [id], event: ['oom', 'die'] };
    const subscription = await bench.engine.events.subscribe({ filters, signal });
    await bench.engine.containers.start(id, bench);
    const seen = await untilAction(subscription, 'die');
    // Each process that the kernel kills is one.
    expect(new Set(seen.map(({ action }) => action))).toEqual(new Set(['oom', 'die']));
    expect(seen[0]?.action).toBe('oom');
  });

  it('are replayed from the exact moment that was asked for', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const first = await bench.engine.events.subscribe({ filters: { label: [bench.label] }, signal });
    const id = await bench.container('true');
    await bench.engine.containers.start(id, bench);
    await bench.engine.containers.wait(id, 'not-running', { signal, deadlineMs: 60_000 });
    const seen = await untilAction(first, 'die');
    const start = seen.find(({ action }) => action === 'start');
    const filters = { container: [id] };
    const replayed = await bench.engine.events.subscribe({ filters, since: start?.timeNano ?? 0n, signal });
    expect((await untilAction(replayed, 'die')).map(({ action }) => action)).toEqual(['start', 'die']);
  });

  it('are seen from the call on, never from before it', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const id = await bench.container('true');
    await new Promise(resolve => setTimeout(resolve, 20));
    const subscription = await bench.engine.events.subscribe({ filters: { container: [id] }, signal });
    await bench.engine.containers.start(id, bench);
    const seen = await untilAction(subscription, 'die');
    expect(seen[0]?.action).toBe('start');
  });

  it('end for a reader when they are closed', async () => {
    await using bench = await Bench.at(engine);
    const filters = { label: [bench.label] };
    const subscription = await bench.engine.events.subscribe({ filters, signal: bench.signal });
    const reading = untilAction(subscription, 'never');
    subscription.close();
    await expect(reading).rejects.toMatchObject({ kind: 'aborted' });
  });
});
