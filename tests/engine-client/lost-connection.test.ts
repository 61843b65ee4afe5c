// Shows that a connection lost in the middle of anything is an error at once, where dockerode's wait() hangs for ever.
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { isTransient } from '../../packages/sandbox/src/isolation/docker/engine/protocol.ts';
import { Bench, collect, engines, withoutEngines } from './engines.ts';
import { EngineProxy } from '../support/proxy.ts';

describe.skipIf(withoutEngines).each(engines)('a lost connection to $name', { concurrent: true }, engine => {
  it('rejects a wait that has begun', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { signal } = bench;
    const id = await bench.container('sleep 60');
    const { exit } = await bench.engine.containers.expectExit(id, 'next-exit', { signal, deadlineMs: 60_000 });
    await bench.engine.containers.start(id, { signal });
    proxy.dropAll();
    const error: unknown = await exit.catch((reason: unknown) => reason);
    expect(error).toMatchObject({ name: 'EngineError', kind: 'disconnected' });
    expect(isTransient(error)).toBe(true);
  });

  it('rejects a wait whose engine answers nothing, at its deadline', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const id = await bench.container('true');
    proxy.onRequest((_, path) => (path.includes('/wait') ? 'hang' : undefined));
    const wait = bench.engine.containers.wait(id, 'next-exit', { signal: bench.signal, deadlineMs: 300 });
    await expect(wait).rejects.toMatchObject({ kind: 'timeout' });
    await proxy.untilOpen(0);
  });

  it('rejects a wait that was begun and never finished, at its deadline', async () => {
    await using bench = await Bench.at(engine);
    const id = await bench.container('true');
    const wait = bench.engine.containers.wait(id, 'next-exit', { signal: bench.signal, deadlineMs: 300 });
    await expect(wait).rejects.toMatchObject({ kind: 'timeout' });
  });

  it('tells the reader of events', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const events = await bench.engine.events.subscribe({ filters: { label: [bench.label] }, signal: bench.signal });
    const next = events[Symbol.asyncIterator]().next();
    proxy.dropAll();
    await expect(next).rejects.toMatchObject({ kind: 'disconnected' });
  });

  it('ends a stream at once, and only the wait tells that from the end of the output', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { signal } = bench;
    const id = await bench.container('dd if=/dev/zero bs=1M count=64 2>/dev/null; sleep 60');
    const stream = await bench.engine.containers.attach(id, { stdout: true, signal });
    const { exit } = await bench.engine.containers.expectExit(id, 'next-exit', { signal, deadlineMs: 60_000 });
    await bench.engine.containers.start(id, { signal });
    await sleep(200);
    // The reader has not begun, so the engine is held back in the middle of its output.
    proxy.dropAll();
    const [output] = await Promise.allSettled([collect(stream), stream.closed]);
    // A cut between two frames cannot be seen in the stream itself; inside a frame it is an error.
    expect(output.status === 'rejected' ? output.reason : output.value).toMatchObject(
      output.status === 'rejected' ? { kind: 'disconnected' } : { stderr: '' },
    );
    await expect(exit).rejects.toMatchObject({ kind: 'disconnected' });
  });

  it('leaves a create whose answer is lost open: it may have been done', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    const { signal, label } = bench;
    const [key = '', value] = label.split('=');
    const body = {
      Image: 'acode-test/busybox:1',
      Cmd: ['true'],
      Labels: { 'acode.test': 'engine-client', [key]: value },
    };
    proxy.onRequest(() => 'drop-reply');
    await expect(bench.engine.containers.create(body, { signal })).rejects.toMatchObject({ kind: 'disconnected' });
    proxy.onRequest(() => 'drop');
    await expect(bench.engine.containers.create(body, { signal })).rejects.toMatchObject({ kind: 'disconnected' });
    proxy.onRequest(undefined);
    // The first was created and the second never reached the engine.
    await expect(bench.engine.containers.list({ labels: [label], all: true, signal })).resolves.toHaveLength(1);
  });
});
