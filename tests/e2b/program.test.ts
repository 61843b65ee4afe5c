// A program that was written for E2B, on real engines; and what is refused to it, with the words that help.

import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection } from 'node:net';
import { afterAll, describe, expect, it } from 'vitest';
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
    ]);
    await sandbox.kill();
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

  it('opens a terminal, and reaches a server inside', async () => {
    const sandbox = await Sandbox.create(images.busybox, { ...options, ports: [3000] });
    try {
      expect(await useTerminal(sandbox)).toContain('30 100');
      await sandbox.commands.run('nc -ll -p 3000 -e cat', { background: true });
      const host = sandbox.getHost(3000);
      expect(host).toMatch(/^127\.0\.0\.1:\d+$/);
      await expect.poll(() => answerOf(host).catch(() => ''), { timeout: 10_000 }).toBe('ping\n');
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
        signal: AbortSignal.timeout(10_000),
      }),
    );
    expect(left).toEqual([]);
  });

  it('lets a sandbox go at its time', async () => {
    const sandbox = await Sandbox.create({ ...options, timeoutMs: 1500 });
    expect(await sandbox.isRunning()).toBe(true);
    await expect.poll(() => sandbox.isRunning(), { timeout: 10_000 }).toBe(false);
    await sandbox.kill();
  });
});
