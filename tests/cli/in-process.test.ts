// The command inside another program: `runCli` touches nothing of the process it was not given.

import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
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
    const [one, two] = await Promise.all([
      run(['--json', 'echo one']),
      run(['--timeout', '2.5', 'echo two; sleep 600']),
    ]);
    expect(JSON.parse(one.stdout)).toMatchObject({ schema: 'acode.run/1', stdout: 'one\n', exitCode: 0 });
    expect(two).toMatchObject({ status: 124, stdout: 'two\n', stderr: expect.stringContaining('2.5 s') });
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
    // No program is there that could go on with the scan of what the command left.
    expect(stderr.text).toMatch(/^acode: not everything was scanned: .*\n$/);
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

  it('explains everything with --verbose, also where the terminal is narrow', async () => {
    const stdout = new Recorder(true, 60);
    const argv = words('explain', '--verbose', '--no-color', '--image', images.busybox, '--tmp', '1m', '--', 'ls');
    await expect(runCli(argv, testIo({ stdout, cwd: () => workspace }))).resolves.toBe(0);
    expect(stdout.text).toMatch(/temporary files +1 MiB\s+this call, --tmp\n/);
    expect(stdout.text).toMatch(/Engine request\n\{[^]*whole in --json/);
  });

  it('tells what was denied and what was left behind, on standard error alone', async () => {
    const { status, stdout, stderr } = await run([
      '--profile',
      'task',
      '--swap',
      '0',
      'ln -s /etc/passwd out; mkdir /x; wget -q http://example.invalid/',
    ]);
    expect(status).not.toBe(0);
    expect(stdout).toBe('');
    expect(stderr).toMatch(
      /acode: denied: the sandbox has no network.*\n├▶ rule: network\.none\n.*\n╰▶ hint: .*--network allow=<host>/,
    );
    expect(stderr).toMatch(
      /acode: denied: the sandbox’s own file system is read-only.*\n├▶ rule: read-only\.root\n.*\n╰▶ hint: .*--image/,
    );
    expect(stderr).toMatch(/symlink-out \(.*\): out\n/);
  });

  it('names options where a request is refused', async () => {
    await expect(run(['--publish', '3000', 'true'])).resolves.toMatchObject({
      status: 125,
      stderr: expect.stringMatching(/^acode: --publish: needs a network[^]*hint: .*--network bridge/),
    });
    await expect(run(['--mount', '/usr/share:/data', 'true'])).resolves.toMatchObject({
      status: 125,
      stderr: expect.stringMatching(/ACODE-SBX-003/),
    });
    await expect(run(['--runtime', 'none-such', 'true'])).resolves.toMatchObject({
      status: 125,
      stderr: expect.stringContaining('none-such'),
    });
  });

  it('tells where published ports are', async () => {
    const file = join(workspace, '..', `${task}.yml`);
    await writeFile(file, 'sandbox:\n  network:\n    allow_bridge: true\n');
    const asked = ['--config', file, '--network', 'bridge', '--publish', '3000', 'echo ran'];
    await expect(run(asked)).resolves.toEqual({
      status: 0,
      stdout: 'ran\n',
      stderr: expect.stringMatching(/^acode: port 3000\/tcp is at 127\.0\.0\.1:\d+\.\n$/),
    });
    await rm(file);
  });
});
