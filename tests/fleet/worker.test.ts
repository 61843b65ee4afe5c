// Workers of a fleet on a real engine: tasks from their submission to their result, and what happens when workers die.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Fleet, MemoryEngine, NatsEngine, Worker, makeKeys, packWorkspace, workerFileFrom } from '@acode/fleet';
import type { FleetEngine, LogChunk } from '@acode/fleet';
import { Acode, AcodeError } from '@acode/sandbox';
import type { CommandRunner } from '@acode/sandbox';
import { images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { NatsServers, withoutServers } from './servers.ts';

const PROGRAM = new URL('worker-program.mjs', import.meta.url).pathname;
const SIZES = { logBytes: 16 * 1024 ** 2, blobBytes: 64 * 1024 ** 2 };
const keys = { acme: makeKeys(), other: makeKeys() };
const file = (more: object = {}): object => ({
  engine: { postgres: { url: 'postgres://nowhere' } },
  images: [images.busybox],
  slots: 2,
  warm: 0,
  shared_kernel: true,
  socket: mainEngine.socket,
  tenants: { acme: { keys: [keys.acme.publicKey] }, other: { keys: [keys.other.publicKey] } },
  ...more,
});

async function textOf(chunks: AsyncIterable<LogChunk>, stream: 1 | 2): Promise<string> {
  let text = '';
  for await (const chunk of chunks) if (chunk.stream === stream) text += Buffer.from(chunk.bytes).toString();
  return text;
}

/** Sandboxes of a task that exist on the engine. */
async function sandboxesOf(task: string): Promise<number> {
  return withEngine(mainEngine, async engine => {
    const found = await engine.containers.list({
      labels: [`acode.task=${task}`],
      all: true,
      signal: AbortSignal.timeout(60_000),
    });
    return found.length;
  });
}

describe.skipIf(withoutEngines || withoutServers)('a worker', () => {
  let top: string;
  const closing: (() => Promise<unknown>)[] = [];
  beforeAll(() => {
    top = mkdtempSync('/var/tmp/acode-fleet-');
  });
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  let number = 0;
  const place = (): { root: string; runtime: string } => {
    number += 1;
    const [root, runtime] = [join(top, `root-${number}`), join(top, `run-${number}`)];
    mkdirSync(root);
    return { root, runtime };
  };
  const start = async (engine: FleetEngine, more: object = {}): Promise<{ worker: Worker; root: string }> => {
    const { root, runtime } = place();
    const worker = await Worker.start({ file: workerFileFrom(file(more), 'host'), engine, root, runtime });
    closing.push(() => worker.close(0));
    return { worker, root };
  };
  const fleetOf = (
    engine: FleetEngine,
    tenant: 'acme' | 'other' = 'acme',
    workers?: readonly string[],
  ): Promise<Fleet> => Fleet.open({ engine, tenant, keys: keys[tenant], ...(workers ? { workers } : {}) });

  it('runs a task in its workspace, streams its log, and signs the result and the files', async () => {
    const engine = new MemoryEngine();
    const { worker, root } = await start(engine);
    const fleet = await fleetOf(engine, 'acme', [worker.publicKey]);
    const project = mkdtempSync(join(top, 'project-'));
    mkdirSync(join(project, 'src'));
    writeFileSync(join(project, 'src', 'input.txt'), 'of the submitter\n');
    const command = 'cat src/input.txt; echo to-err >&2; echo $X >src/made.txt; rm src/input.txt; exit 3';
    const task = await fleet.submit(command, {
      workspace: await packWorkspace(project),
      files: true,
      env: { X: 'made' },
    });
    const [out, err, end] = await Promise.all([textOf(task.logs(), 1), textOf(task.logs(), 2), task.end()]);
    expect(out).toBe('of the submitter\n');
    expect(err).toBe('to-err\n');
    expect(end).toMatchObject({
      state: 'failed',
      attempt: 1,
      result: { exitCode: 3, stdout: out, stderr: err, level: 'docker' },
    });
    const left = gunzipSync((await end.files()) ?? '').toString('latin1');
    expect(left).toContain('src/made.txt');
    expect(left).not.toContain('of the submitter');
    // What it read is still there, and a late reader has the log from the first byte on.
    expect(readFileSync(join(project, 'src', 'input.txt'), 'utf8')).toBe('of the submitter\n');
    expect(await textOf(fleet.task(task.id).logs(), 1)).toBe(out);
    // The same id again is the same task, and a result that no known worker has signed is refused.
    expect(await (await fleet.submit('echo again', { id: task.id })).result()).toMatchObject({ exitCode: 3 });
    await expect((await fleetOf(engine, 'acme', [])).task(task.id).result()).rejects.toMatchObject({
      code: 'ACODE-FLT-017',
    });
    expect(readFileSync(join(root, 'journal.jsonl'), 'utf8')).toMatch(/"claimed".*\n.*"finished"/);
    await expect.poll(() => sandboxesOf(task.id)).toBe(0);
  });

  it('keeps tenants in processes and directories of their own, and refuses what only another one may do', async () => {
    const engine = new MemoryEngine();
    const { root } = await start(engine);
    const [acme, other] = [await fleetOf(engine), await fleetOf(engine, 'other')];
    const results = await Promise.all(
      [acme, other].map(async fleet => (await fleet.submit('echo kept >left.txt; ls; ls /')).result()),
    );
    for (const { stdout } of results) expect(stdout).toMatch(/^left\.txt\n/);
    expect(readdirSync(join(root, 'tenants')).sort()).toEqual(['acme', 'other']);
    // Signed with the key of another tenant.
    const forged = await Fleet.open({ engine, tenant: 'other', keys: keys.acme });
    await expect((await forged.submit('echo forged')).result()).rejects.toMatchObject({
      code: 'ACODE-FLT-018',
      context: { code: 'ACODE-FLT-009' },
    });
    // An image that the pool does not list, though the engine has it.
    await expect((await acme.submit('true', { policy: { image: images.debian } })).result()).rejects.toMatchObject({
      context: { code: 'ACODE-FLT-008' },
    });
  });

  it('runs commands as the library does, so that one body passes on both', async () => {
    const engine = new MemoryEngine();
    await start(engine);
    const fleet = await fleetOf(engine);
    const workspace = mkdtempSync(join(top, 'local-'));
    await using acode = await Acode.open({
      workspace,
      engine: { socket: mainEngine.socket },
      config: { sandbox: { images: { default: images.busybox } } },
    });
    const body = async (runner: CommandRunner): Promise<unknown> => {
      let heard = '';
      const onStdout = (chunk: Uint8Array): void => void (heard += Buffer.from(chunk).toString());
      const { exitCode, stdout, stderr } = await runner.run('cat; echo $X; echo err >&2; exit 7', {
        stdin: 'in ',
        env: { X: 'x' },
        onStdout,
      });
      const stop = new AbortController();
      const long = runner.run('echo begun; sleep 600', { signal: stop.signal, onStdout: () => stop.abort() });
      const code = await long.then(
        () => null,
        (error: unknown) => (error instanceof AcodeError ? error.code : null),
      );
      return { exitCode, stdout, stderr, heard, code };
    };
    const expected = { exitCode: 7, stdout: 'in x\n', stderr: 'err\n', heard: 'in x\n', code: 'ACODE-SBX-014' };
    expect(await body(acode)).toEqual(expected);
    expect(await body(fleet)).toEqual(expected);
  });

  it('ends a command that is cancelled, and one that is queued', async () => {
    const engine = new MemoryEngine();
    await start(engine, { slots: 1 });
    const fleet = await fleetOf(engine);
    const [task, queued] = [await fleet.submit('echo begun; sleep 600'), await fleet.submit('echo never')];
    for await (const _ of task.logs()) break;
    await queued.cancel();
    await task.cancel();
    for (const one of [task, queued]) {
      await expect(one.result()).rejects.toMatchObject({ code: 'ACODE-FLT-016' });
      expect(await sandboxesOf(one.id)).toBe(0);
    }
  });

  it('gives back what it cannot end in time when it is drained', async () => {
    const engine = new MemoryEngine();
    const { worker } = await start(engine);
    const fleet = await fleetOf(engine);
    const task = await fleet.submit('echo begun; sleep 3');
    for await (const _ of task.logs()) break;
    closing.pop();
    await worker.close(0);
    expect(await sandboxesOf(task.id)).toBe(0);
    await start(engine);
    expect(await task.end()).toMatchObject({ state: 'succeeded', attempt: 1 });
  });

  describe('on NATS, in a process of its own', () => {
    let servers: NatsServers;
    beforeAll(async () => {
      servers = await NatsServers.start();
    });
    afterAll(() => servers?.[Symbol.asyncDispose]());

    const open = (fleet: string): Promise<FleetEngine> =>
      NatsEngine.open({ ...SIZES, fleet, servers: servers.urls, monitors: servers.monitors, hideMs: 3000 });
    const startProcess = async (fleet: string): Promise<ChildProcess> => {
      const { root, runtime } = place();
      const settings = {
        file: file(),
        root,
        runtime,
        engine: { ...SIZES, fleet, servers: servers.urls, monitors: servers.monitors, hideMs: 3000 },
      };
      const child = spawn(process.execPath, [PROGRAM, JSON.stringify(settings)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      closing.push(async () => child.kill('SIGKILL'));
      await new Promise(resolve => void child.stdout?.once('data', resolve));
      return child;
    };

    it('hands the task of a worker that was killed to another one, and leaves no sandbox', async () => {
      const [engine, child] = [await open('killed'), await startProcess('killed')];
      const fleet = await fleetOf(engine);
      const task = await fleet.submit('echo attempt; sleep 3');
      for await (const _ of task.logs()) break;
      child.kill('SIGKILL');
      await until(async () => (await sandboxesOf(task.id)) === 0);
      await start(await open('killed'));
      expect(await task.end()).toMatchObject({ state: 'succeeded', attempt: 2 });
      expect(await textOf(task.logs(), 1)).toBe('attempt\nattempt\n');
      await engine.close();
    });

    it('writes nothing for a worker that was stopped past its lease, and ends its sandboxes', async () => {
      const [engine, child] = [await open('stopped'), await startProcess('stopped')];
      const fleet = await fleetOf(engine);
      const task = await fleet.submit('echo begun; sleep 3');
      for await (const _ of task.logs()) break;
      child.kill('SIGSTOP');
      await start(await open('stopped'));
      const end = await task.end();
      expect(end).toMatchObject({ state: 'succeeded', attempt: 2 });
      child.kill('SIGCONT');
      await until(async () => (await sandboxesOf(task.id)) === 0);
      expect(await task.end()).toMatchObject({ attempt: 2, result: { sandboxId: end.result?.sandboxId } });
      // It goes on under another name.
      const again = await fleet.submit('echo again');
      expect(await again.result()).toMatchObject({ stdout: 'again\n' });
      await engine.close();
    });
  });
});
