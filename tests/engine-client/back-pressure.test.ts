// Shows that a slow reader slows the container down instead of filling our memory, where dockerode buffers without bound.
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { demultiplex } from '../../packages/sandbox/src/isolation/docker/engine/demultiplex.ts';
import type { HijackedStream } from '../../packages/sandbox/src/isolation/docker/engine/hijack.ts';
import { Bench, engines, withoutEngines } from './engines.ts';

const megabyte = 1024 * 1024;
const rss = () => process.memoryUsage.rss();

async function printing(bench: Bench, megabytesPerStream: number): Promise<{ id: string; stream: HijackedStream }> {
  const zeros = `dd if=/dev/zero bs=1M count=${megabytesPerStream}`;
  const id = await bench.container(`${zeros} 2>/dev/null; ${zeros} >&2 2>/dev/null`);
  const { signal } = bench;
  const stream = await bench.engine.containers.attach(id, { stdout: true, stderr: true, signal });
  await bench.engine.containers.start(id, { signal });
  return { id, stream };
}

/** Reads with pauses; gives the bytes per stream and the highest memory on the way. */
async function readSlowly(stream: HijackedStream): Promise<{ stdout: number; stderr: number; peak: number }> {
  const read = { stdout: 0, stderr: 0, peak: 0 };
  let pieces = 0;
  const slowly = (name: 'stdout' | 'stderr') => (data: Buffer) => {
    read[name] += data.length;
    read.peak = Math.max(read.peak, rss());
    return ++pieces % 8 === 0 ? sleep(1) : undefined;
  };
  await demultiplex(stream, { stdout: slowly('stdout'), stderr: slowly('stderr') });
  return read;
}

describe.skipIf(withoutEngines).each(engines)('a slow reader on $name', engine => {
  it('of 200 MB keeps the memory of this process within 40 MB', async () => {
    await using bench = await Bench.at(engine);
    // What the first use of the code costs is no buffering.
    await readSlowly((await printing(bench, 10)).stream);

    const before = rss();
    const { id, stream } = await printing(bench, 100);
    // Nobody reads: what the engine can push is what fits into the buffers on the way, and the container waits.
    await sleep(500);
    expect(rss() - before).toBeLessThan(10 * megabyte);
    expect((await bench.engine.containers.inspect(id, bench)).State.Running).toBe(true);

    const { stdout, stderr, peak } = await readSlowly(stream);
    expect({ stdout, stderr }).toEqual({ stdout: 100 * megabyte, stderr: 100 * megabyte });
    expect(peak - before).toBeLessThan(40 * megabyte);
  });
});
