// The disk limit of a fork: a command that reaches it is ended, and what it left can be removed.

import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import { targets } from '../conformance/targets.ts';
import { images, mainEngine } from '../support/engines.ts';

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
