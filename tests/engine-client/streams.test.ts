import { describe, expect, it } from 'vitest';
import { Bench, engines, withoutEngines } from './engines.ts';

const interactive = { OpenStdin: true, StdinOnce: true, AttachStdin: true };

describe.skipIf(withoutEngines).each(engines)('the streams of a container on $name', { concurrent: true }, engine => {
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
});
