// How long sandboxes may take at most, on every engine: the gates of the catalogue, far above what a calm machine shows. The
// figures themselves are the bench’s (docs/benchmarks.md).

import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { containerName } from '../../packages/sandbox/src/lifecycle/session.ts';
import { leftover } from '../ownership/victims.ts';
import { TestHost, engines, makeWorkspace, withEngine, withoutEngines } from '../support/engines.ts';

const ROUNDS = 5;

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

function median(times: readonly number[]): number {
  return times.toSorted((one, other) => one - other)[Math.floor(times.length / 2)] ?? Infinity;
}

async function rounds(work: () => Promise<number>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) times.push(await work());
  return median(times);
}

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  it('a sandbox is made within 2 s, starts its command within half a second, and is gone within 1 s', async () => {
    await using host = await TestHost.open(engine, { pool: false });
    await host.acode.run(['true']);
    const made = await rounds(async () => {
      let fresh: Sandbox | undefined;
      const took = await timed(async () => (fresh = await host.acode.create()));
      await fresh?.kill();
      return took;
    });
    const sandbox = await host.acode.create();
    const started = await rounds(() => timed(() => sandbox.commands.run(['true'])));
    const removed = await timed(() => sandbox.kill());
    expect({ made: made < 2000, started: started < 500, removed: removed < 1000 }).toEqual({
      made: true,
      started: true,
      removed: true,
    });
  });

  it('a command that does not listen is stopped within 2 s and its grace', async () => {
    await using host = await TestHost.open(engine);
    const took = await timed(() => host.acode.run('trap "" TERM; sleep 60', { policy: { timeoutMs: 500 } }));
    expect(took).toBeLessThan(500 + 2000 + 2000);
  });

  it('a line that is printed is heard within 50 ms', async () => {
    await using host = await TestHost.open(engine);
    await using sandbox = await host.acode.create();
    await using echo = await sandbox.commands.run(['cat'], { background: true });
    const lines = echo.stdout[Symbol.asyncIterator]();
    const there = await rounds(() =>
      timed(async () => {
        await echo.write('line\n');
        await lines.next();
      }),
    );
    expect(there).toBeLessThan(50);
  });

  it('a further mount costs less than half a second', async () => {
    const beside = makeWorkspace();
    await using host = await TestHost.open(engine, {
      config: { sandbox: { mounts: { allowed_host_roots: [beside] } } },
      pool: false,
    });
    const policy = { mounts: [{ source: beside, target: '/beside', readOnly: true }] };
    await host.acode.run(['true']);
    const plain = await rounds(() => timed(() => host.acode.run(['true'])));
    const mounted = await rounds(() => timed(() => host.acode.run(['true'], { policy })));
    expect(mounted - plain).toBeLessThan(500);
  });

  it('ten commands at once are over within 10 s, and cost less than 20 MB each', { timeout: 60_000 }, async () => {
    await using host = await TestHost.open(engine);
    await host.acode.run(['true']);
    const before = process.memoryUsage.rss();
    const took = await timed(() =>
      Promise.all(Array.from({ length: 10 }, () => host.acode.run(['echo', 'hello world']))),
    );
    expect(took).toBeLessThan(10_000);
    expect((process.memoryUsage.rss() - before) / 10).toBeLessThan(20 * 1024 ** 2);
  });

  it('an engine answers a question within 100 ms', async () => {
    await withEngine(engine, async direct => {
      const terms = { labels: ['acode.managed=true'], signal: AbortSignal.timeout(10_000) };
      expect(await rounds(() => timed(() => direct.containers.list(terms)))).toBeLessThan(100);
    });
  });

  it('ten orphans are found within 5 s and removed within 15 s', { timeout: 60_000 }, async () => {
    await using host = await TestHost.open(engine);
    const { spec } = await host.acode.explain(['true']);
    const labels = { ...spec.identity.labels, 'acode.owner': randomUUID(), 'acode.session': 'gone' };
    await Promise.all(Array.from({ length: 10 }, () => leftover(engine, labels)));
    expect(await timed(() => host.acode.list())).toBeLessThan(5000);
    const took = await timed(() => host.acode.cleanup());
    expect(took).toBeLessThan(15_000);
    expect((await host.acode.list()).filter(({ labels: own }) => own['acode.session'] === 'gone')).toEqual([]);
  });
});

it('a name is made within a millisecond', () => {
  const began = performance.now();
  for (let sequence = 0; sequence < 1000; sequence += 1) containerName({ session: 's', task: 't', sequence });
  expect((performance.now() - began) / 1000).toBeLessThan(1);
});
