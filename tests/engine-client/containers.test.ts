// Shows what the container endpoints do on real engines, and what they make of things that are not there.
import { describe, expect, it } from 'vitest';
import { Bench, engines, images, withoutEngines } from './engines.ts';

describe.skipIf(withoutEngines).each(engines)('containers on $name', { concurrent: true }, engine => {
  it('are not created twice under one name', async () => {
    await using bench = await Bench.at(engine);
    const id = await bench.container('true');
    const { Name } = await bench.engine.containers.inspect(id, bench);
    const body = { Image: images.busybox, Cmd: ['true'] };
    const again = bench.engine.containers.create(body, { name: Name.slice(1), signal: bench.signal });
    await expect(again).rejects.toMatchObject({ kind: 'status', status: 409 });
  });

  it('exit under the eyes of a wait that was there before the start, however fast they are', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const id = await bench.container('exit 42');
    const wait = await bench.engine.containers.expectExit(id, 'next-exit', { signal, deadlineMs: 60_000 });
    await bench.engine.containers.start(id, { signal });
    await expect(wait.exit).resolves.toEqual({ statusCode: 42 });
    await expect(bench.engine.containers.wait(id, 'not-running', { signal, deadlineMs: 60_000 })).resolves.toEqual({
      statusCode: 42,
    });
  });

  it('count as not running before their start, so only next-exit waits for one', async () => {
    await using bench = await Bench.at(engine);
    const id = await bench.container('exit 42');
    const wait = (condition: 'not-running' | 'next-exit', deadlineMs: number) =>
      bench.engine.containers.wait(id, condition, { signal: bench.signal, deadlineMs });
    await expect(wait('not-running', 5000)).resolves.toEqual({ statusCode: 0 });
    await expect(wait('next-exit', 200)).rejects.toMatchObject({ kind: 'timeout' });
  });

  it('may be started, stopped and removed again and again, so a lost answer may be repeated', async () => {
    await using bench = await Bench.at(engine);
    const { containers } = bench.engine;
    const id = await bench.container('trap "exit 5" TERM; while :; do usleep 10000; done');
    await containers.start(id, bench);
    await containers.start(id, bench);
    await containers.stop(id, 5, bench);
    await containers.stop(id, 5, bench);
    const { signal } = bench;
    const removals = Array.from({ length: 4 }, () => containers.remove(id, { force: true, signal }));
    await Promise.all(removals);
    await containers.remove(id, { force: true, signal });
    await expect(containers.inspect(id, bench)).rejects.toMatchObject({ kind: 'status', status: 404 });
  });

  it.each(['../info', 'a/../../info', ''])('are never found under %j', async id => {
    await using bench = await Bench.at(engine);
    await expect(bench.engine.containers.inspect(id, bench)).rejects.toMatchObject({
      kind: 'protocol',
    });
  });

  it.each(['x?force=true', 'x#y', 'x%2e%2e', 'x y'])('do not take %j for anything but a name', async id => {
    await using bench = await Bench.at(engine);
    await expect(bench.engine.containers.inspect(id, bench)).rejects.toMatchObject({
      status: 404,
      engineMessage: expect.stringContaining(id),
    });
  });
});
