import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { CommandRunner, RunResult } from '@acode/sandbox';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Delivery } from '../engine/engine.ts';
import { MemoryEngine } from '../engine/memory.ts';
import { encodePiece } from '../tasks/log-pieces.ts';
import { hashOf, makeKeys, signed, verified } from '../tasks/signature.ts';
import { parseSpec } from '../tasks/spec.ts';
import type { TaskSpec } from '../tasks/spec.ts';
import { FleetTasks } from '../tasks/tasks.ts';
import { Fleet } from './fleet.ts';

const keys = makeKeys();
const workerKeys = makeKeys();

/** Runs nothing: it answers with what it was asked. */
class Echo {
  readonly #engine: MemoryEngine;
  readonly #tasks: FleetTasks;

  constructor(engine: MemoryEngine) {
    this.#engine = engine;
    this.#tasks = new FleetTasks(engine);
  }

  async take(): Promise<Delivery> {
    const [delivery] = await this.#engine.take({ pool: 'default', max: 1, waitMs: 5000 });
    if (!delivery) throw new Error('there is no task');
    return delivery;
  }

  /** Does one task; `claimed` happens while it is claimed. */
  async work(claimed: () => Promise<void> = async () => undefined): Promise<TaskSpec> {
    const delivery = await this.take();
    const spec = parseSpec(verified('task', delivery.task.body, [keys.publicKey]) ?? '');
    if ('sandbox' in spec) throw new Error('it is no command');
    const claiming = await this.#tasks.claim(delivery, { worker: 'w', maxAttempts: 3, holds: () => true });
    if (claiming.is !== 'claimed') throw new Error(claiming.is);
    const { claim } = claiming;
    const stdout = `${String(spec.command)} ${spec.stdin ?? ''}`;
    const piece = encodePiece([
      { stream: 1, bytes: Buffer.from(stdout) },
      { stream: 2, bytes: Buffer.from('noise') },
    ]);
    await this.#engine.appendLog(claim, { sequence: 1, bytes: piece });
    await claimed();
    const isCancelled = (await this.#tasks.standing(claim)) === 'cancel';
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const result = { exitCode: 0, stdout } as RunResult;
    const body = { ...claim, worker: 'w', logPieces: 1, ...(isCancelled ? {} : { result }) };
    await this.#tasks.finish(
      claim,
      isCancelled ? 'cancelled' : 'succeeded',
      signed('result', JSON.stringify(body), workerKeys),
    );
    await delivery.done();
    return spec;
  }
}

describe('a client of a fleet', () => {
  let engine: MemoryEngine;
  let echo: Echo;
  let outbox: string;
  beforeEach(() => {
    engine = new MemoryEngine();
    echo = new Echo(engine);
    outbox = mkdtempSync(join(tmpdir(), 'acode-outbox-'));
  });
  afterEach(() => rmSync(outbox, { recursive: true, force: true }));

  const open = (more: object = {}): Promise<Fleet> =>
    Fleet.open({ engine, tenant: 'acme', keys, workers: [workerKeys.publicKey], ...more });

  it('looks for a task that it has just queued when it hears of it, and not before', async () => {
    await using fleet = await open();
    const read = vi.spyOn(engine, 'read');
    const task = await fleet.submit(['echo']);
    expect(read).not.toHaveBeenCalled();
    await echo.work();
    read.mockClear();
    expect((await task.end()).state).toBe('succeeded');
    expect(read).toHaveBeenCalledOnce();
    // The control: one with an id of the caller’s may be there already.
    await fleet.submit(['echo'], { id: 'named' });
    expect(read).toHaveBeenCalledTimes(2);
  });

  it('runs a command as any runner does, with its input and both streams', async () => {
    const fleet = await open();
    const heard: string[] = [];
    const runner: CommandRunner = fleet;
    const running = runner.run('echo', {
      stdin: Readable.from(['of ', 'a stream']),
      onStdout: chunk => heard.push(`out ${Buffer.from(chunk).toString()}`),
      onStderr: chunk => heard.push(`err ${Buffer.from(chunk).toString()}`),
    });
    await echo.work();
    expect(await running).toMatchObject({ exitCode: 0, stdout: 'echo of a stream' });
    expect(heard).toEqual(['out echo of a stream', 'err noise']);
    await expect(runner.run('true', { stdin: Buffer.from([0xff]) })).rejects.toMatchObject({ code: 'ACODE-FLT-008' });
    const late = Readable.from([Buffer.alloc(70_000)]);
    await expect(runner.run('true', { stdin: late })).rejects.toMatchObject({ code: 'ACODE-FLT-007' });
  });

  it('streams what a spawned command prints, and takes no input later', async () => {
    const fleet = await open();
    const command = await fleet.spawn('echo');
    await expect(command.write('more')).rejects.toMatchObject({ code: 'ACODE-FLT-008' });
    await echo.work();
    const text = async (stream: AsyncIterable<Uint8Array>): Promise<string> => {
      let all = '';
      for await (const chunk of stream) all += Buffer.from(chunk).toString();
      return all;
    };
    expect(await Promise.all([text(command.stdout), text(command.stderr)])).toEqual(['echo ', 'noise']);
    expect(await command.result).toMatchObject({ exitCode: 0 });
  });

  it('cancels the task of a run whose signal aborts', async () => {
    const fleet = await open();
    const stop = new AbortController();
    const running = fleet.run('sleep', { signal: stop.signal, id: 'slow' });
    running.catch(() => undefined);
    await echo.work(async () => {
      stop.abort(new Error('enough'));
      await expect.poll(async () => (await fleet.task('slow').state())?.state).toBe('claimed');
      await expect
        .poll(async () => JSON.parse((await engine.read({ tenant: 'acme', id: 'slow' }))?.text ?? ''))
        .toMatchObject({ cancelRequested: true });
    });
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    // Queued, it ends at once.
    const queued = fleet.run('sleep', { signal: AbortSignal.timeout(50) });
    await expect(queued).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
  });

  it('submits a task again that the servers have lost, also with a claim that was on it', async () => {
    const fleet = await open();
    const task = await fleet.submit('echo', { id: 'lost' });
    await (await echo.take()).done();
    const [end] = await Promise.all([task.result(), echo.work()]);
    expect(end).toMatchObject({ stdout: 'echo ' });
  });

  it('keeps a task for another process until its end was read, with its workspace', async () => {
    const workspace = Buffer.from('a packed workspace');
    const first = await open({ outbox });
    await first.submit('echo', { id: 'kept', workspace });
    // The process and all that the servers had are gone.
    engine = new MemoryEngine();
    echo = new Echo(engine);
    const second = await open({ outbox });
    expect(second.pending().map(({ id }) => id)).toEqual(['kept']);
    const [end] = await Promise.all([second.task('kept').result(), echo.work()]);
    expect(end).toMatchObject({ stdout: 'echo ' });
    expect(Buffer.from((await engine.getBlob('acme', hashOf(workspace))) ?? '').toString()).toBe('a packed workspace');
    expect(second.pending()).toEqual([]);
    expect(readdirSync(join(outbox, 'acme'))).toEqual([]);
    // Control: without an outbox, nobody knows of it.
    expect((await open()).pending()).toEqual([]);
  });
});
