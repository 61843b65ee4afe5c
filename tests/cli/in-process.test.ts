// The command inside another program: `runCli` touches nothing of the process it was not given.

import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { Readable, Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCli } from '../../packages/cli/src/cli.ts';
import type { Io } from '../../packages/cli/src/io.ts';
import { Recorder, call, testIo } from '../../packages/cli/src/test-process.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines)('runCli', () => {
  const task = `t${randomUUID().slice(0, 8)}`;
  let workspace = '';

  beforeAll(async () => {
    workspace = await mkdtemp('/var/tmp/acode-cli-in-process-');
  });

  afterAll(async () => {
    await rm(workspace, { recursive: true });
  });

  const words = (...argv: string[]) => [...argv.slice(0, 1), '--socket', mainEngine.socket, ...argv.slice(1)];
  const acode = (argv: string[], given: Partial<Io> = {}) => call(argv, { cwd: () => workspace, ...given });
  const run = (argv: string[], given?: Partial<Io>) =>
    acode(words('run', '--image', images.busybox, '--task', task, ...argv), given);

  it('runs a command on the streams it was given', async () => {
    const stdin = Readable.from([Buffer.from('in')]);
    await expect(run(['cat; echo err >&2; exit 3'], { stdin })).resolves.toEqual({
      status: 3,
      stdout: 'in',
      stderr: 'err\n',
    });
  });

  it('is two commands at once where it is called twice', async () => {
    const [one, two] = await Promise.all([run(['--json', 'echo one']), run(['--timeout', '0.5', 'echo two; sleep 9'])]);
    expect(JSON.parse(one.stdout)).toMatchObject({ schema: 'acode.run/1', stdout: 'one\n', exitCode: 0 });
    expect(two).toMatchObject({ status: 124, stdout: 'two\n', stderr: expect.stringContaining('0.5 s') });
  });

  it('stops on a signal it was given, and leaves nothing', async () => {
    const stdout = new Recorder();
    const io = testIo({ stdout, cwd: () => workspace });
    const argv = words('run', '--image', images.busybox, '--task', `${task}-stopped`, 'echo started; sleep 60');
    const timer = setInterval(() => stdout.text !== '' && io.signals.emit('SIGTERM'), 20);
    await expect(runCli(argv, io)).resolves.toBe(143);
    clearInterval(timer);
    const { stdout: list } = await acode(['--json', ...words('sandbox', 'list')]);
    expect(list).not.toContain(`${task}-stopped`);
  });

  it('gives a run up where nobody reads it', async () => {
    const stdout = new Writable({
      write: (_chunk, _encoding, done) => done(Object.assign(new Error('EPIPE'), { code: 'EPIPE' })),
    });
    const stderr = new Recorder();
    const argv = words('run', '--image', images.busybox, 'yes');
    await expect(runCli(argv, testIo({ stdout, stderr, cwd: () => workspace }))).resolves.toBe(141);
    expect(stderr.text).toBe('');
  });

  it('has every other command too', async () => {
    const { stdout: logs } = await acode(words('sandbox', 'logs', '--json'));
    const { items } = JSON.parse(logs) as { items: { name: string }[] };
    const name = items.find(item => item.name.includes(task))?.name ?? '';
    await expect(acode(words('docker', 'logs', name))).resolves.toMatchObject({ status: 0 });
    await expect(acode(words('sandbox', 'inspect', 'nothing'))).resolves.toMatchObject({ status: 125 });
    await expect(acode(words('sandbox', 'cleanup', '--dry-run'))).resolves.toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/Would remove \d+ sandbox/),
    });
    await expect(acode(words('explain', '--image', images.busybox, '--readonly', 'ls'))).resolves.toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/workspace +readonly +this call +--readonly/),
    });
  });
});
