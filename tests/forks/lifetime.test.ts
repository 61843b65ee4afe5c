// The life of a fork: what a killed command wrote is not lost, and the oldest of many layers become one.

import { once } from 'node:events';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { policyFrom } from '@acode/sandbox';
import { ForkStore } from '../../packages/sandbox/src/workspace/fork/store.ts';
import { Bench } from '../cli/bench.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { figure } from '../support/waiting.ts';

const listSchema = z.object({
  items: z.array(z.looseObject({ id: z.string(), commands: z.number(), interrupted: z.boolean() })),
});

/** What `acode … --json` prints. */
async function read<Value>(bench: Bench, argv: readonly string[], schema: z.ZodType<Value>): Promise<Value> {
  const { stdout, stderr, status } = await bench.call([...argv, '--json']);
  expect({ status, stderr }).toMatchObject({ status: 0 });
  return schema.parse(JSON.parse(stdout.toString()));
}

async function killed(bench: Bench, script: string): Promise<void> {
  const { child, ended } = bench.start(['run', '--fork', '--', 'sh', '-c', `${script}; echo up; exec sleep 600`]);
  await once(child.stdout ?? child, 'data');
  child.kill('SIGKILL');
  await ended;
}

describe.skipIf(withoutEngines)('a fork whose client is killed with SIGKILL', () => {
  it('has what the command wrote until then, is listed, and is what the next command sees', async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'a.txt'), 'one\n');
    await killed(bench, 'echo written > new; rm a.txt');
    // At once: the reaper may not have removed the sandbox yet.
    const { stdout, stderr } = await bench.call([
      'run',
      '--fork',
      '--',
      'sh',
      '-c',
      'cat new; ls a.txt; echo 2 > second',
    ]);
    expect(stdout.toString(), stderr).toBe('written\n');
    const { items } = await read(bench, ['fork', 'list'], listSchema);
    expect(items).toMatchObject([{ commands: 2, interrupted: false, isCurrent: true }]);
    await bench.call(['fork', 'undo']);
    expect((await read(bench, ['fork', 'list'], listSchema)).items).toMatchObject([{ commands: 1, interrupted: true }]);
    expect((await bench.call(['fork', 'list'])).stdout.toString()).toContain('interrupted');
    const diff = await bench.call(['fork', 'diff', '--name-only']);
    expect(diff.stdout.toString()).toBe('a.txt\nnew\n');
    expect((await bench.call(['fork', 'discard'])).status).toBe(0);
    expect(readdirSync(join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', 'f'))).toEqual([]);
  });

  it('ends with it if nothing was written', async () => {
    await using bench = await Bench.at(mainEngine);
    await killed(bench, 'true');
    const store = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
    // The control: the client itself could not remove it.
    expect(readdirSync(store)).toHaveLength(1);
    expect((await read(bench, ['fork', 'list'], listSchema)).items).toEqual([]);
    expect(readdirSync(store)).toEqual([]);
  });
});

describe.skipIf(withoutEngines)('a fork that has expired', () => {
  it('is announced, and removed by a cleanup with what the kernel left in it; the audit log says so', async () => {
    await using host = await TestHost.open(mainEngine);
    const run = (script: string, fork: string) =>
      host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, fork }) });
    writeFileSync(host.file('a.txt'), 'one\n');
    await run('rm a.txt', 'old');
    await run('rm a.txt', 'used');
    const store = new ForkStore(join(process.env['XDG_STATE_HOME'] ?? '', 'acode'), Date.now);
    const expire = (name: string, at: number): string => {
      const id = readdirSync(store.directory).find(one => store.read(one)?.name === name) ?? '';
      const path = join(store.pathOf(id), 'fork.json');
      writeFileSync(path, JSON.stringify({ ...store.read(id), expiresAt: at }));
      return id;
    };
    const id = expire('old', Date.now() + 3_600_000);
    const { notes } = await host.acode.explain('true', { policy: policyFrom({ image: images.debian, fork: 'used' }) });
    expect(notes.join('\n')).toContain('Fork old of this workspace has changes and expires at ');
    expect((await host.acode.cleanup()).forks).toEqual([]);
    expire('old', Date.now() - 1);
    expect((await host.acode.cleanup({ dryRun: true })).forks).toMatchObject([{ id, name: 'old' }]);
    expect(store.read(id)).not.toBeNull();
    expect((await host.acode.cleanup()).forks).toMatchObject([{ id, name: 'old' }]);
    // The engine’s kernel had left a directory of root’s.
    expect(readdirSync(store.directory).filter(name => name.includes(id))).toEqual([]);
    expect((await host.acode.forks.list()).map(({ name }) => name)).toEqual(['used']);
    await host.acode.forks.discard('used');
    const removals: string[] = [];
    for (const record of await host.acode.audit.tail({ count: 50 }))
      if (record.kind === 'removal' && record['what'] === 'fork')
        removals.push(`${String(record['name'])} ${String(record['reason'])}`);
    expect(removals).toEqual(expect.arrayContaining(['old expired', 'used asked']));
  });
});

describe.skipIf(withoutEngines)('undo of a command that deleted 10,000 files', () => {
  it('brings all of them back, as they were', async () => {
    await using host = await TestHost.open(mainEngine);
    const run = (script: string) =>
      host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, workspace: 'fork' }) });
    const files = 10_000;
    mkdirSync(host.file('scratch'));
    for (let at = 0; at < files; at += 1) writeFileSync(host.file(`scratch/file${at}`), `${at}\n`);
    const listing = 'cat scratch/* | wc -c; ls scratch | wc -l; cat kept';
    await run('echo kept > kept');
    expect((await run('find scratch -type f -delete; ls scratch')).stdout).toBe('');
    expect((await host.acode.forks.diff({ limit: 1 })).counts).toEqual({ added: 1, changed: 0, deleted: files });
    const from = performance.now();
    expect(await host.acode.forks.undo()).toMatchObject([{ number: 2 }]);
    figure('undo of 10,000 deletions in ms', performance.now() - from, 1000);
    expect((await run(listing)).stdout).toBe(`48890\n${files}\nkept\n`);
    await host.acode.forks.discard();
  });
});

describe.skipIf(withoutEngines)('a fork of 64 commands', () => {
  it('is squashed before the next one, which sees what all of them wrote', async () => {
    await using host = await TestHost.open(mainEngine);
    const run = (script: string) =>
      host.acode.run(['sh', '-c', script], {
        policy: policyFrom({ image: images.debian, workspace: 'fork' }),
      });
    writeFileSync(host.file('a.txt'), 'one\n');
    const { fork } = await run('rm a.txt; mkdir d; echo 0 > d/file0');
    const state = join(process.env['XDG_STATE_HOME'] ?? '', 'acode');
    const store = new ForkStore(state, Date.now);
    const id = fork?.id ?? '';
    for (let at = 1; at < 64; at += 1) {
      const { active } = await store.begin(id, { holder: 'x', image: 'i', command: `write ${at}` });
      writeFileSync(join(store.pathOf(id), String(active?.layer), `file${at}`), '');
      await store.end(id, { isEmpty: false });
    }
    expect((await run('ls -d file* | wc -l; ls d a.txt 2>/dev/null')).stdout).toBe('63\nd:\nfile0\n');
    await run('rm file63');
    const layers = readdirSync(store.pathOf(id)).filter(name => /^\d+$/.test(name));
    expect(layers.length).toBeLessThan(40);
    expect(await host.acode.forks.history()).toHaveLength(65);
    expect((await host.acode.forks.diff()).counts).toEqual({ added: 64, changed: 0, deleted: 1 });
    await expect(host.acode.forks.undo({ commands: 60 })).rejects.toMatchObject({ code: 'ACODE-FRK-006' });
    expect(await host.acode.forks.undo()).toMatchObject([{ number: 65 }]);
    await host.acode.forks.discard();
  });
});
