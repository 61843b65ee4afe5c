// How long sandboxes may take at most: the gates of the catalogue, far above what a calm machine shows. Every run prints the
// figures, and the long test suite, which has its machine for itself, holds them to the gates (`figure`).

import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { containerName } from '../../packages/sandbox/src/lifecycle/session.ts';
import { leftover } from '../ownership/victims.ts';
import { TestHost, engines, images, makeWorkspace, withEngine, withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';

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
    expect(await host.containers()).toEqual([]);
    figure(`sandbox made, ${engine.name}`, made, 2000);
    figure(`command in it, ${engine.name}`, started, 500);
    figure(`sandbox removed, ${engine.name}`, removed, 1000);
  });

  it('hello world is said within 1 s in a sandbox of its own, and an image that is there is found within 100 ms', async () => {
    await using host = await TestHost.open(engine, { pool: false });
    await host.acode.run(['true']);
    const said = await rounds(() =>
      timed(async () => expect((await host.acode.run(['echo', 'hello world'])).stdout).toBe('hello world\n')),
    );
    const found = await rounds(() =>
      timed(async () => expect(await host.acode.images.isPresent(images.busybox)).toBe(true)),
    );
    figure(`hello world, ${engine.name}`, said, 1000);
    figure(`image that is there, ${engine.name}`, found, 100);
  });

  it('five sandboxes made at once are there within 10 s', async () => {
    await using host = await TestHost.open(engine, { pool: false, maxConcurrent: 5 });
    await host.acode.run(['true']);
    const made: Sandbox[] = [];
    const took = await timed(async () => {
      made.push(...(await Promise.all(Array.from({ length: 5 }, () => host.acode.create()))));
    });
    figure(`five sandboxes made at once, ${engine.name}`, took, 10_000);
    expect(new Set(made.map(({ containerId }) => containerId)).size).toBe(5);
    await Promise.all(made.map(sandbox => sandbox.kill()));
  });

  it('a command that does not listen is stopped within 2 s and its grace', async () => {
    await using host = await TestHost.open(engine);
    const took = await timed(async () => {
      const result = await host.acode.run('trap "" TERM; sleep 600', { policy: { timeoutMs: 500 } });
      expect(result).toMatchObject({ timedOut: true, exitCode: null });
    });
    figure(`command that does not listen, time limit of 500 ms, ${engine.name}`, took, 500 + 2000 + 2000);
  });

  it('a line that is printed is heard within 50 ms', async () => {
    await using host = await TestHost.open(engine);
    await using sandbox = await host.acode.create();
    await using echo = await sandbox.commands.run(['cat'], { background: true });
    const lines = echo.stdout[Symbol.asyncIterator]();
    const there = await rounds(() =>
      timed(async () => {
        await echo.write('line\n');
        expect((await lines.next()).done).toBe(false);
      }),
    );
    figure(`line there and back, ${engine.name}`, there, 50);
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
    const mounted = await rounds(() =>
      timed(async () => expect((await host.acode.run(['ls', '/beside'], { policy })).exitCode).toBe(0)),
    );
    figure(`further mount, ${engine.name}`, mounted - plain, 500);
  });

  it('ten commands at once are over within 10 s, and cost less than 20 MB each', async () => {
    await using host = await TestHost.open(engine);
    await host.acode.run(['true']);
    const before = process.memoryUsage.rss();
    const took = await timed(() =>
      Promise.all(Array.from({ length: 10 }, () => host.acode.run(['echo', 'hello world']))),
    );
    figure(`ten commands at once, ${engine.name}`, took, 10_000);
    expect((process.memoryUsage.rss() - before) / 10).toBeLessThan(20 * 1024 ** 2);
  });

  it('an engine answers a question within 100 ms', async () => {
    await withEngine(engine, async direct => {
      const terms = { labels: ['acode.managed=true'], signal: AbortSignal.timeout(60_000) };
      const took = await rounds(() =>
        timed(async () => expect(await direct.containers.list(terms)).toBeInstanceOf(Array)),
      );
      figure(`answer of the engine, ${engine.name}`, took, 100);
    });
  });

  it('ten orphans are found within 5 s and removed within 15 s', async () => {
    await using host = await TestHost.open(engine);
    const { spec } = await host.acode.explain(['true']);
    const labels = { ...spec.identity.labels, 'acode.owner': randomUUID(), 'acode.session': 'gone' };
    await Promise.all(Array.from({ length: 10 }, () => leftover(engine, labels)));
    figure(`ten orphans found, ${engine.name}`, await timed(() => host.acode.list()), 5000);
    figure(`ten orphans removed, ${engine.name}`, await timed(() => host.acode.cleanup()), 15_000);
    expect((await host.acode.list()).filter(({ labels: own }) => own['acode.session'] === 'gone')).toEqual([]);
  });
});

it('a name is made within a millisecond', () => {
  const began = performance.now();
  const names = Array.from({ length: 1000 }, (_, sequence) => containerName({ session: 's', task: 't', sequence }));
  figure('thousand names', performance.now() - began, 1000);
  expect(new Set(names).size).toBe(1000);
});
