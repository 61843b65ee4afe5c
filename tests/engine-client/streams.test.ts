// Shows that a process's two output streams and its stdin are what they are in a terminal, on every API version.
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { Bench, collect, engines, withoutEngines } from './engines.ts';
import { EngineProxy } from '../support/proxy.ts';

const interactive = { OpenStdin: true, StdinOnce: true, AttachStdin: true };

describe.skipIf(withoutEngines).each(engines)('the streams of a container on $name', { concurrent: true }, engine => {
  it('are separated', async () => {
    await using bench = await Bench.at(engine);
    const id = await bench.container('for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 7');
    await expect(bench.run(id)).resolves.toEqual({
      stdout: 'out1\nout2\nout3\n',
      stderr: 'err1\nerr2\nerr3\n',
      statusCode: 7,
    });
  });

  it.each(['101', '200'])('echo all of stdin and end when it is half closed, after status %s', async status => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using bench = await Bench.at(engine, proxy.socket);
    // Without the request to upgrade the engine answers 200, as some engines always do.
    if (status === '200') {
      proxy.onRequest((_method, path, _body, head) =>
        path.includes('/attach') ? { head: head.replace(/^(upgrade|connection):.*\r\n/gim, '') } : undefined,
      );
    }
    const { signal } = bench;
    const { containers } = bench.engine;
    const id = await bench.container('cat; echo end >&2', interactive);
    const stream = await containers.attach(id, { stdin: true, stdout: true, stderr: true, signal });
    const { exit } = await containers.expectExit(id, 'next-exit', { signal, deadlineMs: 20_000 });
    await containers.start(id, { signal });
    const text = randomBytes(1_500_000).toString('hex');
    const output = collect(stream);
    for (let start = 0; start < text.length; start += 100_000) await stream.write(text.slice(start, start + 100_000));
    await stream.closeWrite();
    const { stdout, stderr } = await output;
    expect(stdout.length).toBe(text.length);
    expect(stdout === text).toBe(true);
    expect(stderr).toBe('end\n');
    await expect(exit).resolves.toEqual({ statusCode: 0 });
    await stream.closed;
  });

  it('make a writer wait when nobody in the container reads', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const { containers } = bench.engine;
    const id = await bench.container('sleep 60', interactive);
    await using stream = await containers.attach(id, { stdin: true, stdout: true, signal });
    await containers.start(id, { signal });
    let written = 0;
    const pouring = (async () => {
      while (written < 64) {
        await stream.write(Buffer.alloc(1024 * 1024));
        written++;
      }
    })();
    const first = await Promise.race([
      pouring.then(() => 'all written'),
      new Promise(resolve => setTimeout(() => resolve('waiting'), 500)),
    ]);
    expect(first).toBe('waiting');
    expect(written).toBeLessThan(8);
    stream.destroy();
    await expect(pouring).rejects.toMatchObject({ name: 'EngineError' });
  });

  it('are raw on a terminal', async () => {
    await using bench = await Bench.at(engine);
    const { signal } = bench;
    const id = await bench.container('echo out; echo err >&2', { Tty: true });
    const stream = await bench.engine.containers.attach(id, { stdout: true, stderr: true, signal });
    await bench.engine.containers.start(id, { signal });
    let text = '';
    for await (const chunk of stream) text += chunk.toString();
    expect(text).toBe('out\r\nerr\r\n');
  });
});
