// Masks in forks: a layer of empty files, over which commands write what they like, and none of it comes back to the host.

import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { RunResult } from '@acode/sandbox';
import { engines, images, makeWorkspace, withoutEngines } from '../support/engines.ts';

const SECRET = 'TOKEN=of-this-machine\n';
const KEY = '-----BEGIN PRIVATE KEY-----\nof this machine\n';
const bubblewrap = { level: 'bubblewrap', bubblewrap: { accept_process_limits: true } } as const;

const targets = [
  ...engines.map(({ name, socket }) => ({ name, socket, sandbox: { images: { default: images.busybox } } })),
  ...engines
    .filter(({ runtimes }) => runtimes?.includes('runsc'))
    .map(({ name, socket }) => ({
      name: `${name} runsc`,
      socket,
      sandbox: { images: { default: images.busybox }, runtime: 'runsc' },
    })),
  { name: 'bubblewrap', socket: '/nonexistent/docker.sock', sandbox: bubblewrap },
];

const skipped = withoutEngines || !existsSync('/usr/bin/bwrap');

describe.skipIf(skipped).each(targets)('masks in a fork on $name', ({ socket, sandbox }) => {
  let acode: Acode;
  let workspace: string;
  const file = (name: string): string => join(workspace, name);
  const run = (script: string): Promise<RunResult> =>
    acode.run(['sh', '-c', script], { policy: policyFrom({ workspace: 'fork' }), risk: 'low' });

  beforeAll(async () => {
    workspace = makeWorkspace();
    acode = await Acode.open({
      workspace,
      engine: { socket },
      config: { sandbox: { ...sandbox, mask: ['private/'] } },
    });
    for (const directory of ['conf/keys', 'private/deep']) mkdirSync(file(directory), { recursive: true });
    writeFileSync(file('.env'), SECRET);
    writeFileSync(file('conf/keys/server.key'), KEY);
    writeFileSync(file('conf/plain.txt'), 'plain\n');
    writeFileSync(file('private/deep/note'), SECRET);
    chmodSync(file('conf'), 0o750);
  });
  afterAll(async () => {
    await acode.close();
    rmSync(workspace, { recursive: true, force: true });
  });

  it('are empty, can be written and moved, and the host’s files are what they were', async () => {
    const read = await run('cat .env conf/keys/server.key conf/plain.txt; ls -A private; stat -c %a conf');
    expect(read).toMatchObject({ stdout: 'plain\n750\n', masked: ['.env', 'conf/keys/server.key', 'private'] });
    const write = 'echo mine >.env && mv conf moved && cat moved/keys/server.key && echo x >private/mine';
    expect(await run(`${write} && cat .env private/mine`)).toMatchObject({ stdout: 'mine\nx\n', exitCode: 0 });
    expect((await run('cat .env; cat moved/keys/server.key; ls conf 2>&1')).stdout).toMatch(/^mine\n.*No such file/);
    expect(readFileSync(file('.env'), 'utf8')).toBe(SECRET);
    expect(readFileSync(file('conf/keys/server.key'), 'utf8')).toBe(KEY);
    expect(existsSync(file('private/mine'))).toBe(false);
  });

  it('are no part of what changed, which names what commands wrote there', async () => {
    const { changes, masked } = await acode.forks.diff();
    const paths = changes.map(({ change, path }) => `${change} ${path}`);
    expect(paths).toEqual(expect.arrayContaining(['deleted conf/plain.txt', 'added moved/plain.txt']));
    expect(paths.filter(one => /\.env|conf\/keys\/server|private/.test(one))).toEqual([]);
    expect(masked).toEqual(['.env', 'conf/keys/server.key', 'private']);
  });

  it('are what they were after an apply of everything else', async () => {
    const hidden = ['.env', 'conf/keys/server.key', 'private/deep/note'];
    const before = hidden.map(name => [readFileSync(file(name), 'utf8'), statSync(file(name)).mtimeMs]);
    const part = { fork: 'part' };
    const write =
      'echo mine >.env; echo evil >conf/keys/server.key; rm private/deep/note 2>/dev/null; echo x >private/new';
    await acode.run(['sh', '-c', `${write}; echo 1 >plain.txt`], { policy: policyFrom(part), risk: 'low' });
    expect(await acode.forks.apply({ ...part, acceptRisk: 'all' })).toMatchObject({ outcome: 'applied', applied: 1 });
    expect(readFileSync(file('plain.txt'), 'utf8')).toBe('1\n');
    expect(hidden.map(name => [readFileSync(file(name), 'utf8'), statSync(file(name)).mtimeMs])).toEqual(before);
    expect(existsSync(file('private/new'))).toBe(false);
    // What was written there is still in the fork, and not even a name brings it.
    const named = await acode.forks
      .apply({ ...part, only: ['.env'], acceptRisk: 'all' })
      .catch((error: unknown) => error);
    expect(named).not.toMatchObject({ applied: 1 });
    expect(readFileSync(file('.env'), 'utf8')).toBe(SECRET);
    await acode.forks.discard('part');
    rmSync(file('plain.txt'));
  });

  it('hold where the file is replaced on the host meanwhile', async () => {
    const script = 'echo on; for i in 1 2 3; do sleep 0.5; cat conf/keys/server.key; done; echo off';
    const running = await acode.spawn(['sh', '-c', script], {
      policy: policyFrom({ fork: 'other' }),
      risk: 'low',
    });
    let printed = '';
    for await (const chunk of running.stdout) {
      if (printed === '') {
        writeFileSync(file('new'), KEY);
        renameSync(file('new'), file('conf/keys/server.key'));
      }
      printed += Buffer.from(chunk).toString();
    }
    expect(await running.result).toMatchObject({ stdout: 'on\noff\n', exitCode: 0 });
  });
});
