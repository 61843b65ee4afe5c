// Level bubblewrap by what commands come to: as in a container, and with nothing left of them.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BubblewrapBackend } from '../../packages/sandbox/src/isolation/bubblewrap/backend.ts';
import { findDelegation } from '../../packages/sandbox/src/isolation/bubblewrap/control-group.ts';
import { underFilter } from '../support/under-filter.ts';
import { LevelBench, OPTIONS } from './bench.ts';
import { untilGone, guardsOf, lives, untilLives, oddSeconds } from './host-processes.ts';
import { figure } from '../support/waiting.ts';

const skipped = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');
const delegated = !skipped && (await findDelegation()) !== null;
const MIB = 1024 ** 2;

// What does not apply is not there, so that no test is ever seen skipped.
const describeWhere = (applies: boolean): ((name: string, body: () => void) => void) =>
  applies ? describe : () => undefined;

describe.skipIf(skipped)('a bubblewrap sandbox', () => {
  let bench: LevelBench;
  beforeAll(() => {
    bench = new LevelBench(new BubblewrapBackend({ ...OPTIONS, acceptProcessLimits: true }));
  });
  afterAll(() => bench[Symbol.asyncDispose]());

  it('is proven by a probe that makes one', async () => {
    const capability = await bench.backend.probe(AbortSignal.timeout(60_000));
    expect(capability).toMatchObject({ level: 'bubblewrap', available: true });
    expect(capability.reason).toBeUndefined();
  });

  it('gives a command its exit status, its streams apart, and its input', async () => {
    const result = await bench.run(['sh', '-c', 'cat; echo err >&2; exit 7'], { stdin: 'hello' });
    expect(result).toMatchObject({ exitCode: 7, stdout: 'hello', stderr: 'err\n' });
  });

  it.each([
    ['a line for the shell', 'printf %s "a b" | tr a c', 'c b'],
    ['words that no shell sees', ['printf', '%s|%s|%s', '$(id)', 'a  b', 'it\'s \n"x"'], '$(id)|a  b|it\'s \n"x"'],
  ])('runs %s', async (_, command, wanted) => {
    expect((await bench.run(command)).stdout).toBe(wanted);
  });

  it('says why a command never started', async () => {
    expect(await bench.run(['no-such-program'])).toMatchObject({ exitCode: 127, neverStarted: 'missing' });
    expect(await bench.run(['/workspace/.git/HEAD'])).toMatchObject({ exitCode: 126, neverStarted: 'forbidden' });
    expect(await bench.run(['true'], { cwd: '/workspace/nowhere' })).toMatchObject({ neverStarted: 'cwd' });
  });

  it('passes on a megabyte in each direction, unchanged', async () => {
    const input = Buffer.alloc(MIB, 'abcdefghij\n').toString();
    expect((await bench.run(['cat'], { stdin: input })).stdout).toBe(input);
  });

  it('takes commands that read nothing of what they are given', async () => {
    expect(await bench.run(['true'], { stdin: 'x'.repeat(4 * MIB) })).toMatchObject({ exitCode: 0 });
  });

  it('has streams that can be opened by name, as scripts do, and that are no sockets to the host', async () => {
    const script = 'cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr; ls -l /proc/self/fd | grep -c socket';
    const result = await bench.run(script, { stdin: 'in\n' });
    expect(result).toMatchObject({ stdout: 'in\nout\n0\n', stderr: 'err\n' });
  });

  it('reports a command that was ended by a signal as a shell does', async () => {
    expect((await bench.run('kill -SEGV $$')).exitCode).toBe(139);
  });

  it('ends with the shell that waits, if the command kills it', async () => {
    // Longer than a test may take: it is not waited for.
    expect((await bench.run('kill -9 $PPID; sleep 600')).exitCode).toBe(137);
  });

  it('ends a command at its time limit, and what it printed is kept', async () => {
    const result = await bench.run('echo before; sleep 600', { timeoutMs: 2000 });
    expect(result).toMatchObject({ timedOut: true, stdout: 'before\n', exitCode: 143 });
  });

  it('is gone when its caller cancels, and says so', async () => {
    const seconds = oddSeconds();
    const stop = new AbortController();
    const running = bench.run(`echo on; sleep ${seconds}`, { signal: stop.signal, onOutput: () => stop.abort() });
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    await untilGone(`sleep ${seconds}`);
  });

  it('can be used once, and never after it was removed', async () => {
    const handover = { command: ['true'], cwd: '/workspace', env: {}, nonce: 'a'.repeat(32) };
    const io = { stdout: () => undefined, stderr: () => undefined };
    const sandbox = await bench.waiting();
    const { signal } = new AbortController();
    await (
      await sandbox.execute(handover, io, signal)
    ).ended;
    await expect(sandbox.execute(handover, io, signal)).rejects.toMatchObject({ code: 'ACODE-SBX-019' });
    await sandbox[Symbol.asyncDispose]();
    const unused = await bench.waiting();
    await unused[Symbol.asyncDispose]();
    await expect(unused.execute(handover, io, signal)).rejects.toMatchObject({ code: 'ACODE-SBX-019' });
  });

  it('shows further directories where the plan has them, read-only unless told otherwise', async () => {
    const other = new LevelBench(bench.backend);
    other.put('data', 'from elsewhere');
    const mounts = [{ source: other.workspace, target: '/data' }];
    const { stdout, exitCode } = await bench.run('cat /data/data; echo x >/data/data', { mounts });
    expect(stdout).toBe('from elsewhere');
    expect(exitCode).not.toBe(0);
    const writable = [{ source: other.workspace, target: '/data', readOnly: false }];
    expect((await bench.run('echo x >/data/data', { mounts: writable })).exitCode).toBe(0);
    expect(readFileSync(join(other.workspace, 'data'), 'utf8')).toBe('x\n');
    expect((await bench.run('echo x >new', { readOnly: true })).exitCode).not.toBe(0);
    await other[Symbol.asyncDispose]();
  });

  it.each([
    ['a network', { network: { kind: 'bridge' } as const }],
    ['a network by name', { network: { kind: 'named' as const, name: 'mine' } }],
    ['a port', { ports: [{ container: 80 }] }],
    ['a runtime', { runtime: 'runsc' }],
    ['another user', { user: { uid: 4711, gid: 4711 } }],
  ])('refuses %s, with what to do next', async (_, changes) => {
    const error: unknown = await bench.waiting({ changes }).catch((reason: unknown) => reason);
    expect(error).toMatchObject({ code: 'ACODE-SBX-016' });
    expect(error).toHaveProperty('hint', expect.stringMatching(/^Leave the/));
  });

  it('refuses a directory with another file system mounted in it, rather than showing that too', async () => {
    const { mounts } = await bench.spec();
    const shown = (source: string) => {
      const { dev: device, ino: inode } = statSync(source);
      const mount = {
        purpose: 'additional',
        source,
        target: '/data',
        readOnly: true,
        identity: { device, inode },
      } as const;
      return bench.run('ls /data', { changes: { mounts: [...mounts, mount] } });
    };
    // No planner would give this to a sandbox, but every machine has it, with others mounted below it.
    await expect(shown('/sys')).rejects.toMatchObject({
      code: 'ACODE-SBX-010',
      context: { detail: expect.stringContaining('is a mount of its own below /sys') as string },
    });
    expect(await shown('/usr/share')).toMatchObject({ exitCode: 0 });
  });

  it('runs many at once', async () => {
    const results = await Promise.all(Array.from({ length: 8 }, (_, index) => bench.run(`echo ${index}`)));
    expect(results.map(({ stdout }) => stdout)).toEqual(['0\n', '1\n', '2\n', '3\n', '4\n', '5\n', '6\n', '7\n']);
  });

  it('leaves no process when its client is killed with SIGKILL', async () => {
    const seconds = oddSeconds();
    const program = new URL('client.mjs', import.meta.url).pathname;
    const line = `setsid sleep ${seconds} >/dev/null 2>&1 & trap "" TERM HUP; sleep ${seconds}`;
    const client = spawn(process.execPath, [program, 'bubblewrap', line], { cwd: bench.workspace, stdio: 'inherit' });
    await untilLives(`sleep ${seconds}`);
    const guards = guardsOf(client.pid);
    expect(guards.length).toBe(1);
    client.kill('SIGKILL');
    figure('killed client to nothing left, bubblewrap', await untilGone(seconds), 1000);
    // Also the guard, which outlives its client on purpose.
    await expect.poll(() => guards.some(lives)).toBe(false);
  });

  it('says that it cannot be used where user namespaces are forbidden, and nothing is run', () => {
    // Forbidden as a container forbids them: by a filter on the client itself, which is the one that sandboxes get.
    const client = new URL('client.mjs', import.meta.url).pathname;
    const argv = [process.execPath, client, 'bubblewrap', '--probe'];
    const env = { ...process.env, ACODE_TEST_MEMORY: bench.workspace };
    const probe = ([program = '', ...words]: readonly string[]): unknown =>
      JSON.parse(execFileSync(program, words, { cwd: bench.workspace, timeout: 20_000, env }).toString());
    // That it could be used a moment ago, by a process without the filter, is remembered and says nothing about this one.
    expect(probe(argv)).toMatchObject({ available: true });
    expect(existsSync(join(bench.workspace, 'bubblewrap-held'))).toBe(true);
    expect(probe(underFilter(join(bench.workspace, 'filter'), argv))).toMatchObject({
      available: false,
      reason: expect.stringMatching(/bwrap: .*namespace/) as string,
    });
    expect(probe(argv)).toMatchObject({ available: true });
  });
});

describeWhere(!delegated)('a bubblewrap sandbox without a control group', () => {
  it('says what is missing where no control group was given to the user, and what would help', async () => {
    const bench = new LevelBench(new BubblewrapBackend({ ...OPTIONS, acceptProcessLimits: true }));
    const strict = new BubblewrapBackend({ ...OPTIONS, acceptProcessLimits: false });
    const { available, reason, remedy } = await strict.probe(AbortSignal.timeout(60_000));
    expect(available).toBe(false);
    expect(reason).toContain('no control group');
    expect(remedy).toContain('systemd-run --user --scope');
    expect(remedy).toContain('accept_process_limits true');
    await expect(strict.prepare(await bench.spec(), AbortSignal.timeout(60_000))).rejects.toMatchObject({
      code: 'ACODE-SBX-012',
    });
    await bench[Symbol.asyncDispose]();
  });
});

// In the proof this is a run of its own, in a group that was given to the user.
describeWhere(delegated)('a bubblewrap sandbox in a control group of the user’s own', () => {
  let bench: LevelBench;
  beforeAll(() => {
    bench = new LevelBench(new BubblewrapBackend({ ...OPTIONS, acceptProcessLimits: false }));
  });
  afterAll(() => bench[Symbol.asyncDispose]());

  let parent = '';
  beforeAll(async () => void (parent = (await findDelegation())?.directories.memory ?? ''));
  const groups = (of = process.pid): string[] => readdirSync(parent).filter(name => name.startsWith(`acode-${of}-`));

  it('needs no consent', async () => {
    expect(await bench.backend.probe(AbortSignal.timeout(60_000))).toMatchObject({ available: true });
  });

  it('E2: is held to its memory as a whole, and says that it was, also where the command outlives it', async () => {
    const bomb = '/usr/bin/python3 -I -c "x = bytearray(200 * 1024 * 1024)"';
    const limits = { memoryBytes: 64 * MIB };
    expect(await bench.run(bomb, { limits })).toMatchObject({ exitCode: 137, oomKilled: true });
    expect(await bench.run(`${bomb}; exit 0`, { limits })).toMatchObject({ exitCode: 0, oomKilled: true });
    const many =
      'import os\nfor i in range(4):\n  if os.fork() == 0:\n    x = bytearray(40 * 1024 * 1024); os._exit(0)\nfor i in range(4): os.wait()';
    expect(await bench.run(['/usr/bin/python3', '-I', '-c', many], { limits })).toMatchObject({ oomKilled: true });
    const roomy = { limits: { memoryBytes: 512 * MIB } };
    expect(await bench.run(bomb, roomy)).toMatchObject({ exitCode: 0, oomKilled: false });
  });

  it('E1: is held to its number of processes, and says that it was', async () => {
    const script = 'i=0; while [ $i -lt 60 ]; do sleep 2 & i=$((i+1)); done; echo all';
    expect(await bench.run(script, { limits: { pids: 16 } })).toMatchObject({ pidsRefused: true, stdout: '' });
    expect(await bench.run(script, { limits: { pids: 128 } })).toMatchObject({ pidsRefused: false, stdout: 'all\n' });
  });

  it('says what it used', async () => {
    const { usage } = await bench.run('i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done');
    expect(usage?.peakMemoryBytes).toBeGreaterThan(100_000);
    expect(usage?.cpuMs).toBeGreaterThan(10);
  });

  it('leaves no group behind', async () => {
    const sandbox = await bench.waiting();
    expect(groups().length).toBeGreaterThan(0);
    await sandbox[Symbol.asyncDispose]();
    await expect.poll(() => groups()).toEqual([]);
  });

  it('leaves no group behind when its client is killed with SIGKILL', async () => {
    const seconds = oddSeconds();
    const program = new URL('client.mjs', import.meta.url).pathname;
    const argv = [program, 'bubblewrap', `sleep ${seconds}`];
    const client = spawn(process.execPath, argv, { cwd: bench.workspace, stdio: 'inherit' });
    await untilLives(`sleep ${seconds}`);
    const own = (): string[] => groups(client.pid);
    expect(own().length).toBe(1);
    client.kill('SIGKILL');
    await untilGone(`sleep ${seconds}`);
    await expect.poll(own).toEqual([]);
  });
});
