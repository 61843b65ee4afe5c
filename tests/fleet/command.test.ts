// `acode fleet …` through the built command: a server that this machine has, a worker on a real engine, and the files that join them.

import { once } from 'node:events';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BIN, Bench } from '../cli/bench.ts';
import type { Ended } from '../cli/bench.ts';
import { images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { NATS, withoutServers } from './servers.ts';

const FIRST_MS = 120_000;

describe.skipIf(withoutEngines || withoutServers)('acode fleet', () => {
  let bench: Bench;
  let up: ReturnType<Bench['start']>;
  const fleet = (...argv: readonly string[]): Promise<Ended> => bench.call(['fleet', ...argv]);
  const json = async (...argv: readonly string[]): Promise<Record<string, unknown>> => {
    const { stdout } = await fleet(...argv, '--json');
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return JSON.parse(stdout.toString()) as Record<string, unknown>;
  };
  const sandboxes = (): Promise<number> =>
    withEngine(mainEngine, async engine => {
      const found = await engine.containers.list({
        labels: ['acode.task=stopped'],
        all: true,
        signal: AbortSignal.timeout(60_000),
      });
      return found.length;
    });

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    await writeFile(join(bench.workspace, 'in.txt'), 'of the workspace\n');
    up = bench.start(['fleet', 'up', '--json', '--image', images.busybox, '--slots', '2', '--nats-server', NATS]);
    const ended = up.ended.then(({ stderr }) => Promise.reject(new Error(`it ended: ${stderr}`)));
    ended.catch(() => undefined);
    const first = new Promise<string>(resolve => {
      let text = '';
      up.child.stdout?.on('data', chunk => {
        text += String(chunk);
        if (text.endsWith('\n')) resolve(text);
      });
    });
    expect(JSON.parse(await Promise.race([first, ended]))).toMatchObject({
      schema: 'acode.fleet-up/1',
      worker: { slots: 2 },
    });
  }, FIRST_MS);
  afterAll(async () => {
    up?.child.kill('SIGKILL');
    await bench?.[Symbol.asyncDispose]();
  });

  it('runs a command as if it ran here: workspace, streams, input, status and what it left', async () => {
    const ran = await bench.call(
      [
        'fleet',
        'run',
        '--stdin',
        '--files',
        'after.tar',
        '--env',
        'X=x',
        'cat in.txt -; echo $X >made.txt; echo err >&2; exit 3',
      ],
      { stdin: Buffer.from('of the input\n') },
    );
    expect(ran).toMatchObject({ status: 3, stderr: 'err\n' });
    expect(ran.stdout.toString()).toBe('of the workspace\nof the input\n');
    const names = execFileSync('tar', ['-tf', join(bench.workspace, 'after.tar')], { encoding: 'utf8' });
    expect(names).toContain('made.txt');
    const long = await fleet('run', '--json', '--timeout', '1', '--empty', '--', 'sleep', '60');
    expect(long.status).toBe(124);
    expect(JSON.parse(long.stdout.toString())).toMatchObject({ schema: 'acode.fleet-run/1', state: 'timed_out' });
  });

  it('submits, follows and shows a task, and the same id again is the same task', async () => {
    const submitted = await fleet('submit', '--id', 'build-7', 'echo begun; sleep 1; echo ended');
    expect(submitted.stdout.toString()).toBe('build-7\n');
    // Control: nobody has read its end.
    expect(await json('status')).toMatchObject({ tenant: 'local', tasks: [{ id: 'build-7' }] });
    expect((await fleet('logs', 'build-7')).stdout.toString()).toBe('begun\nended\n');
    const again = await fleet('run', '--id', 'build-7', 'echo another');
    expect(again).toMatchObject({ status: 0 });
    expect(again.stdout.toString()).toBe('begun\nended\n');
    expect(await json('status', 'build-7')).toMatchObject({ state: 'succeeded', attempt: 1 });
    expect(await json('status')).toMatchObject({ tasks: [] });
    expect(await fleet('status', 'unknown')).toMatchObject({ status: 1 });
  });

  it('creates a persistent sandbox, runs commands in it as if they ran here, lists it and kills it', async () => {
    const created = await fleet('create', '--id', 'box', '--for', '10m', '--env', 'X=x');
    expect(created).toMatchObject({ status: 0 });
    expect(created.stdout.toString()).toBe('box\n');
    expect(created.stderr).toContain('unused for 10 min');
    const input = Buffer.alloc(200_000, 'line\n');
    const ran = await bench.call(
      ['fleet', 'exec', '--stdin', 'box', 'cat in.txt; wc -l; echo $X >left.txt; echo err >&2; exit 3'],
      { stdin: input },
    );
    expect(ran).toMatchObject({ status: 3, stderr: 'err\n' });
    expect(ran.stdout.toString()).toMatch(/^of the workspace\n\s*40000\n$/);
    expect((await fleet('exec', 'box', '--', 'cat', 'left.txt')).stdout.toString()).toBe('x\n');
    expect(JSON.parse((await fleet('exec', '--json', 'box', '--', 'true')).stdout.toString())).toMatchObject({
      schema: 'acode.fleet-exec/1',
      sandbox: 'box',
      result: { exitCode: 0 },
    });
    expect((await fleet('exec', '--timeout', '1', 'box', '--', 'sleep', '60')).status).toBe(124);
    // A signal ends the command, and not the sandbox.
    const running = bench.start(['fleet', 'exec', 'box', 'echo begun; sleep 600']);
    await once(running.child.stdout ?? running.child, 'data');
    running.child.kill('SIGINT');
    expect(await running.ended).toMatchObject({ status: 130 });
    expect(await json('list')).toMatchObject({ items: [{ id: 'box', image: images.busybox }] });
    const narrow = await bench.call(['fleet', 'list'], { env: { COLUMNS: '40' } });
    expect(narrow.stdout.toString()).toMatch(/^SANDBOX.*\nbox /);
    const unknown = await fleet('exec', 'bix', 'true');
    expect(unknown).toMatchObject({ status: 1 });
    expect(unknown.stderr).toContain('acode fleet list');
    expect(await fleet('exec', 'box')).toMatchObject({ status: 2 });
    const late = await fleet('exec', 'box', '--timeout', '5', '--', 'true');
    expect(late).toMatchObject({ status: 2 });
    expect(late.stderr).toContain('`acode fleet exec --timeout 5 box -- true`');
    expect((await fleet('creat')).stderr).toContain('create');
    expect(await fleet('kill', 'box', 'bix')).toMatchObject({ status: 1 });
    expect((await fleet('kill', 'box')).stdout.toString()).toBe('box\n');
    expect(await json('list')).toMatchObject({ items: [] });
  });

  it('cancels a task by its id, and one whose command line gets a signal', async () => {
    await fleet('submit', '--id', 'cancelled', 'sleep 600');
    await fleet('cancel', 'cancelled');
    await until(async () => (await json('status', 'cancelled'))['state'] === 'cancelled');
    const running = bench.start(['fleet', 'run', '--id', 'stopped', 'echo begun; sleep 600']);
    await once(running.child.stdout ?? running.child, 'data');
    expect(await sandboxes()).toBe(1);
    running.child.kill('SIGINT');
    expect(await running.ended).toMatchObject({ status: 130 });
    await until(async () => (await sandboxes()) === 0);
  });

  it('says what is wrong, and what to type next', async () => {
    expect(await json('doctor')).toMatchObject({
      checks: [
        { id: 'file', status: 'ok' },
        { status: 'ok' },
        { status: 'ok' },
        { status: 'ok' },
        { status: 'ok' },
        { id: 'hosts', status: 'ok' },
      ],
    });
    expect(await json('doctor', '--file', 'nowhere.yml')).toMatchObject({ checks: [{ id: 'file', status: 'failed' }] });
    const other = await fleet('run', '--image', images.debian, 'true');
    expect(other).toMatchObject({ status: 125 });
    expect(other.stderr).toContain('ACODE-FLT-008');
    const without = await bench.call(['fleet', 'up', '--image', 'x', '--nats-server', join(dirname(NATS), 'nowhere')]);
    expect(without.status).toBe(125);
    expect(without.stderr).toMatch(/ACODE-FLT-020[^]*--nats-server/);
  });

  it('takes in mode burst what this machine has no room for, and brings back what it left as a fork', async () => {
    const line = 'cat in.txt; echo new >from-fleet.txt; exit 3';
    const nowhere = ['--socket', join(bench.workspace, 'no-engine.sock')];
    const run = (...options: readonly string[]): Promise<Ended> => bench.call(['run', ...options, line]);
    // Control: no mode but burst sends anything anywhere.
    const refused = await run(...nowhere, '--image', images.busybox);
    expect(refused).toMatchObject({ status: 125 });
    expect(refused.stderr).toContain('ACODE-SBX-008');
    await bench.configure({}, 'burst');
    const here = await bench.call(['run', 'true']);
    expect(here).toMatchObject({ status: 0, stderr: '' });
    const ran = await run(...nowhere, '--image', images.busybox);
    expect(ran, ran.stderr).toMatchObject({ status: 3 });
    expect(ran.stdout.toString()).toBe('of the workspace\n');
    expect(ran.stderr).toContain('runs on your fleet');
    const [, fork = ''] = /acode fork diff (\S+?)`/.exec(ran.stderr) ?? [];
    expect((await bench.call(['fork', 'diff', '--name-only', fork])).stdout.toString()).toBe('from-fleet.txt\n');
    expect(existsSync(join(bench.workspace, 'from-fleet.txt'))).toBe(false);
    // What only this machine has is not sent, nor is anything where a stricter mode holds.
    const bound = await run(...nowhere, '--image', images.busybox, '--mount', './sub:/sub');
    expect(bound).toMatchObject({ status: 125 });
    expect(bound.stderr).toMatch(/because of --mount[^]*ACODE-SBX-008/);
    const stricter = await bench.call(['run', ...nowhere, '--image', images.busybox, line], {
      env: { ACODE_MODE: 'local-only' },
    });
    expect(stricter).toMatchObject({ status: 125 });
    expect(stricter.stderr).not.toContain('fleet');
    await bench.configure({});
  });

  it('needs its package, and says how to install it', async () => {
    const alone = join(bench.workspace, '..', 'alone', 'node_modules', 'acode');
    await mkdir(alone, { recursive: true });
    await cp(join(dirname(BIN), '..'), alone, { recursive: true, filter: source => !source.includes('node_modules') });
    const path = join(alone, 'bin', 'acode.js');
    const lines = ['fleet status', 'worker'].map(words => {
      try {
        execFileSync(process.execPath, [path, ...words.split(' ')], {
          env: bench.env,
          cwd: bench.workspace,
          stdio: 'pipe',
        });
        return '';
      } catch (error) {
        return error instanceof Error && 'stderr' in error ? String(error.stderr) : '';
      }
    });
    for (const line of lines) expect(line).toContain('node scripts/install.mjs --fleet');
    // Nothing of it is in what everybody installs.
    const manifest: unknown = JSON.parse(await readFile(join(alone, 'package.json'), 'utf8'));
    expect(manifest).not.toHaveProperty('dependencies');
    expect(await readFile(join(alone, 'bin', 'THIRD-PARTY-LICENSES.txt'), 'utf8')).not.toMatch(/@nats-io|^pg /m);
  });

  it('drains the host, and ends with its server', async () => {
    const { items } = await json('hosts');
    expect(items).toMatchObject([{ slots: 2, draining: false }]);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const [{ name }] = items as [{ name: string }];
    const drained = fleet('drain', name);
    expect(await up.ended).toMatchObject({ status: 0 });
    expect((await drained).stderr).not.toContain('ACODE-FLT-021');
    const away = await fleet('hosts');
    expect(away).toMatchObject({ status: 125 });
    expect(away.stderr).toContain('ACODE-FLT-001');
  });
});
