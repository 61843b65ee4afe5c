// Levels ulimit and none by what commands come to: the same contract, and what they do not hold said plainly.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WeakenedBackend } from '../../packages/sandbox/src/isolation/backend.ts';
import { NoneBackend } from '../../packages/sandbox/src/isolation/none/backend.ts';
import { UlimitBackend } from '../../packages/sandbox/src/isolation/ulimit/backend.ts';
import { LevelBench, OPTIONS } from './bench.ts';
import { untilGone, untilLives, oddSeconds, processesOf } from './host-processes.ts';
import { figure } from '../support/waiting.ts';

const root = process.getuid?.() === 0;
const MIB = 1024 ** 2;
const PYTHON = '/usr/bin/python3';
const ROOMY = { limits: { memoryBytes: 512 * MIB } };

const BACKENDS: [name: string, make: () => WeakenedBackend & { readonly notes: readonly string[] }][] = [
  ['ulimit', () => new UlimitBackend(OPTIONS)],
  ['none', () => new NoneBackend(OPTIONS)],
];

describe.skipIf(root).each(BACKENDS)('level %s', (level, make) => {
  let bench: LevelBench;
  beforeAll(() => {
    bench = new LevelBench(make());
  });
  afterAll(() => bench[Symbol.asyncDispose]());

  it('is there for an ordinary user, and says that it is no boundary', async () => {
    expect(await bench.backend.probe(AbortSignal.timeout(60_000))).toMatchObject({ level, available: true });
    expect(make().notes.join(' ')).toContain('no security boundary');
    expect(JSON.stringify(bench.backend.describe(await bench.spec()))).toContain('no security boundary');
  });

  it('gives a command its exit status, its streams apart, and its input', async () => {
    const result = await bench.run(['sh', '-c', 'cat; echo err >&2; exit 7'], { stdin: 'hello' });
    expect(result).toMatchObject({ exitCode: 7, stdout: 'hello', stderr: 'err\n' });
  });

  it('hands words over unchanged', async () => {
    const odd = ['$(id)', 'a  b', 'it\'s \n"x"', '`id`', ';', '*'];
    const { stdout } = await bench.run(['printf', '%s|', ...odd]);
    expect(stdout).toBe(odd.map(word => `${word}|`).join(''));
  });

  it('says why a command never started', async () => {
    expect(await bench.run(['no-such-program'])).toMatchObject({ exitCode: 127, neverStarted: 'missing' });
    expect(await bench.run(['true'], { cwd: '/workspace/nowhere' })).toMatchObject({ neverStarted: 'cwd' });
  });

  it('F1: gives a command the allow-list and nothing of the caller’s environment', async () => {
    process.env['ACODE_TEST_SECRET'] = 'of the caller';
    try {
      const { stdout } = await bench.run('env | cut -d= -f1 | sort', { env: { GIVEN: 'one' } });
      expect(stdout.trim().split('\n')).toEqual(['ACODE_SANDBOX_ID', 'GIVEN', 'HOME', 'PATH', 'PWD', 'TMPDIR']);
      const control = await bench.run('env', { weakenings: ['environment', 'verification'] });
      expect(control.stdout).toContain('ACODE_DOCTOR_LEAK=1');
    } finally {
      delete process.env['ACODE_TEST_SECRET'];
    }
  });

  it('gives a command a home of its own, which goes with it', async () => {
    const { stdout } = await bench.run('echo x >"$HOME/file"; echo "$HOME"');
    expect(stdout.trim().startsWith(tmpdir())).toBe(true);
    expect(existsSync(stdout.trim())).toBe(false);
  });

  it('settles although a process in the background holds its output, and ends that one', async () => {
    const seconds = oddSeconds();
    expect(await bench.run(`sleep ${seconds} & echo end`)).toMatchObject({ exitCode: 0, stdout: 'end\n' });
    await untilGone(`sleep ${seconds}`);
  });

  it('E10: finds a process that left for a session of its own; one that also clears its environment it does not', async () => {
    const seconds = oddSeconds();
    await bench.run(`setsid sleep ${seconds} >/dev/null 2>&1 & sleep 0.2; echo`);
    await untilGone(`sleep ${seconds}`);
    await bench.run(`setsid env -i sleep ${seconds} >/dev/null 2>&1 & sleep 0.2; echo`);
    const left = processesOf(`sleep ${seconds}`);
    for (const pid of left) process.kill(pid, 'SIGKILL');
    expect(left.length).toBe(1);
  });

  it('is gone when its caller cancels', async () => {
    const seconds = oddSeconds();
    const stop = new AbortController();
    const running = bench.run(`echo on; sleep ${seconds}`, { signal: stop.signal, onOutput: () => stop.abort() });
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    await untilGone(`sleep ${seconds}`);
  });

  it('leaves no process and no directory when its client is killed with SIGKILL', async () => {
    const seconds = oddSeconds();
    const program = new URL('client.mjs', import.meta.url).pathname;
    const line = `trap "" TERM HUP; echo "$HOME" >home; sleep ${seconds}`;
    const client = spawn(process.execPath, [program, level, line], { cwd: bench.workspace, stdio: 'inherit' });
    await untilLives(`sleep ${seconds}`);
    const home = readFileSync(join(bench.workspace, 'home'), 'utf8').trim();
    expect(existsSync(home)).toBe(true);
    client.kill('SIGKILL');
    figure(`killed client to nothing left, ${level}`, await untilGone(seconds), 1000);
    await expect.poll(() => existsSync(home)).toBe(false);
  });

  it('finds a workspace that was exchanged after it was checked', async () => {
    const away = `${bench.workspace}.away`;
    const swap = async (): Promise<void> => {
      renameSync(bench.workspace, away);
      mkdirSync(bench.workspace);
    };
    try {
      await expect(bench.run('true', { beforeCreate: swap })).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'MountMismatch' },
      });
    } finally {
      rmSync(bench.workspace, { recursive: true });
      renameSync(away, bench.workspace);
    }
    expect(await bench.run('true')).toMatchObject({ exitCode: 0 });
  });

  it.each([
    ['a network', { changes: { network: { kind: 'bridge' } as const } }],
    ['a port', { changes: { ports: [{ container: 80 }] } }],
    ['a runtime', { changes: { runtime: 'runsc' } }],
    ['another user', { changes: { user: { uid: 4711, gid: 4711 } } }],
    ['a read-only workspace', { readOnly: true }],
  ])('refuses %s, which it could not hold', async (_, wish) => {
    await expect(bench.waiting(wish)).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
  });

  it('refuses further mounts', async () => {
    const other = new LevelBench(make());
    const mounts = [{ source: other.workspace, target: '/data' }];
    await expect(bench.waiting({ mounts })).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
    await other[Symbol.asyncDispose]();
  });

  it('has no control for protections that it does not have', () => {
    for (const weakening of ['seccomp', 'network', 'protected-paths', 'read-only-root', 'pids'] as const)
      expect(() => bench.backend.weakened([weakening])).toThrow(expect.objectContaining({ code: 'ACODE-SBX-016' }));
  });

  it('leaves nothing in the temporary directory', async () => {
    const homes = (): string[] => readdirSync(tmpdir()).filter(name => name.startsWith('acode-home-'));
    const before = homes().length;
    await bench.run('true');
    expect(homes().length).toBeLessThanOrEqual(before);
  });
});

describe.skipIf(root)('the limits of level ulimit', () => {
  let bench: LevelBench;
  beforeAll(() => {
    bench = new LevelBench(new UlimitBackend({ ...OPTIONS, cpuSeconds: 1, fileBytes: MIB }));
  });
  afterAll(() => bench[Symbol.asyncDispose]());

  it('are those of the plan and the settings, by the command’s own account', async () => {
    const { stdout } = await bench.run('ulimit -t; ulimit -f; ulimit -n; ulimit -v; ulimit -c', {
      limits: { openFiles: 99 },
    });
    expect(stdout).toBe(`1\n${MIB / 512}\n99\n${256 * 1024}\n0\n`);
  });

  it('end a command that computes for too long', async () => {
    expect((await bench.run('while :; do :; done', { timeoutMs: 20_000 })).exitCode).toBeGreaterThan(128);
  });

  it('end a file at its size, a process at its memory and its descriptors', async () => {
    expect((await bench.run('dd if=/dev/zero of=big bs=1024 count=2048')).exitCode).not.toBe(0);
    expect((await bench.run('dd if=/dev/zero of=big bs=1024 count=512')).exitCode).toBe(0);
    const bomb = [PYTHON, '-I', '-c', 'x = bytearray(300 * 1024 * 1024)'];
    expect((await bench.run(bomb)).exitCode).not.toBe(0);
    expect((await bench.run(bomb, ROOMY)).exitCode).toBe(0);
    const open = [PYTHON, '-I', '-c', "a = [open('/dev/null') for i in range(200)]"];
    expect((await bench.run(open, { limits: { openFiles: 64 } })).exitCode).not.toBe(0);
    expect((await bench.run(open, { limits: { openFiles: 256 } })).exitCode).toBe(0);
  });

  it('cannot be raised by the command', async () => {
    expect((await bench.run('ulimit -n 5000 && echo raised')).stdout).toBe('');
  });

  it('leave the address space alone where the settings say so', async () => {
    const free = new LevelBench(new UlimitBackend({ ...OPTIONS, virtualMemoryBytes: null }));
    expect((await free.run('ulimit -v')).stdout).toBe('unlimited\n');
    await free[Symbol.asyncDispose]();
  });
});
