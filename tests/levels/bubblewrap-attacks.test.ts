// The attack corpus on level bubblewrap, each row with a control: the same in a sandbox that lacks one protection, or outside.

import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { Weakening } from '../../packages/sandbox/src/isolation/backend.ts';
import { BubblewrapBackend } from '../../packages/sandbox/src/isolation/bubblewrap/backend.ts';
import { LevelBench, OPTIONS } from './bench.ts';
import type { Outcome, Wish } from './bench.ts';
import { Canaries, REACH } from './canaries.ts';
import { goneWithin, guardsOf, livesWithin, oddSeconds, processesOf, processesWith } from './host-processes.ts';

const skipped = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');
const PYTHON = '/usr/bin/python3';
const MIB = 1024 ** 2;

const calls = z.record(z.string(), z.record(z.string(), z.string()));
const answers = z.record(z.string(), z.tuple([z.string(), z.string()]));

describe.skipIf(skipped)('attacks in a bubblewrap sandbox', () => {
  let bench: LevelBench;
  beforeAll(() => {
    bench = new LevelBench(new BubblewrapBackend({ ...OPTIONS, acceptProcessLimits: true }));
    bench.put('calls.py', readFileSync(new URL('../seccomp/calls.py', import.meta.url)));
    bench.put('probes.py', readFileSync(new URL('../attacks/fixtures/probes.py', import.meta.url)));
  });
  afterAll(() => bench[Symbol.asyncDispose]());

  const without = (...weakenings: Weakening[]): Wish => ({ weakenings: [...weakenings, 'verification'] });
  const python = (program: string, wish: Wish = {}, ...argv: string[]): Promise<Outcome> =>
    bench.run([PYTHON, '-I', '-c', program, ...argv], wish);

  describe('on the kernel', () => {
    let filtered: z.infer<typeof calls>;
    let open: z.infer<typeof calls>;
    let inside: z.infer<typeof answers>;
    let unfiltered: z.infer<typeof answers>;
    const last = (text: string): unknown => JSON.parse(text.trim().split('\n').at(-1) ?? '');

    beforeAll(async () => {
      const raw = [PYTHON, '/workspace/calls.py', '/tmp'];
      const probes = [PYTHON, '/workspace/probes.py', '/workspace'];
      filtered = calls.parse(last((await bench.run(raw)).stdout));
      open = calls.parse(last((await bench.run(raw, without('seccomp'))).stdout));
      inside = answers.parse(last((await bench.run(probes)).stdout));
      unfiltered = answers.parse(last((await bench.run(probes, without('seccomp'))).stdout));
    });

    it('every dangerous call is refused with EPERM, and only because of the filter', () => {
      const denied = Object.entries(filtered['denied'] ?? {});
      expect(denied.length).toBeGreaterThan(60);
      expect(denied.filter(([, answer]) => answer !== 'EPERM')).toEqual([]);
      // The kernel refuses an ordinary user some of them anyway; most get further without the filter.
      const further = Object.entries(open['denied'] ?? {}).filter(([, answer]) => answer !== 'EPERM');
      expect(further.length).toBeGreaterThan(50);
    });

    it('A9: a call by the numbers of another architecture ends the program', () => {
      expect(Object.values(filtered['killed'] ?? {})).not.toEqual([]);
      for (const answer of Object.values(filtered['killed'] ?? {})) expect(answer).toBe('SIGSYS');
      for (const answer of Object.values(open['killed'] ?? {})) expect(answer).not.toBe('SIGSYS');
    });

    it('ordinary work is let through', () => {
      for (const [name, answer] of Object.entries(filtered['allowed'] ?? {}))
        expect([name, answer]).toEqual([name, 'ok']);
    });

    it('A1–A17, A21–A23: nothing of the corpus is done inside, and what needs no capability is, without the filter', () => {
      const harmless = new Set(['kernel', 'family unix', 'family inet', 'family inet6', 'family netlink']);
      const done = Object.entries(inside).filter(([name, [what]]) => what === 'done' && !harmless.has(name));
      expect(done).toEqual([]);
      expect(Object.keys(inside).length).toBeGreaterThan(50);
      for (const name of harmless) expect([name, inside[name]?.[0]]).toEqual([name, 'done']);
      for (const name of ['add_key', 'keyctl', 'io_uring'])
        expect([name, unfiltered[name]?.[0]]).toEqual([name, 'done']);
    });

    it('A4: no user namespace can be made, with the filter or without it', () => {
      for (const name of ['unshare(NEWUSER)', 'clone(NEWUSER)', 'clone3(NEWUSER)']) {
        expect(['EPERM', 'ENOSYS']).toContain(inside[name]?.[1]);
        // The second wall: bubblewrap leaves the sandbox none to make.
        expect(unfiltered[name]).toEqual(['refused', 'ENOSPC']);
      }
    });
  });

  it('A16: no process of the host is visible, or can be signalled', async () => {
    const seconds = oddSeconds();
    const other = spawn('/bin/sleep', [seconds]);
    try {
      expect(await livesWithin(`/bin/sleep ${seconds}`, 2000)).toBe(true);
      const look = `cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -0 ${other.pid} 2>&1; kill -9 ${other.pid} 2>&1; true`;
      const { stdout } = await bench.run(look);
      expect(stdout).toContain('bwrap');
      expect(stdout).not.toContain(seconds);
      expect(processesWith(seconds)).toEqual([other.pid]);
      // The same words outside find it.
      const { stdout: outside } = await promisify(execFile)('/bin/sh', [
        '-c',
        `tr '\\0' ' ' </proc/${other.pid}/cmdline`,
      ]);
      expect(outside).toContain(seconds);
    } finally {
      other.kill('SIGKILL');
    }
  });

  it('A18: a descriptor that the client was started with does not come in', async () => {
    const secret = mkdtempSync('/var/tmp/acode-test-secret-');
    writeFileSync(join(secret, 'secret'), 'a secret of the host');
    const client = new URL('client.mjs', import.meta.url).pathname;
    const script = `exec 4<"$1"; ${PYTHON} -I -c 'import os,sys; os.dup2(4, 77, inheritable=True); os.execv(sys.argv[1], sys.argv[1:])' "$2" "$3" bubblewrap "$4"`;
    const look = 'ls -l /proc/self/fd /proc/$$/fd; cat /proc/self/fd/77 <&77; true';
    try {
      const argv = ['-c', script, 'sh', join(secret, 'secret'), process.execPath, client, look];
      const { stdout } = await promisify(execFile)('/bin/sh', argv, { cwd: bench.workspace, timeout: 20_000 });
      expect(stdout).toContain('77 -> /dev/null');
      expect(stdout).not.toContain('a secret of the host');
      // The client itself has it.
      expect(stdout).toContain(`client 77: ${secret}/secret`);
    } finally {
      rmSync(secret, { recursive: true });
    }
  });

  it('B4: a workspace that is swapped for a link after it was checked is found, and nothing runs', async () => {
    const secret = mkdtempSync('/var/tmp/acode-test-secret-');
    writeFileSync(join(secret, 'secret'), 'a secret of the host');
    const swap = async (): Promise<void> => {
      renameSync(bench.workspace, `${bench.workspace}.away`);
      symlinkSync(secret, bench.workspace);
    };
    const back = (): void => {
      rmSync(bench.workspace);
      renameSync(`${bench.workspace}.away`, bench.workspace);
    };
    const attempt = async (wish: Wish): Promise<unknown> => {
      try {
        return await bench.run('cat /workspace/secret', { ...wish, beforeCreate: swap });
      } catch (error) {
        return error;
      } finally {
        back();
      }
    };
    try {
      const spec = { changes: { mounts: (await bench.spec()).mounts.slice(0, 1) } };
      expect(await attempt(spec)).toMatchObject({ code: 'ACODE-SBX-010', context: { violation: 'MountMismatch' } });
      expect(await attempt({ ...spec, weakenings: ['verification'] })).toMatchObject({
        stdout: 'a secret of the host',
      });
    } finally {
      rmSync(secret, { recursive: true });
    }
  });

  describe('on what the host runs afterwards', () => {
    const ATTEMPTS = {
      C1: 'echo evil >.git/hooks/pre-commit',
      C2: 'echo "[core] fsmonitor = evil" >>.git/config',
      C3: 'mv .git .g && mkdir .git',
      C4: 'echo evil >.git/commondir; echo evil >.git/config.worktree; mkdir -p .git/modules/x .git/info',
    };
    it.each(Object.entries(ATTEMPTS))(
      '%s: the repository cannot be changed, and the rest of the workspace can',
      async (_, script) => {
        const before = readFileSync(join(bench.workspace, '.git/config'), 'utf8');
        const { exitCode, stderr } = await bench.run(`echo fine >ordinary && ${script}`);
        expect(exitCode).not.toBe(0);
        expect(stderr).toMatch(/Read-only file system|Device or resource busy/);
        expect(readFileSync(join(bench.workspace, 'ordinary'), 'utf8')).toBe('fine\n');
        expect(readFileSync(join(bench.workspace, '.git/config'), 'utf8')).toBe(before);
        expect(existsSync(join(bench.workspace, '.git/hooks/pre-commit'))).toBe(false);
        // On a copy, without the cover.
        const control = new LevelBench(bench.backend);
        try {
          expect((await control.run(script, without('protected-paths'))).exitCode).toBe(0);
        } finally {
          rmSync(control.workspace, { recursive: true });
        }
      },
    );
  });

  describe('on the network', () => {
    let canaries: Canaries;
    beforeAll(async () => void (canaries = await Canaries.start()));
    afterAll(() => canaries[Symbol.asyncDispose]());
    const names = (): string[] => [String(canaries.tcp), String(canaries.udp), canaries.abstract, canaries.path];

    it('D1, D2, D12: no server of this host is reached, by address, by abstract name or by path', async () => {
      const { stdout } = await python(REACH, {}, ...names());
      expect(stdout).toBe('tcp ECONNREFUSED\nudp sent\nabstract ECONNREFUSED\npath ENOENT\noutside ENETUNREACH\n');
      expect(canaries.reached).toEqual({ tcp: 0, udp: 0, abstract: 0, path: 0 });
    });

    it('with the host’s network they are, but for the one with a path, which is not there', async () => {
      const { stdout } = await python(REACH, without('network'), ...names());
      expect(stdout).toMatch(/^tcp canary\nudp sent\nabstract canary\npath ENOENT\n/);
      expect(canaries.reached).toMatchObject({ tcp: 1, abstract: 1, path: 0 });
      const { stdout: outside } = await promisify(execFile)(PYTHON, ['-I', '-c', REACH, ...names()]);
      expect(outside).toContain('path canary');
    });
  });

  describe('on resources', () => {
    const FORK = `
import os, time
made = 0
try:
    while made < 300:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except OSError as e:
    pass
print(made)
os.kill(0, 9)`;

    it('E1: a fork bomb stops at the limit', async () => {
      const { stdout, pidsRefused } = await python(FORK.replace('os.kill(0, 9)', ''), { limits: { pids: 32 } });
      expect(Number(stdout)).toBeGreaterThan(10);
      expect(Number(stdout)).toBeLessThanOrEqual(32);
      expect(typeof pidsRefused).toBe('boolean');
      const control = await python(FORK.replace('os.kill(0, 9)', ''), { limits: { pids: 32 }, ...without('pids') });
      expect(Number(control.stdout)).toBe(300);
    });

    it('E2: memory beyond the limit cannot be had', async () => {
      const program = 'x = bytearray(300 * 1024 * 1024); print(len(x))';
      const result = await python(program, { limits: { memoryBytes: 128 * MIB } });
      expect(result.exitCode).not.toBe(0);
      expect(result.stdout).toBe('');
      const control = await python(program, { limits: { memoryBytes: 128 * MIB }, ...without('memory') });
      expect(control).toMatchObject({ exitCode: 0, stdout: `${300 * MIB}\n` });
    });

    it.each(['/tmp', '/home/sandbox', '/run'])('E3: %s ends at its size', async place => {
      const fill = `dd if=/dev/zero of=${place}/big bs=1M count=16 2>&1`;
      const { exitCode, stdout } = await bench.run(fill);
      expect(exitCode).toBe(1);
      expect(stdout).toContain('No space left on device');
      expect((await bench.run(fill, without('tmpfs-size'))).exitCode).toBe(0);
    });

    it('E5: shared memory ends at the memory limit, and /dev itself takes nothing', async () => {
      const { stdout } = await bench.run(
        'dd if=/dev/zero of=/dev/shm/big bs=1M count=24 2>&1; echo x >/dev/file || echo refused',
        { limits: { memoryBytes: 16 * MIB } },
      );
      // Where a control group holds all memory together, it may come first.
      expect(stdout).toMatch(/No space left on device|Killed/);
      expect(stdout).toContain('refused');
      expect((await bench.run('dd if=/dev/zero of=/dev/shm/big bs=1M count=24 2>&1')).exitCode).toBe(0);
    });

    it('E8: descriptors end at the limit', async () => {
      const program = `
import os
held = []
try:
    while len(held) < 600: held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as e: pass
print(len(held))`;
      const { stdout } = await python(program, { limits: { openFiles: 64 } });
      expect(Number(stdout)).toBeLessThan(64);
      expect(Number((await python(program, { limits: { openFiles: 64 }, ...without('open-files') })).stdout)).toBe(600);
    });

    it('E9: a command that ignores SIGTERM is dead within the grace', async () => {
      const began = Date.now();
      const script = 'trap "" TERM INT HUP; echo on; while :; do sleep 1; done';
      const result = await bench.run(script, { timeoutMs: 300 });
      expect(result).toMatchObject({ timedOut: true, stdout: 'on\n', exitCode: 137 });
      expect(Date.now() - began).toBeLessThan(5000);
    });

    it('E10: a process in a session of its own ends with the sandbox', async () => {
      const seconds = oddSeconds();
      const script = `setsid sleep ${seconds} >/dev/null 2>&1 & sleep 0.2; echo left; sleep 0.3`;
      let lived = false;
      const result = await bench.run(script, {
        onOutput: () => void (lived = processesOf(`sleep ${seconds}`).length === 1),
      });
      expect(result.stdout).toBe('left\n');
      expect(lived).toBe(true);
      expect(await goneWithin(`sleep ${seconds}`, 1000)).not.toBeNull();
      // Outside, it outlives the shell that started it.
      await promisify(execFile)('/bin/sh', ['-c', `setsid sleep ${seconds} >/dev/null 2>&1 & sleep 0.2`]);
      const [left] = processesOf(`sleep ${seconds}`);
      expect(left).toBeDefined();
      if (left) process.kill(left, 'SIGKILL');
    });
  });

  it.runIf(process.arch === 'x64')(
    'F14: a command that cuts the first process’s tie to bubblewrap dies with its client all the same',
    async () => {
      bench.put('outlive.py', readFileSync(new URL('outlive.py', import.meta.url)));
      const program = new URL('client.mjs', import.meta.url).pathname;
      const start = async (): Promise<{ seconds: string; client: ChildProcess }> => {
        const seconds = oddSeconds();
        const line = `${PYTHON} -I outlive.py >told 2>&1; exec sleep ${seconds}`;
        rmSync(join(bench.workspace, 'told'), { force: true });
        const client = spawn(process.execPath, [program, 'bubblewrap', line], {
          cwd: bench.workspace,
          stdio: 'inherit',
        });
        expect(await livesWithin(`sleep ${seconds}`, 20_000)).toBe(true);
        expect(readFileSync(join(bench.workspace, 'told'), 'utf8')).toBe('cut\n');
        return { seconds, client };
      };
      const guarded = await start();
      guarded.client.kill('SIGKILL');
      expect(await goneWithin(`sleep ${guarded.seconds}`, 1000)).not.toBeNull();
      // Without the guard it would live on.
      const alone = await start();
      for (const guard of guardsOf(alone.client.pid)) process.kill(guard, 'SIGKILL');
      alone.client.kill('SIGKILL');
      await new Promise(resolve => void setTimeout(resolve, 500));
      const left = processesOf(`sleep ${alone.seconds}`);
      for (const pid of left) process.kill(pid, 'SIGKILL');
      expect(left.length).toBe(1);
      expect(await goneWithin(`sleep ${alone.seconds}`, 1000)).not.toBeNull();
    },
  );

  describe('on secrets', () => {
    it('F1: the environment is exactly the allow-list, also that of the first process', async () => {
      const { stdout } = await bench.run(
        'env | sort; echo --; cat /proc/1/environ; echo --; set | grep _acode | grep -v "^_acode_n="',
        { env: { GIVEN: 'one' } },
      );
      expect(stdout).toBe(
        'GIVEN=one\nHOME=/home/sandbox\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/workspace\n--\n--\n',
      );
      // The client has more than that to leak.
      expect(Object.keys(process.env).length).toBeGreaterThan(5);
      expect((await bench.run('env', without('environment'))).stdout).toContain('ACODE_DOCTOR_LEAK=1');
    });

    it('nothing of the host is there but its programs: no homes, no sockets, no other users, no host name', async () => {
      const script =
        'ls -A /root /opt /srv /var /mnt /media /sys 2>&1; ls -A /home /run /tmp; cat /etc/passwd /etc/shadow 2>&1; hostname; find / -xdev -type s 2>/dev/null; true';
      const { stdout } = await bench.run(script);
      for (const place of ['/root', '/opt', '/srv', '/var', '/mnt', '/sys'])
        expect(stdout).toMatch(new RegExp(`'?${place}'?: No such file`));
      expect(stdout).toContain('sandbox\n');
      expect(stdout).not.toContain(process.env['USER'] ?? 'acode-test');
      expect(stdout).not.toMatch(/\.sock/);
    });

    it('the words bubblewrap was told are in no process list, inside or outside', async () => {
      const marker = bench.workspace;
      let outside = '';
      const { stdout } = await bench.run('echo on; sleep 0.3; cat /proc/[0-9]*/cmdline | tr "\\0" " "', {
        onOutput: () =>
          (outside ||= processesWith('--args 10')
            .map(pid => readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
            .join(' ')),
      });
      expect(stdout).toContain('bwrap --args 10');
      expect(stdout).not.toContain(marker);
      expect(outside).toContain('bwrap');
      expect(outside).not.toContain(marker);
    });

    it('nothing but the workspace and memory can be written', async () => {
      const places = ['/x', '/usr/x', '/etc/x', '/bin/x', '/proc/x', '/dev/x', '/home/x'];
      const script = `for place in ${places.join(' ')}; do (echo x >$place) 2>/dev/null && echo "$place"; done; echo x >/workspace/x && echo x >/tmp/x && echo end`;
      expect((await bench.run(script)).stdout).toBe('end\n');
      expect((await bench.run(script, without('read-only-root'))).stdout).toContain('/x\n');
    });
  });
});
