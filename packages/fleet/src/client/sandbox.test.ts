import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { createReadStream } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { AcodeError } from '@acode/sandbox';
import type { CommandRequest, CommandRunner, RunResult, RunningCommand } from '@acode/sandbox';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MemoryEngine } from '../engine/memory.ts';
import { SandboxCalls } from '../exec/calls.ts';
import type { CallTarget } from '../exec/calls.ts';
import { signedCall, verifiedAnswer } from '../exec/protocol.ts';
import { makeKeys } from '../tasks/signature.ts';
import { parseSpec } from '../tasks/spec.ts';
import { workerFileFrom } from '../worker/file.ts';
import type { TenantRunner } from '../worker/tenant.ts';
import { Worker } from '../worker/worker.ts';
import { Fleet } from './fleet.ts';

const keys = { acme: makeKeys(), other: makeKeys() };
const file = workerFileFrom(
  {
    engine: { postgres: { url: 'postgres://nowhere' } },
    images: ['busybox'],
    slots: 2,
    shared_kernel: true,
    tenants: { acme: { keys: [keys.acme.publicKey] }, other: { keys: [keys.other.publicKey] } },
  },
  'host',
);

/** A shell of this machine, in a directory of its own: what matters here is the way to it. */
function shellIn(directory: string): CallTarget {
  return {
    files: {
      createReadStream: path => createReadStream(join(directory, path)),
      writeFile: (path, data) => writeFile(join(directory, path), data),
    },
    spawn: async (command, request: CommandRequest): Promise<RunningCommand> => {
      const argv = typeof command === 'string' ? ['sh', '-c', command] : [...command];
      const child = spawn(argv[0] ?? '', argv.slice(1), {
        cwd: join(directory, request.cwd ?? '.'),
        env: { ...process.env, ...request.env },
        detached: true,
      });
      await new Promise<void>((resolve, reject) => child.once('spawn', resolve).once('error', reject));
      const kill = (signal: string): void => void process.kill(-(child.pid ?? 0), signal);
      request.signal?.addEventListener('abort', () => kill('SIGKILL'));
      if (request.stdin === '') child.stdin.end();
      const ended = new Promise<number | null>(resolve => void child.once('close', resolve));
      return {
        ports: [],
        stdout: child.stdout,
        stderr: child.stderr,
        write: async data => void child.stdin.write(data),
        closeStdin: async () => void child.stdin.end(),
        kill: async (signal = 'SIGTERM') => kill(signal),
        result: ended.then(exitCode => {
          if (request.signal?.aborted === true) throw new AcodeError('ACODE-SBX-014', {});
          // oxlint-disable-next-line typescript/no-unsafe-type-assertion
          return { exitCode, timedOut: false } as RunResult;
        }),
        [Symbol.asyncDispose]: async () => undefined,
      };
    },
  };
}

// oxlint-disable-next-line typescript/no-unsafe-type-assertion
const DONE = {
  exitCode: 0,
  stdout: '',
  stderr: '',
  timedOut: false,
  dropped: { stdout: 0, stderr: 0 },
  denials: [],
  riskyChanges: [],
} as unknown as RunResult;

describe('a persistent sandbox of the fleet', () => {
  let top: string;
  let engine: MemoryEngine;
  let worker: Worker;
  let kept: AbortController[];
  const runner = (): TenantRunner => ({
    run: async () => ({ result: DONE }),
    alive: () => undefined,
    end: async () => kept.forEach(one => one.abort()),
    keep: async ({ id, onKept, signal }) => {
      const directory = mkdtempSync(join(top, 'box-'));
      const gone = new AbortController();
      kept.push(gone);
      const calls = new SandboxCalls(id, shellIn(directory), result => result);
      onKept({ level: 'docker', image: 'busybox' }, (call, bytes) => calls.answer(call, bytes));
      const over = AbortSignal.any([signal, gone.signal]);
      await new Promise(resolve => over.addEventListener('abort', resolve, { once: true }));
      return { error: new AcodeError('ACODE-SBX-025', { sandbox: id, reason: 'its engine removed it' }).toJSON() };
    },
  });
  const start = async (): Promise<Worker> =>
    Worker.start({ file, engine, root: join(top, 'root'), runtime: join(top, 'run'), runner });
  beforeEach(async () => {
    top = mkdtempSync(join(tmpdir(), 'acode-fleet-sandbox-'));
    engine = new MemoryEngine();
    kept = [];
    worker = await start();
  });
  afterEach(async () => {
    await worker.close(0);
    rmSync(top, { recursive: true, force: true });
  });
  const fleetOf = (tenant: 'acme' | 'other' = 'acme'): Promise<Fleet> =>
    Fleet.open({ engine, tenant, keys: keys[tenant], workers: [worker.publicKey] });

  it('is a runner in which a command finds what another left, with both streams and input', async () => {
    const fleet = await fleetOf();
    await using sandbox = await fleet.create({ id: 'box' });
    const heard: string[] = [];
    const request = {
      stdin: Readable.from(['of ', 'a stream']),
      env: { X: 'x' },
      onStdout: (chunk: Uint8Array) => heard.push(`out ${Buffer.from(chunk).toString()}`),
      onStderr: (chunk: Uint8Array) => heard.push(`err ${Buffer.from(chunk).toString()}`),
    };
    const body = (runs: CommandRunner): Promise<RunResult> =>
      runs.run('cat; echo $X >left; echo noise >&2; exit 3', request);
    expect(await body(sandbox)).toMatchObject({ exitCode: 3 });
    expect(heard).toContain('err noise\n');
    expect(heard.filter(one => one.startsWith('out')).join('')).toContain('stream');
    const left = await sandbox.spawn(['cat', 'left']);
    let text = '';
    for await (const chunk of left.stdout) text += Buffer.from(chunk).toString();
    expect(text).toBe('x\n');
    expect(await left.result).toMatchObject({ exitCode: 0 });
  });

  it('streams what a command prints while it runs, and takes input and signals then', async () => {
    await using sandbox = await (await fleetOf()).create();
    const running = await sandbox.spawn('echo ready; read line; echo "got $line"; sleep 600');
    const printed = running.stdout[Symbol.asyncIterator]();
    const next = async (): Promise<string> => Buffer.from((await printed.next()).value ?? '').toString();
    expect(await next()).toBe('ready\n');
    await running.write('this\n');
    expect(await next()).toBe('got this\n');
    await running.kill('SIGKILL');
    expect(await running.result).toMatchObject({ exitCode: null });
    // More than one message has: all of it comes, and in its order.
    let bytes = 0;
    const onStdout = (chunk: Uint8Array): void => void (bytes += chunk.length);
    await sandbox.run('head -c 5000000 /dev/zero', { onStdout });
    expect(bytes).toBe(5_000_000);
    const big = Buffer.alloc(700_000, 'y');
    const counted: string[] = [];
    await sandbox.run('wc -c', { stdin: big, onStdout: chunk => counted.push(Buffer.from(chunk).toString()) });
    expect(Number(counted.join(''))).toBe(700_000);
  });

  it('cancels a command and goes on', async () => {
    await using sandbox = await (await fleetOf()).create();
    const stop = new AbortController();
    const running = sandbox.run('echo begun; sleep 600', { signal: stop.signal, onStdout: () => stop.abort() });
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    await expect(sandbox.run('true', { signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    expect(await sandbox.run('true')).toMatchObject({ exitCode: 0 });
  });

  it('brings files in and out, with the errors of the file system', async () => {
    await using sandbox = await (await fleetOf()).create();
    const large = Buffer.alloc(1_000_000, 'large');
    await sandbox.files.writeFile('large', large);
    expect((await sandbox.files.readFile('large')).equals(large)).toBe(true);
    await sandbox.files.writeFile('empty', '');
    expect(await sandbox.files.readFile('empty', 'utf8')).toBe('');
    await expect(sandbox.files.readFile('missing')).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(sandbox.files.writeFile('no/such', 'x')).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(sandbox.files.writeFile('large', Buffer.alloc(9_000_000))).rejects.toMatchObject({
      code: 'ACODE-FLT-007',
    });
  });

  it('is listed, connected to and killed by its tenant, and unknown to every other', async () => {
    const [fleet, other] = [await fleetOf(), await fleetOf('other')];
    const sandbox = await fleet.create({ id: 'box', expiresInMs: 60_000 });
    expect(await fleet.sandboxes()).toMatchObject([
      { id: 'box', level: 'docker', image: 'busybox', worker: worker.id },
    ]);
    expect(await other.sandboxes()).toEqual([]);
    await expect(other.connect('box')).rejects.toMatchObject({ code: 'ACODE-FLT-051' });
    {
      // Who only connects leaves it as it is.
      await using connected = await fleet.connect('box');
      expect(await connected.run('true')).toMatchObject({ exitCode: 0 });
    }
    // The same id again is the same sandbox; it does not go through the queue.
    expect((await fleet.create({ id: 'box' })).info.since).toBe(sandbox.info.since);
    expect(await engine.depth('default')).toBe(1);
    await sandbox.kill();
    expect(await fleet.sandboxes()).toEqual([]);
    await expect(sandbox.run('true')).rejects.toMatchObject({
      code: 'ACODE-SBX-025',
      message: expect.stringContaining('it was killed'),
    });
    await expect.poll(() => engine.depth('default')).toBe(0);
    expect(await fleet.task('box').state()).toMatchObject({ state: 'cancelled' });
  });

  it('takes only calls that a key of its tenant has signed, each once', async () => {
    const fleet = await fleetOf();
    await using _box = await fleet.create({ id: 'box' });
    const box = { tenant: 'acme', id: 'box' };
    const call = { verb: 'put', path: 'file', size: 1, at: 0 } as const;
    const answer = async (message: Uint8Array) =>
      verifiedAnswer('box', message, { answer: await engine.ask(box, message), workers: [worker.publicKey] }).answer;
    const signedBy = (by: 'acme' | 'other', number: string): Uint8Array =>
      signedCall(box, { ...call, number }, { keys: keys[by], bytes: Buffer.from('x') });
    const number = '00000000-0000-4000-8000-00000000000';
    expect(await answer(signedBy('other', `${number}1`))).toMatchObject({ failure: { code: 'ACODE-FLT-052' } });
    // The control, and the same again.
    expect(await answer(signedBy('acme', `${number}2`))).toEqual({ value: { have: 1 } });
    const begin = signedCall(
      box,
      { verb: 'begin', number: `${number}3`, command: 'echo once >>counted', input: false },
      { keys: keys.acme },
    );
    expect(await answer(begin)).toEqual({ value: {} });
    expect(await answer(begin)).toEqual({ value: {} });
    const counted = await fleet.connect('box');
    await expect.poll(() => counted.files.readFile('counted', 'utf8').catch(() => '')).toBe('once\n');
  });

  it('ends when its time is over and when nobody uses it, with the reason', async () => {
    const fleet = await fleetOf();
    const [short, idle] = await Promise.all([
      fleet.create({ expiresInMs: 1200 }),
      fleet.create({ idleMs: 600, expiresInMs: 600_000 }),
    ]);
    await expect.poll(() => fleet.sandboxes(), { timeout: 30_000 }).toEqual([]);
    await expect(short.run('true')).rejects.toMatchObject({ message: expect.stringContaining('expiresInMs') });
    await expect(idle.run('true')).rejects.toMatchObject({ message: expect.stringContaining('idleMs') });
    expect(await fleet.task(idle.id).state()).toMatchObject({ state: 'timed_out' });
  });

  it('ends with its host, and with its worker, and is created by no other one', async () => {
    const fleet = await fleetOf();
    const sandbox = await fleet.create();
    const running = await sandbox.spawn('sleep 600');
    kept.forEach(one => one.abort());
    await expect(running.result).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    expect(await fleet.task(sandbox.id).state()).toMatchObject({ state: 'failed' });
    const other = await fleet.create();
    await worker.close(0);
    await expect(other.run('true')).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    expect(await fleet.task(other.id).state()).toMatchObject({ state: 'lost', attempt: 1 });
    worker = await start();
  });

  it('is refused with the reason where it asks for what no sandbox may have', async () => {
    const fleet = await fleetOf();
    await expect(fleet.create({ policy: { image: 'another' } })).rejects.toMatchObject({
      code: 'ACODE-FLT-055',
      context: { code: 'ACODE-FLT-008' },
    });
    const spec = { schema: 'acode.fleet.task/1', tenant: 'acme', id: 'x', pool: 'default', priority: 'normal' };
    const sandbox = { expiresInMs: 1, idleMs: 1 };
    const asked = { ...spec, submittedAt: new Date().toISOString(), sandbox };
    // The control, and what names anything of the worker’s machine.
    expect(parseSpec(JSON.stringify(asked))).toMatchObject({ sandbox });
    for (const more of [{ policy: { mounts: [] } }, { command: 'true' }, { sandbox: { ...sandbox, ports: [80] } }])
      expect(() => parseSpec(JSON.stringify({ ...asked, ...more }))).toThrow(
        expect.objectContaining({ code: 'ACODE-FLT-008' }),
      );
    expect(await readFile(join(top, 'root', 'journal.jsonl'), 'utf8')).toContain('"refused"');
    // An id of a task that has ended is no sandbox.
    const task = await fleet.submit('true', { id: 'task' });
    await task.end();
    await expect(fleet.create({ id: 'task' })).rejects.toMatchObject({ code: 'ACODE-FLT-054' });
  });
});
