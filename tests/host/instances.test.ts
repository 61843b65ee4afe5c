// Hosts are independent of each other, keep to their limits, and leave nothing when they close.

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';

const MIB = 1024 ** 2;

describe.skipIf(withoutEngines)('two hosts with different policies in one process', () => {
  it('do not affect each other', async () => {
    await using small = await TestHost.open(mainEngine, {
      config: { sandbox: { images: { default: images.busybox }, defaults: { memory_mb: 64, timeout_seconds: 1 } } },
    });
    await using large = await TestHost.open(mainEngine, {
      config: {
        sandbox: {
          images: { default: images.busybox },
          defaults: { memory_mb: 200 },
          mounts: { workspace_mode: 'ro' },
        },
      },
    });
    const limit = [
      'sh',
      '-c',
      'cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; touch x',
    ];
    const [one, two, late] = await Promise.all([
      small.acode.run(limit),
      large.acode.run(limit),
      small.acode.run(['sleep', '9']),
    ]);
    expect([one.stdout.trim(), two.stdout.trim()]).toEqual([String(64 * MIB), String(200 * MIB)]);
    expect([one.exitCode, two.exitCode === 0, late.timedOut]).toEqual([0, false, true]);
    expect([existsSync(small.file('x')), existsSync(large.file('x'))]).toEqual([true, false]);
    await small.acode.close();
    expect((await large.acode.run(['echo', 'still here'])).stdout).toBe('still here\n');
  });
});

describe.skipIf(withoutEngines)('fifty runs at once through a limit of eight', () => {
  it('are all correct, none lost, never more than eight at a time', async () => {
    const gauges: number[] = [];
    const metrics = {
      increment: () => undefined,
      observe: () => undefined,
      gauge: (_: string, value: number) => gauges.push(value),
    };
    await using host = await TestHost.open(mainEngine, { maxConcurrent: 8, metrics });
    let peak = 0;
    let watching = true;
    const watch = (async () => {
      while (watching) {
        peak = Math.max(peak, (await host.containers()).filter(({ state }) => state === 'running').length);
        await new Promise(resolve => setTimeout(resolve, 15));
      }
    })();
    const results = await Promise.all(
      Array.from({ length: 50 }, (_, n) => host.acode.run(['sh', '-c', `echo ${n}; exit ${n}`])),
    );
    watching = false;
    await watch;
    expect(results.map(({ stdout, exitCode }) => [stdout, exitCode])).toEqual(
      Array.from({ length: 50 }, (_, n) => [`${n}\n`, n]),
    );
    expect(new Set(results.map(({ containerId }) => containerId)).size).toBe(50);
    expect(peak).toBeGreaterThan(3);
    expect(peak).toBeLessThanOrEqual(8);
    expect(Math.max(...gauges)).toBe(8);
  });

  it('refuses at once where the user wants no queue, and after the deadline where they do', async () => {
    const containers = { max_concurrent: 1, queue_timeout_seconds: 0.3 };
    for (const on_limit of ['reject', 'queue'] as const) {
      await using host = await TestHost.open(mainEngine, {
        config: { sandbox: { images: { default: images.busybox }, containers: { ...containers, on_limit } } },
      });
      await using busy = await host.acode.spawn(['cat']);
      await expect(host.acode.run(['true'])).rejects.toMatchObject({ code: 'ACODE-CTN-009', hint: /max_concurrent/ });
      await busy.closeStdin();
    }
  });
});

describe.skipIf(withoutEngines).each(engines)('closing a host on $name', engine => {
  it('cancels what runs, removes every sandbox, can be repeated, and ends all use', async () => {
    const host = await TestHost.open(engine);
    const running = [host.acode.run(['sleep', '60']), host.acode.run(['sleep', '60'])];
    const settled = Promise.allSettled(running);
    await expect.poll(async () => (await host.containers()).length).toBe(2);
    await Promise.all([host.acode.close(), host.acode.close()]);
    expect(
      (await settled).map(result =>
        result.status === 'rejected' ? (result.reason as { code: string }).code : 'resolved',
      ),
    ).toEqual(['ACODE-SBX-014', 'ACODE-SBX-014']);
    expect(await host.containers()).toEqual([]);
    await expect(host.acode.run(['true'])).rejects.toMatchObject({ code: 'ACODE-SBX-019' });
    await host[Symbol.asyncDispose]();
  });

  it('works with `await using`', async () => {
    const workspace = makeWorkspace();
    let seen: Acode;
    {
      await using acode = await Acode.open({
        engine: { socket: engine.socket },
        workspace,
        config: { sandbox: { images: { default: images.busybox } } },
      });
      seen = acode;
      expect((await acode.run(['echo', 'hi'])).stdout).toBe('hi\n');
    }
    await expect(seen.list()).rejects.toMatchObject({ code: 'ACODE-SBX-019' });
  });
});
