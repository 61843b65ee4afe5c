// What a run brings out of its sandbox is what its command left: nothing goes on writing while it is taken.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openHost } from '../conformance/host.ts';
import { withoutEngines } from '../support/engines.ts';
import { places } from './places.ts';

// A program that leaves its command’s process group and writes on, beside a file that takes a while to bring out.
const LEAVES_A_WRITER =
  'setsid sh -c "while :; do echo more >> /out/grows; sleep 0.005; done" >/dev/null 2>&1 & ' +
  'head -c 40000000 /dev/zero > /out/large; while ! [ -s /out/grows ]; do sleep 0.01; done';
const WANTED = ['grows', 'large', 'grows'].map((from, at) => ({ from, to: `brought/${at}` }));

describe.skipIf(withoutEngines).each(places)('artifacts on $name', place => {
  const bringOut = async (command: string, timeoutMs?: number) => {
    await using host = await openHost(place);
    const policy = timeoutMs === undefined ? {} : { policy: { timeoutMs } };
    const result = await host.acode.run(command, { artifacts: WANTED, ...policy });
    const sizes = await Promise.all(WANTED.map(async ({ to }) => (await readFile(join(host.workspace, to))).length));
    return { result, sizes };
  };

  it('are what was there when the command ended', async () => {
    const { result, sizes } = await bringOut(LEAVES_A_WRITER);
    expect(result.artifacts?.map(({ error }) => error)).toEqual([undefined, undefined, undefined]);
    expect(sizes[1]).toBe(40_000_000);
    expect(sizes[2]).toBe(sizes[0]);
  });

  it('are what was there when its time was over', async () => {
    const { result, sizes } = await bringOut(`${LEAVES_A_WRITER}; sleep 600`, 5000);
    expect(result.timedOut).toBe(true);
    expect(sizes[2]).toBe(sizes[0]);
  });

  // The control: such a program does write on after its command, in a persistent sandbox.
  it('would grow otherwise', async () => {
    await using host = await openHost(place);
    await using sandbox = await host.acode.create();
    await sandbox.commands.run(LEAVES_A_WRITER.replaceAll('/out', '/tmp').replace('40000000', '1'));
    const sizes: number[] = [];
    for (let at = 0; at < 2; at += 1) {
      sizes.push((await sandbox.files.stat('/tmp/grows')).size);
      await new Promise(resolve => void setTimeout(resolve, 200));
    }
    expect(sizes[1]).toBeGreaterThan(sizes[0] ?? Infinity);
  });
});
