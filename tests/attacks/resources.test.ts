// Group E: taking so much of the machine that nothing is left for others.

import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { images, withEngine, withoutEngines } from '../support/engines.ts';
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

  attack(target, 'E1', 'stopped at the limit, while the host answers', async () => {
    // Processes that only wait: the control shows that nothing else would stop them.
    const bomb =
      'i=0; while [ $i -lt 300 ]; do sleep 4 & i=$((i+1)); done 2>/dev/null; ls -d /proc/[0-9]* | wc -l; kill $(jobs -p) 2>/dev/null; true';
    // gVisor’s own kernel needs some of them.
    const limits = { pids: gvisor ? 120 : 30 };
    const running = arena.sh(bomb, { policy: { limits, timeoutMs: 20_000 } });
    const before = performance.now();
    await withEngine(target.engine, engine =>
      engine.containers.list({ labels: [], signal: AbortSignal.timeout(10_000) }),
    );
    const asked = performance.now() - before;
    const result = await running;
    expect(result.stdout === '' || Number(result.stdout) <= limits.pids).toBe(true);
    if (!gvisor) expect(result.limitExceeded).toBe('pids');
    expect(asked).toBeLessThan(5000);
    expect((await arena.sh('echo fine', { policy: { limits } })).stdout).toBe('fine\n');
    const { stdout } = await weak(bomb);
    expect(Number(stdout)).toBeGreaterThan(300);
    return {
      observed: `${result.limitExceeded === undefined ? 'the sandbox ended' : `limitExceeded: ${result.limitExceeded}`}; engine asked in ${Math.round(asked)} ms`,
      control: `${stdout.trim()} processes`,
    };
  });

  attack(
    target,
    'E2',
    'reported although the exit status is 0',
    async () => {
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
    },
    { timeoutMs: 90_000 },
  );

  attack(target, 'E3', 'ends at the set size', async () => {
    const fill =
      'dd if=/dev/zero of=$d/small bs=100k count=30 2>/dev/null && echo ok; dd if=/dev/zero of=$d/big bs=100k count=120; stat -c %s $d/big';
    const seen: string[] = [];
    for (const directory of ['/tmp', '$HOME']) {
      const { stdout, stderr } = await arena.sh(`d=${directory}; ${fill}`, {
        policy: { limits: { tmpBytes: 8 * MIB } },
      });
      const [ok, size] = stdout.split('\n');
      expect(ok).toBe('ok');
      expect(Number(size)).toBeLessThan(8 * MIB);
      expect(stderr).toMatch(/No space left/);
      seen.push(String(size));
    }
    // Nor is there another place: the root is read-only, also where the image lets everybody write.
    expect((await arena.sh('echo x > /var/tmp/x && echo wrote')).stdout).toBe('');
    expect((await weak('echo x > /var/tmp/x && echo wrote')).stdout).toBe('wrote\n');
    const { stdout } = await weak(`d=/tmp; ${fill}`, { Tmpfs: { '/tmp': '' } });
    expect(stdout).toBe('ok\n12288000\n');
    return { observed: `ENOSPC after ${seen.join(' and ')} bytes`, control: 'an unsized one takes all 12288000' };
  });

  attack(target, 'E4', 'end before the memory does', async () => {
    const make = 'mkdir /tmp/d; cd /tmp/d; seq 1 5000 | xargs -n 100 touch 2>/dev/null; ls | wc -l';
    const { stdout } = await arena.sh(make, { policy: { limits: { tmpBytes: MIB } } });
    expect(Number(stdout)).toBeGreaterThan(500);
    expect(Number(stdout)).toBeLessThan(2000);
    const control = await weak(make, { Tmpfs: { '/tmp': 'size=1m' } });
    expect(Number(control.stdout)).toBe(5000);
    return { observed: `ENOSPC after ${stdout.trim()} files`, control: '5000 where nobody counts' };
  });

  attack(target, 'E5', 'sized', async () => {
    const fill =
      'head -c 200000000 /dev/zero > /dev/shm/big; stat -c %s /dev/shm/big; rm /dev/shm/big; echo x > /dev/shm/small && echo ok';
    const { stdout } = await arena.sh(fill, { policy: { limits: { memoryBytes: 512 * MIB } } });
    const [size, ok] = stdout.split('\n');
    expect(Number(size)).toBeLessThanOrEqual(64 * MIB);
    expect(ok).toBe('ok');
    const control = await weak(fill, { ShmSize: 256 * MIB });
    expect(control.stdout).toBe('200000000\nok\n');
    return { observed: `ENOSPC after ${size} bytes`, control: 'a larger one takes 200000000' };
  });

  attack(
    target,
    'E7',
    'capped, drained, and not on the engine’s disk',
    async () => {
      const before = process.memoryUsage().rss;
      // The whole gigabyte where every row is tried; elsewhere enough to show that the engine behaves the same.
      const megabytes = target.name === MAIN.name ? 1000 : 100;
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
      await using talker = await arena.spawn(['sh', '-c', 'echo kept; sleep 20']);
      for await (const chunk of talker.stdout) if (Buffer.from(chunk).includes('kept')) break;
      const [id = ''] = await arena.running();
      const { HostConfig } = await withEngine(target.engine, engine =>
        engine.containers.inspect(id, { signal: AbortSignal.timeout(10_000) }),
      );
      expect(HostConfig['LogConfig']).toMatchObject({ Type: 'none' });
      await talker.kill('SIGKILL');
      await talker.result;
      return {
        observed: `100000 bytes kept, ${dropped.stdout} dropped, memory +${Math.max(0, Math.round(grown))} MiB`,
        control: 'without the cap every byte would be held',
      };
    },
    { timeoutMs: 90_000 },
  );

  attack(target, 'E8', 'end at the limit', async () => {
    const open =
      'import os,sys\nn=0\ntry:\n  while n < 3000: os.open("/dev/null", 0); n += 1\nexcept OSError as e: print(e.strerror)\nprint(n)';
    const { stdout } = await arena.python(open, { policy: { limits: { openFiles: 64 } } });
    expect(stdout).toMatch(/^Too many open files\n(?:[3-6]\d)\n$/);
    // Nor can the limit be raised from inside.
    const raised = await arena.sh('ulimit -n 4096 2>/dev/null; ulimit -n', { policy: { limits: { openFiles: 64 } } });
    expect(raised.stdout).toBe('64\n');
    const control = await runWeakened(target.engine, {
      image: TOOLS,
      command: ['python3', '-c', open],
      host: { Ulimits: [{ Name: 'nofile', Soft: 8000, Hard: 8000 }] },
    });
    expect(control.stdout).toBe('3000\n');
    return { observed: `EMFILE after ${stdout.split('\n')[1]}`, control: '3000 where the limit is higher' };
  });

  attack(target, 'E9', 'dead within the grace', async () => {
    const stubborn = 'trap "" TERM INT HUP; echo up; while :; do sleep 0.1; done';
    const before = performance.now();
    const result = await arena.sh(stubborn, { policy: { timeoutMs: 1000 } });
    const took = performance.now() - before;
    expect(result).toMatchObject({ timedOut: true, exitCode: null, stdout: 'up\n' });
    expect(took).toBeLessThan(10_000);
    const polite = await arena.sh('trap "echo bye; exit 0" TERM; while :; do sleep 0.1; done', {
      policy: { timeoutMs: 1000 },
    });
    expect(polite.stdout).toBe('bye\n');
    // Asked nicely and nothing more, it goes on.
    const { stdout } = await weak(
      `sh -c '${stubborn}' & p=$!; sleep 0.5; kill -TERM $p; sleep 0.5; kill -0 $p && echo alive; kill -9 $p`,
    );
    expect(stdout).toContain('alive');
    return { observed: `gone after ${Math.round(took)} ms`, control: 'SIGTERM alone leaves it alive' };
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
    const before = performance.now();
    const result = await arena.sh(make, { artifacts });
    const took = performance.now() - before;
    const [tree, file, fine] = result.artifacts ?? [];
    expect([tree?.error?.code, file?.error?.code]).toEqual(['ACODE-FIL-003', 'ACODE-FIL-003']);
    expect(fine).toMatchObject({ files: 1, bytes: 5 });
    expect(readdirSync(join(arena.workspace, 'arrived'))).toEqual(['fine']);
    // None of the ten gigabytes has come.
    expect(took).toBeLessThan(30_000);
    // What it says is what a reader would have got, of next to nothing; gVisor does not tell the difference.
    if (!gvisor) expect(Number.parseInt(result.stdout, 10)).toBeLessThan(1024);
    const { stdout } = await weak('truncate -s 10G /tmp/bomb; stat -c %s /tmp/bomb');
    expect(stdout.trim()).toBe(String(10 * 1024 ** 3));
    rmSync(join(arena.workspace, 'arrived'), { recursive: true });
    return { observed: `ACODE-FIL-003 after ${Math.round(took)} ms, nothing written`, control: 'a file of 10 GiB' };
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
