// The disk limit of a fork: a command that reaches it is ended, and what it left can be removed. Disk throughput: what the kernel has.

import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import { targets } from '../conformance/targets.ts';
import { TestHost, engines, images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { fingerprint } from './project.ts';

const STORE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
const MIB = 1024 ** 2;
const LIMIT = { workspace: 'fork', disk: { bytes: 16 * MIB } } as const;
const writer = (last: string): string => `dd if=/dev/zero of=big bs=1M count=48 2>&1; ${last}`;

const chosen = targets.filter(
  ({ name, level, absent }) =>
    !absent && (level === 'bubblewrap' ? existsSync('/usr/bin/bwrap') : name === `${mainEngine.name}/runc`),
);

describe.each(chosen)('the disk limit of a fork on $name', target => {
  it('ends a command that reaches it; without a limit, the same command writes all', async () => {
    await using host = await openHost(target);
    const run = (script: string, policy: PolicyInput): Promise<RunResult> =>
      host.acode.run(['sh', '-c', script], {
        policy: policyFrom({ ...host.image(images.debian), ...policy }),
        risk: 'low',
      });
    const free = await run(`${writer('wc -c < big')}; fallocate -l 1m held; wc -c < held`, { workspace: 'fork' });
    expect(free).toMatchObject({ exitCode: 0, denials: [], stdout: expect.stringMatching(/50331648\n1048576\n$/) });

    const ended = await run(`fallocate -l 1m held; ${writer('sleep 60; echo survived')}`, {
      ...LIMIT,
      fork: 'limited',
    });
    expect(ended).toMatchObject({ exitCode: 137, timedOut: false, limitExceeded: 'disk' });
    expect(ended.stdout).not.toContain('survived');
    expect(ended.stderr).toMatch(/fallocate.*Operation not supported/);
    expect(ended.denials).toMatchObject([
      {
        rule: 'limit.disk',
        value: 16 * MIB,
        setBy: { layer: 'request', where: 'policy.disk' },
        effect: { kind: 'command-ended' },
        remedies: [{ kind: 'use-less' }, { kind: 'raise-limit', field: 'policy.disk.bytes', suggested: 32 * MIB }],
      },
    ]);
    // What it wrote is there, and counts: the next command is refused until some of it is taken back.
    expect((await host.acode.forks.diff({ fork: 'limited' })).changes.map(({ path }) => path)).toEqual(['big', 'held']);
    await expect(run('true', { ...LIMIT, fork: 'limited' })).rejects.toMatchObject({
      code: 'ACODE-FRK-020',
      context: { problem: 'limit' },
    });
    await host.acode.forks.undo({ fork: 'limited' });
    expect((await run('echo fits > small', { ...LIMIT, fork: 'limited' })).exitCode).toBe(0);
    const ids = (await host.acode.forks.list()).map(({ id }) => id);
    expect(readdirSync(STORE)).toEqual(expect.arrayContaining(ids));
    for (const id of ids) await host.acode.forks.discard(id);
    expect(readdirSync(STORE).filter(name => ids.includes(name.replace('.', '')))).toEqual([]);
  });
});

describe.skipIf(withoutEngines).each(everything ? engines : [mainEngine])('a hard disk limit on $name', engine => {
  const HARD = { workspace: 'fork', fork: 'hard', disk: { bytes: 16 * MIB, hard: true } } as const;

  it('gives “no space left”, also to fallocate and for a large file that is copied up; what fits is in the fork', async () => {
    await using host = await TestHost.open(engine);
    const run = (script: string, policy: PolicyInput = HARD): Promise<RunResult> =>
      host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, ...policy }) });
    mkdirSync(host.file('old'));
    writeFileSync(host.file('old/a'), 'a\n');
    writeFileSync(host.file('large'), Buffer.alloc(24 * MIB));
    const before = fingerprint(host.workspace);
    const script = `rm -r old; mkdir old; echo b > old/b; fallocate -l 32m held; echo x >> large; truncate -s 100m hole; rm held
      dd if=/dev/zero of=big bs=1M count=48; echo ended`;
    const result = await run(script);
    expect(result).toMatchObject({ exitCode: 0, stdout: 'ended\n' });
    expect(result.stderr.match(/No space left on device/g)).toHaveLength(3);
    expect(result.denials).toMatchObject([
      { rule: 'limit.disk', value: 16 * MIB, setBy: { where: 'policy.disk' }, suspected: expect.any(String) },
    ]);
    const { changes } = await host.acode.forks.diff({ fork: 'hard' });
    const of = (path: string) => changes.find(change => change.path === path);
    expect(changes.map(({ change, path }) => `${change} ${path}`).sort()).toEqual([
      'added big',
      'added hole',
      'added old/b',
      'deleted old/a',
    ]);
    expect(of('big')?.bytes?.after).toBeGreaterThan(12 * MIB);
    expect(of('big')?.bytes?.after).toBeLessThanOrEqual(16 * MIB);
    // What earlier commands wrote counts, as for a limit that is watched.
    await expect(run('echo more > more')).rejects.toMatchObject({ code: 'ACODE-FRK-020' });
    await host.acode.forks.undo({ fork: 'hard' });
    expect((await run('ls; echo fits > small')).stdout).toBe('large\nold\n');
    expect(fingerprint(host.workspace)).toBe(before);
    // A command that is cancelled leaves what it wrote, too.
    const stop = new AbortController();
    const cancelled = await host.acode.spawn(['sh', '-c', 'echo 1 > written; echo up; sleep 100'], {
      policy: policyFrom({ image: images.debian, ...HARD }),
      signal: stop.signal,
    });
    await cancelled.stdout[Symbol.asyncIterator]().next();
    stop.abort();
    await expect(cancelled.result).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    expect((await run('ls')).stdout).toBe('large\nold\nsmall\nwritten\n');
    await host.acode.forks.discard('hard');
    // Container and memory are gone with the command.
    await expect.poll(() => ofDisk(engine), { timeout: 20_000 }).toEqual([]);
  });

  it('is refused beyond half of the memory, and for what outlives a command', async () => {
    await using host = await TestHost.open(engine);
    const policy = policyFrom({ image: images.debian, ...HARD, limits: { memoryBytes: 31 * MIB } });
    await expect(host.acode.run('true', { policy })).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    const refused = { code: 'ACODE-SBX-016', message: expect.stringContaining('policy.disk.hard') };
    await expect(host.acode.create({ policy: policyFrom({ image: images.debian, ...HARD }) })).rejects.toMatchObject(
      refused,
    );
    expect(await host.acode.forks.list()).toEqual([]);
  });
});

// Memory that is held for forks, asked past the library.
async function ofDisk(engine: TestEngine): Promise<string[]> {
  return withEngine(engine, async client => {
    const terms = { labels: ['acode.managed=true'], all: true, signal: AbortSignal.timeout(60_000) } as const;
    const [containers, volumes] = await Promise.all([client.containers.list(terms), client.volumes.list(terms)]);
    const names = [
      ...containers.map(({ labels }) => labels['acode.service'] ?? ''),
      ...volumes.map(({ Name }) => Name),
    ];
    return names.filter(name => name.endsWith('disk'));
  });
}

const THROTTLE = 'cd /sys/fs/cgroup; cat blkio/blkio.throttle.*_bps_device io.max 2>/dev/null; true';
const LIMITS = { config: { sandbox: { defaults: { blkio: { read_bps: '64m', write_bps: '32m' } } } } };

describe.skipIf(withoutEngines)('a limit of disk throughput', () => {
  it('is what the kernel has for the disk of the workspace, in a fork too', async () => {
    await using host = await TestHost.open(mainEngine, LIMITS);
    for (const workspace of ['direct', 'fork'] as const) {
      const { stdout } = await host.acode.run(['sh', '-c', THROTTLE], { policy: { image: images.busybox, workspace } });
      expect(stdout).toMatch(new RegExp(`^\\d+:\\d+ (?:rbps=)?${64 * MIB}\\b`, 'm'));
      expect(stdout).toMatch(new RegExp(`^\\d+:\\d+ .*\\b${32 * MIB}\\b`, 'm'));
    }
    await using other = await TestHost.open(mainEngine);
    expect((await other.acode.run(['sh', '-c', THROTTLE], { policy: { image: images.busybox } })).stdout).toBe('');
  });

  it.each(targets.filter(({ absent, name }) => !absent && !/docker\d+\/runc$/.test(name)))(
    'is refused on $name',
    async target => {
      const sandbox = { ...target.options.config?.sandbox, ...LIMITS.config.sandbox };
      await using host = await openHost({ ...target, options: { ...target.options, config: { sandbox } } });
      const explained = host.acode.explain(['true'], { risk: 'low' });
      await expect(explained).rejects.toMatchObject({
        code: 'ACODE-SBX-016',
        message: expect.stringContaining('disk throughput'),
      });
    },
  );
});
