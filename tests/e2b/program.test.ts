// A program that was written for E2B, on real engines; and what is refused to it, with the words that help.

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import { InvalidArgumentError, Sandbox, SandboxNotFoundError, TemplateError } from '@acode/sandbox/e2b';
import type { SandboxOpts } from '@acode/sandbox/e2b';
import { engines, images, withEngine, withoutEngines } from '../support/engines.ts';
import { useCommands, useFiles, useSandboxes, useTerminal } from './sample.ts';

const workspace = mkdtempSync('/var/tmp/acode-test-');
afterAll(() => rmSync(workspace, { recursive: true, force: true }));

function answerOf(host: string): Promise<string> {
  const [address, port] = host.split(':');
  return new Promise((resolve, reject) => {
    let text = '';
    const connection = createConnection({ host: address, port: Number(port) }, () => connection.end('ping\n'));
    connection.on('data', (data: Buffer) => (text += data.toString()));
    connection.once('close', () => resolve(text));
    connection.once('error', reject);
  });
}

describe.skipIf(withoutEngines).each(engines)('on $name, a program written for E2B', engine => {
  const options: SandboxOpts = {
    acode: {
      engine: { socket: engine.socket },
      workspace,
      config: { sandbox: { images: { default: images.busybox } } },
    },
  };

  it('reads, writes, lists, renames and removes files', async () => {
    await using sandbox = await Sandbox.create(options);
    expect(await useFiles(sandbox)).toEqual([
      'one',
      'two',
      'three',
      'one.txt true, three.bin true, two.txt true',
      'true',
      'false',
      'first.txt',
      'false',
      'gone',
      '/home/user/app/main.txt',
      '/home/user/app at its absolute path',
      '/home/user at its absolute path',
    ]);
    await sandbox.kill();
  });

  it('changes a fork where it asks for one, and the workspace is what it was', async () => {
    const sandbox = await Sandbox.create({ ...options, fork: 'new' });
    await sandbox.files.write('only-in-the-fork', 'x');
    expect(await sandbox.files.list('.')).toMatchObject([{ name: 'only-in-the-fork' }]);
    expect(readdirSync(workspace)).toEqual([]);
    await sandbox.kill();
    await using acode = await Acode.open(options.acode);
    expect((await acode.forks.diff()).changes.map(({ path }) => path)).toEqual(['only-in-the-fork']);
    await acode.forks.discard();
    // The control: without a fork it is the workspace that is changed.
    const direct = await Sandbox.create({ ...options, fork: false });
    await direct.files.write('in-both', 'x');
    expect(readdirSync(workspace)).toEqual(['in-both']);
    await direct.files.remove('in-both');
    await direct.kill();
  });

  it('runs commands', async () => {
    expect(await useCommands(options)).toEqual([
      'hello you',
      '0',
      'live',
      '3 no',
      'too slow',
      'typed',
      'true',
      'true',
      'false',
    ]);
  });

  it('finds, lists, extends and ends sandboxes by their ids', async () => {
    expect(await useSandboxes(options)).toEqual(['kept', 'true', 'running', 'true', 'false', 'true', 'false']);
  });

  it('is shown no sandboxes that it cannot connect to, and pages of those it can', async () => {
    const elsewhere = mkdtempSync('/var/tmp/acode-test-');
    const others: SandboxOpts = { acode: { ...options.acode, workspace: elsewhere } };
    const [one, two, other] = [
      await Sandbox.create(options),
      await Sandbox.create('base', options),
      await Sandbox.create(others),
    ];
    try {
      const found: string[] = [];
      const pages = Sandbox.list({ ...options, limit: 1 });
      while (pages.hasNext) {
        const page = await pages.nextItems();
        expect(page).toHaveLength(1);
        found.push(...page.map(({ sandboxId }) => sandboxId));
      }
      expect(found).toEqual(expect.arrayContaining([one.sandboxId, two.sandboxId]));
      expect(found).not.toContain(other.sandboxId);
      // The control: from where it was made, it is the only one of the three.
      const there = (await Sandbox.list(others).nextItems()).map(({ sandboxId }) => sandboxId);
      expect(there).toContain(other.sandboxId);
      expect(there).not.toContain(one.sandboxId);
      // Being listed ends nothing, and more than there can be is refused.
      expect(await one.isRunning()).toBe(true);
      await expect(one.setTimeout(86_400_001)).rejects.toThrow(InvalidArgumentError);
      await one.setTimeout(86_400_000);
      const { startedAt, endAt } = await one.getInfo();
      expect(endAt.getTime() - startedAt.getTime()).toBeLessThan(86_410_000);
    } finally {
      await Promise.all([one.kill(), two.kill(), other.kill()]);
      rmSync(elsewhere, { recursive: true, force: true });
    }
  });

  it('opens a terminal, and reaches a server inside', async () => {
    const sandbox = await Sandbox.create(images.busybox, { ...options, ports: [3000] });
    try {
      expect(await useTerminal(sandbox)).toContain('30 100');
      await sandbox.commands.run('nc -ll -p 3000 -e cat', { background: true });
      const host = sandbox.getHost(3000);
      expect(host).toMatch(/^127\.0\.0\.1:\d+$/);
      await expect.poll(() => answerOf(host).catch(() => '')).toBe('ping\n');
      expect(() => sandbox.getHost(4000)).toThrow(InvalidArgumentError);
    } finally {
      await sandbox.kill();
    }
  });

  it('is refused what acode does not do, and nothing is left of it', async () => {
    await expect(Sandbox.create('my-template', options)).rejects.toThrow(TemplateError);
    await expect(Sandbox.create('nobody/has-this:1', options)).rejects.toThrow(TemplateError);
    await expect(Sandbox.create({ ...options, metadata: { a: 'b' } })).rejects.toThrow(/metadata/);
    await expect(Sandbox.create({ ...options, allowInternetAccess: true })).rejects.toThrow(InvalidArgumentError);
    await expect(Sandbox.connect('00000000-0000-4000-8000-000000000000', options)).rejects.toThrow(
      SandboxNotFoundError,
    );
    const sandbox = await Sandbox.create(options);
    await expect(sandbox.commands.run('id', { user: 'root' })).rejects.toThrow(/user: root/);
    await expect(sandbox.pause()).rejects.toThrow(InvalidArgumentError);
    await sandbox.kill();
    await expect(sandbox.commands.run('true')).rejects.toThrow(SandboxNotFoundError);
    const left = await withEngine(engine, ({ containers }) =>
      containers.list({
        labels: [`acode.sandbox=${sandbox.sandboxId}`],
        all: true,
        signal: AbortSignal.timeout(60_000),
      }),
    );
    expect(left).toEqual([]);
  });

  it('lets a sandbox go at its time', async () => {
    const sandbox = await Sandbox.create({ ...options, timeoutMs: 5000 });
    expect(await sandbox.isRunning()).toBe(true);
    await expect.poll(() => sandbox.isRunning()).toBe(false);
    await sandbox.kill();
  });
});
