// Group E: taking so much of the machine that nothing is left for others.

import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { images, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { everything } from '../support/targets.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { MAIN, TOOLS, targetsOf } from './targets.ts';
import { runWeakened } from './weakened.ts';

const MIB = 1024 ** 2;

describe.skipIf(withoutEngines).each(targetsOf('resources'))('resources, on $name', target => {
  let arena: Arena;
  const gvisor = target.runtime === 'runsc';
  beforeAll(async () => {
    arena = await Arena.open(target);
  });
  afterAll(() => arena[Symbol.asyncDispose]());

  const weak = (script: string, host: Readonly<Record<string, unknown>> = {}, image = images.busybox) =>
    runWeakened(target.engine, { command: ['sh', '-c', script], image, host });

  attack(target, 'E2', 'reported although the exit status is 0', async () => {
    const hog = 'python3 -c "x = bytearray(300 * 1024 * 1024)"; echo survived; exit 0';
    const limits = { memoryBytes: 96 * MIB };
    const result = await arena.run(['sh', '-c', hog], { policy: { image: TOOLS, limits, timeoutMs: 30_000 } });
    expect(result).toMatchObject({ oomKilled: true, limitExceeded: 'memory' });
    // gVisor has one process on the host, so all of it goes.
    if (!gvisor) expect(result).toMatchObject({ exitCode: 0, stdout: 'survived\n' });
    const fine = await arena.run(['python3', '-c', 'x = bytearray(20 * 1024 * 1024); print(len(x))'], {
      policy: { image: TOOLS, limits },
    });
    expect(fine).toMatchObject({ oomKilled: false, exitCode: 0 });
    const swap = await arena.sh(
      'cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes /sys/fs/cgroup/memory.swap.max 2>/dev/null',
      { policy: { limits } },
    );
    if (!gvisor && /^\d+/.test(swap.stdout)) expect(Number(swap.stdout)).toBeLessThanOrEqual(limits.memoryBytes);
    const { stdout, exitCode } = await weak(
      hog.replace('"x', '"import os; x').replace('; echo', ' && echo big; echo'),
      {},
      TOOLS,
    );
    expect([stdout, exitCode]).toEqual(['big\nsurvived\n', 0]);
    return {
      observed: `oomKilled: true, exit ${result.exitCode}`,
      control: '300 MiB are given where there is no limit',
    };
  });

  attack(target, 'E6', 'ended at the disk limit of its fork, and what it wrote can be removed', async () => {
    const limit = 16 * MIB;
    const write = (last: string): string => `dd if=/dev/zero of=big bs=1M count=96 2>/dev/null; wc -c < big; ${last}`;
    const fork = { workspace: 'fork', fork: 'filled' } as const;
    const ended = await arena.sh(write('sleep 60; echo survived'), { policy: { ...fork, disk: { bytes: limit } } });
    expect(ended).toMatchObject({ exitCode: 137, limitExceeded: 'disk' });
    expect(ended.stdout).not.toContain('survived');
    const { changes } = await arena.acode.forks.diff({ fork: 'filled' });
    const taken = changes.find(({ path }) => path === 'big')?.bytes?.after ?? 0;
    await arena.acode.forks.discard('filled');
    const control = await arena.sh(write('rm big; echo survived'), { policy: { workspace: 'direct' } });
    expect(control.stdout).toBe(`${96 * MIB}\nsurvived\n`);
    return {
      observed: `ended after ${taken} bytes, and removed by an ordinary user`,
      control: 'in a direct mount the same command writes all of it',
    };
  });

  attack(target, 'E7', 'capped, drained, and not on the engine’s disk', async () => {
    const before = process.memoryUsage().rss;
    // The whole gigabyte in the long test suite; a tenth of it shows the same.
    const megabytes = target.name === MAIN.name && everything ? 1000 : 100;
    const { stdout, dropped, exitCode, limitExceeded } = await arena.sh(
      `dd if=/dev/zero bs=1M count=${megabytes} 2>/dev/null | tr '\\0' x`,
      {
        policy: { limits: { outputBytes: 100_000 }, timeoutMs: 55_000 },
      },
    );
    expect(exitCode).toBe(0);
    expect(stdout).toHaveLength(100_000);
    expect(dropped.stdout).toBe(megabytes * MIB - 100_000);
    expect(limitExceeded).toBe('output');
    const grown = (process.memoryUsage().rss - before) / MIB;
    expect(grown).toBeLessThan(150);
    // The engine would keep a copy on its disk; asked for its log, it has none.
    await using talker = await arena.spawn(['sh', '-c', 'echo kept; sleep 600']);
    for await (const chunk of talker.stdout) if (Buffer.from(chunk).includes('kept')) break;
    const [id = ''] = await arena.running();
    const { HostConfig } = await withEngine(target.engine, engine =>
      engine.containers.inspect(id, { signal: AbortSignal.timeout(60_000) }),
    );
    expect(HostConfig['LogConfig']).toMatchObject({ Type: 'none' });
    await talker.kill('SIGKILL');
    await talker.result;
    return {
      observed: `100000 bytes kept, ${dropped.stdout} dropped, memory +${Math.max(0, Math.round(grown))} MiB`,
      control: 'without the cap every byte would be held',
    };
  });

  attack(target, 'E12', 'files arrive, and nothing that leads elsewhere', async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'acode-elsewhere-'));
    const secret = join(elsewhere, 'secret');
    writeFileSync(secret, 'canary');
    try {
      // A link out, a name below it, a FIFO, and a way into the workspace that has become a link.
      const make = `mkdir -p /out/d/sub; echo fine >/out/d/sub/file; ln -s ${elsewhere} /out/d/link; ln -s ${secret} /out/d/stolen; mkfifo /out/d/pipe; ln -s ${elsewhere} way`;
      const artifacts = [
        { from: 'd', to: 'arrived' },
        { from: 'd/sub/file', to: 'way/planted' },
      ];
      const { artifacts: reports = [], exitCode } = await arena.sh(make, { artifacts });
      expect(exitCode).toBe(0);
      expect(readFileSync(join(arena.workspace, 'arrived/sub/file'), 'utf8')).toBe('fine\n');
      expect(readdirSync(join(arena.workspace, 'arrived'))).toEqual(['sub']);
      expect(reports[0]?.skipped.map(({ path }) => path).sort()).toEqual(['link', 'pipe', 'stolen']);
      expect(reports[1]?.error?.code).toMatch(/^E(?:LOOP|NOTDIR)$/);
      expect(readdirSync(elsewhere)).toEqual(['secret']);
      // Unpacked and written the usual way, both lead out.
      const plain = join(elsewhere, 'plain');
      mkdirSync(plain);
      symlinkSync(secret, join(plain, 'stolen'));
      writeFileSync(join(arena.workspace, 'way', 'planted'), 'out');
      expect(readFileSync(join(plain, 'stolen'), 'utf8')).toBe('canary');
      expect(readdirSync(elsewhere)).toContain('planted');
      return {
        observed: `links and FIFO left out, a way through a link ${reports[1]?.error?.code ?? ''}`,
        control: 'the same paths written plainly lead out of the workspace',
      };
    } finally {
      rmSync(elsewhere, { recursive: true });
      for (const name of ['arrived', 'way']) rmSync(join(arena.workspace, name), { recursive: true, force: true });
    }
  });

  attack(target, 'E13', 'refused by what it says it is, before any of it comes', async () => {
    const make =
      'mkdir /out/d; truncate -s 10G /out/d/bomb; truncate -s 10G /out/bomb; echo fine >/out/fine; du -k /out/bomb';
    const artifacts = ['d', 'bomb', 'fine'].map(from => ({ from, to: `arrived/${from}` }));
    await using proxy = await EngineProxy.start(target.engine.socket);
    await using watched = await Arena.open(target, { engine: { socket: proxy.socket } });
    const result = await watched.sh(make, { artifacts });
    // The bytes are counted as they come too, and then refused: what they say keeps them from coming.
    expect(proxy.sentBytes).toBeLessThan(64 * MIB);
    const [tree, file, fine] = result.artifacts ?? [];
    expect([tree?.error?.code, file?.error?.code]).toEqual(['ACODE-FIL-003', 'ACODE-FIL-003']);
    expect(fine).toMatchObject({ files: 1, bytes: 5 });
    expect(readdirSync(join(watched.workspace, 'arrived'))).toEqual(['fine']);
    // What it says is what a reader would have got, of next to nothing; gVisor does not tell the difference.
    if (!gvisor) expect(Number.parseInt(result.stdout, 10)).toBeLessThan(1024);
    const { stdout } = await weak('truncate -s 10G /tmp/bomb; stat -c %s /tmp/bomb');
    expect(stdout.trim()).toBe(String(10 * 1024 ** 3));
    return { observed: 'ACODE-FIL-003, nothing written', control: 'a file of 10 GiB' };
  });

  attack(target, 'E14', 'covered by memory of a known size', async () => {
    const write =
      'touch /data/x; head -c 30000000 /dev/zero > /data/big; stat -c %s /data/big; grep " /data " /proc/mounts | cut -d" " -f3';
    const { stdout } = await arena.sh(write, { policy: { image: images.hostile, limits: { tmpBytes: 4 * MIB } } });
    const [size, type] = stdout.trim().split('\n');
    expect(Number(size)).toBeLessThanOrEqual(4 * MIB);
    expect(type).toBe('tmpfs');
    const control = await runWeakened(target.engine, {
      image: images.hostile,
      command: ['sh', '-c', write],
      host: { ReadonlyRootfs: true },
      config: { WorkingDir: '/' },
    });
    expect(control.stdout.split('\n')[0]).toBe('30000000');
    return {
      observed: `tmpfs, ENOSPC after ${size} bytes`,
      control: 'a volume on the engine’s disk takes 30000000, as root',
    };
  });
});
