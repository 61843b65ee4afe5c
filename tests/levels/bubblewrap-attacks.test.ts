// The attack corpus on level bubblewrap: the doctor’s probes with their controls, and what no probe tries.

import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { Acode } from '@acode/sandbox';
import type { AcodeOptions, AttackReport } from '@acode/sandbox';
import type { Weakening } from '../../packages/sandbox/src/isolation/backend.ts';
import { BubblewrapBackend } from '../../packages/sandbox/src/isolation/bubblewrap/backend.ts';
import { LevelBench, OPTIONS } from './bench.ts';
import type { Wish } from './bench.ts';
import { untilGone, guardsOf, untilLives, oddSeconds, processesOf, processesWith } from './host-processes.ts';

const skipped = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');
const PYTHON = '/usr/bin/python3';

// No engine is needed, and nothing in it allows commands a weaker level than docker.
const HOST: AcodeOptions = {
  workspace: '/var/tmp',
  engine: { socket: '/nonexistent/docker.sock' },
  config: { sandbox: { bubblewrap: { accept_process_limits: true } } },
};
// What the level promises, by row. Where a row is also below, the test there attacks by other means.
const PROBED = [
  'A4 A5 A6 A7 A8 A9 A10 A11 A12 A16 A17b A18 A22 B4 C1 C2 C3 C4 C5 C9 C16',
  'D1 D2 D12 E1 E2 E3 E5 E7 E8 E9 E10 E14 F1 F2 F3b F5 F20 F20b',
].flatMap(ids => ids.split(' '));
// Without a control group nothing bounds memory of several processes, or the number of files in it, as docs/levels.md says.
const KNOWN_OPEN = ['E2b', 'E4'];
// What a probe reports where its control was not made or did not work.
const NO_CONTROL = /^$|^none was made|^not made|did not behave/;

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

  describe('by the doctor’s probes', () => {
    let report: AttackReport;
    beforeAll(async () => {
      await using acode = await Acode.open(HOST);
      report = await acode.attack({ level: 'bubblewrap' });
    });

    it.each(PROBED)('%s: the probe is stopped, and its control is not', id => {
      const probe = report.probes.find(one => one.id === id);
      expect(probe).toMatchObject({ verdict: 'pass' });
      expect(probe?.control).not.toMatch(NO_CONTROL);
    });

    it('leaves nothing open but what the documentation names, and says why a row does not apply', () => {
      const open = report.probes.filter(({ id, verdict }) => verdict === 'fail' && !KNOWN_OPEN.includes(id));
      expect(open).toEqual([]);
      for (const { id, verdict, observed, control } of report.probes)
        expect([id, verdict === 'pass' ? control : observed]).toEqual([
          id,
          verdict === 'not-applicable'
            ? expect.stringMatching(/this level|only root|processor|32-bit/)
            : expect.not.stringMatching(NO_CONTROL),
        ]);
    });

    it('names its level, needs no engine and leaves nothing', () => {
      expect(report.backend).toMatchObject({ engine: 'bubblewrap', version: '', level: 'bubblewrap', boundary: true });
      expect(report.image).toBe('host');
      const own = `acode-doctor-${process.pid}-`;
      expect([...readdirSync('/var/tmp'), ...readdirSync(tmpdir())].filter(name => name.startsWith(own))).toEqual([]);
    });
  });

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
        await untilLives(`sleep ${seconds}`);
        expect(readFileSync(join(bench.workspace, 'told'), 'utf8')).toBe('cut\n');
        return { seconds, client };
      };
      const guarded = await start();
      guarded.client.kill('SIGKILL');
      await untilGone(`sleep ${guarded.seconds}`);
      // Without the guard it would live on.
      const alone = await start();
      for (const guard of guardsOf(alone.client.pid)) process.kill(guard, 'SIGKILL');
      alone.client.kill('SIGKILL');
      await new Promise(resolve => void setTimeout(resolve, 500));
      const left = processesOf(`sleep ${alone.seconds}`);
      for (const pid of left) process.kill(pid, 'SIGKILL');
      expect(left.length).toBe(1);
      await untilGone(`sleep ${alone.seconds}`);
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
