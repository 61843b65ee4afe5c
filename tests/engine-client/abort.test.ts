// Shows that an abort closes the connection at once, where dockerode ignores it and undici leaves the hijacked socket open.
import { describe, expect, it } from 'vitest';
import { Bench, collect, engines, withoutEngines } from './engines.ts';
import { EngineProxy } from '../support/proxy.ts';

const talkative = 'while :; do echo x; usleep 5000; done';

describe.skipIf(withoutEngines).each(engines)('an abort on $name', { concurrent: true }, engine => {
  it('of an attach that is being read closes its socket and tells the reader', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { signal } = bench;
    const id = await bench.container(talkative);
    const controller = new AbortController();
    const stream = await bench.engine.containers.attach(id, { stdout: true, stderr: true, signal: controller.signal });
    await bench.engine.containers.start(id, { signal });
    const reading = collect(stream);
    await proxy.untilOpen(1, 1000);
    const reason = new Error('enough');
    const start = performance.now();
    controller.abort(reason);
    await expect(reading).rejects.toMatchObject({ kind: 'aborted', cause: reason });
    await stream.closed;
    await proxy.untilOpen(0, 500);
    expect(performance.now() - start).toBeLessThan(500);
    // Giving up the stream is not giving up the container.
    expect((await bench.engine.containers.inspect(id, { signal })).State.Running).toBe(true);
  });

  it('of an attach that nobody reads closes its socket', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { signal } = bench;
    const id = await bench.container(talkative);
    const controller = new AbortController();
    const stream = await bench.engine.containers.attach(id, { stdout: true, signal: controller.signal });
    await bench.engine.containers.start(id, { signal });
    controller.abort();
    await stream.closed;
    await proxy.untilOpen(0, 500);
    await expect(stream.write('x')).rejects.toMatchObject({ kind: 'aborted' });
  });

  it('of a wait, of events and of a call that hangs closes their sockets', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { containers, events, system } = bench.engine;
    const id = await bench.container('true');
    const controller = new AbortController();
    const { signal } = controller;
    const { exit } = await containers.expectExit(id, 'next-exit', { signal, deadlineMs: 20_000 });
    const subscription = await events.subscribe({ filters: { label: [bench.label] }, signal });
    const event = subscription[Symbol.asyncIterator]().next();
    proxy.onRequest(() => 'hang');
    const ping = system.ping({ signal });
    await proxy.untilOpen(3, 1000);
    controller.abort();
    const outcomes = await Promise.allSettled([exit, event, ping]);
    const aborted = { status: 'rejected', reason: expect.objectContaining({ kind: 'aborted' }) };
    expect(outcomes).toEqual([aborted, aborted, aborted]);
    await proxy.untilOpen(0, 500);
  });
});
