// One command in a sandbox, as if it ran here: output, exit status, limits, files.

import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { identify } from '../../packages/sandbox/src/isolation/process/held.ts';
import { until } from '../support/waiting.ts';
import { engines, images, withoutEngines } from '../support/engines.ts';
import { BIN, Bench } from './bench.ts';

describe.skipIf(withoutEngines).each(engines)('acode sandbox exec on $name', engine => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(engine);
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  describe.concurrent('one command', () => {
    it('prints what the command prints, ends with 0 and leaves nothing', async () => {
      await using alone = await Bench.at(engine);
      const { status, stdout, stderr } = await alone.exec(['--image', images.busybox, '--', 'echo', 'hi']);
      expect({ status, stdout: stdout.toString(), stderr }).toEqual({ status: 0, stdout: 'hi\n', stderr: '' });
      expect(await alone.left()).toEqual([]);
    });

    it('waits, and says so, while other sandboxes of the user have the memory; nothing is made meanwhile', async () => {
      await using alone = await Bench.at(engine);
      // Entries of a process that lives, this one, and of one that is gone: only the first counts.
      const share = join(alone.env['XDG_RUNTIME_DIR'] ?? '', 'acode', 'memory');
      const { pid, startTime } = identify(process.pid) ?? { pid: 0, startTime: '' };
      const busy = join(share, `${pid}-${startTime}.${randomUUID()}.${2 ** 50}`);
      await mkdir(share, { recursive: true, mode: 0o700 });
      await writeFile(join(share, `${pid}-1.${randomUUID()}.${2 ** 50}`), '');
      await writeFile(busy, '');
      const { child, ended } = alone.start(['run', 'echo hi']);
      await new Promise<void>(resolve => {
        let said = '';
        child.stderr?.on('data', (data: Buffer) => {
          said += data.toString();
          if (said.includes('waiting for memory')) resolve();
        });
      });
      // The container in which the image's users were read, and which never ran, may be on its way out.
      await until(async () => (await alone.left()).length === 0);
      await rm(busy);
      expect(await ended).toMatchObject({ status: 0, stdout: Buffer.from('hi\n') });
      expect(await readdir(share)).toEqual([]);
    });

    it('brings artifacts out of the sandbox, and ends with 125 where one did not come', async () => {
      // What comes into a workspace is a change that every command there would report.
      await using alone = await Bench.at(engine);
      const line = 'mkdir /out/d; echo hi > /out/d/.envrc; ln -s /etc/passwd /out/d/link; echo hi > /out/report';
      const to = ['--artifact', '/out/report:./brought/', '--artifact', 'd:brought/d', '--artifact', 'none:none'];
      const { status, stderr } = await alone.call(['run', ...to, line]);
      expect(status).toBe(125);
      for (const said of [
        'to brought/report',
        'left out link: it is a symbolic link',
        'none: does not exist',
        '.envrc',
      ])
        expect(stderr).toContain(said);
      expect(await readdir(join(alone.workspace, 'brought'), { recursive: true })).toEqual(
        expect.arrayContaining(['report', 'd/.envrc']),
      );
      expect(await readdir(join(alone.workspace, 'brought', 'd'))).toEqual(['.envrc']);
      const again = await alone.call(['run', ...to.slice(0, 2), line]);
      expect({ status: again.status, refused: again.stderr.includes('exists already') }).toEqual({
        status: 2,
        refused: true,
      });
    });

    it('keeps the streams apart and passes the exit status on', async () => {
      const { status, stdout, stderr } = await bench.exec(['--', 'sh', '-c', 'echo out; echo err >&2; exit 42']);
      expect({ status, stdout: stdout.toString(), stderr }).toEqual({ status: 42, stdout: 'out\n', stderr: 'err\n' });
    });

    it('runs one quoted string as a shell line, where the user stands', async () => {
      const { stdout } = await bench.exec(['echo $((40 + 2)) | cat; pwd'], { cwd: join(bench.workspace, 'sub') });
      expect(stdout.toString()).toBe('42\n/workspace/sub\n');
    });

    it('says that the processes ran out', async () => {
      const { stderr } = await bench.exec(['--pids', '8', 'for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait']);
      expect(stderr).toMatch(
        /acode: limit reached: .*process limit of 8, set by --pids\.\n├▶ code: ACODE-SBX-004\n╰▶ hint: .*--pids 16/,
      );
    });

    it('reads a file of variables itself: Node.js, which has an option of that name, never does', async () => {
      await using alone = await Bench.at(engine);
      const mark = join(alone.workspace, 'mark');
      await writeFile(join(alone.workspace, '.env'), 'NODE_OPTIONS=--require=./preload.cjs\n');
      await writeFile(
        join(alone.workspace, 'preload.cjs'),
        `require('node:fs').writeFileSync(${JSON.stringify(mark)}, '');\n`,
      );
      const run = (file: string, argv: readonly string[]): Promise<unknown> =>
        promisify(execFile)(file, argv, { cwd: alone.workspace, env: { ...process.env, ...alone.env } }).catch(
          (error: unknown) => error,
        );
      // The control: Node.js obeys such a file.
      await run(process.execPath, ['--env-file=.env', '-e', '0']);
      expect(await readdir(alone.workspace)).toContain('mark');
      await rm(mark);
      for (const option of [['--env-file', '.env'], ['--env-file=.env']])
        expect(await run(BIN, ['run', ...option, '--', 'true'])).toMatchObject({
          code: 125,
          stderr: expect.stringContaining('DangerousEnvironment'),
        });
      expect(await readdir(alone.workspace)).not.toContain('mark');
    });

    it('gives the command the variables of --env, and none of the caller’s', async () => {
      const { stdout } = await bench.exec(['--env', 'B=two words', '--', 'env'], { env: { SECRET: 'x' } });
      expect(stdout.toString()).toMatch(/^B=two words$/m);
      expect(stdout.toString()).not.toContain('SECRET');
    });

    it.each([
      [
        '--max-output',
        '1k',
        'head -c 10000 /dev/zero',
        /last 8\.8 KiB of output .*output limit of 1 KiB, set by --max-output/,
      ],
      ['--tmp', '1m', 'dd if=/dev/zero of=/tmp/x bs=1M count=3', /storage limit of 1 MiB, set by --tmp\.[^]*--tmp 2/],
    ])('prints the limit of %s that the command reached', async (option, value, line, printed) => {
      const { stdout, stderr } = await bench.exec([option, value, line]);
      expect(stderr).toMatch(printed);
      expect(stderr).toContain('├▶ code: ACODE-SBX-004\n');
      expect(stdout.length).toBe(option === '--tmp' ? 0 : 1024);
    });

    it('ends with 127 and a hint where the command is missing, in either form', async () => {
      const direct = await bench.exec(['--', 'gti', 'status']);
      expect(direct.status).toBe(127);
      expect(direct.stderr).toMatch(/gti: not found[^]*ACODE-SBX-015[^]*hint: /);
      const line = await bench.exec(['gti status']);
      expect(line.status).toBe(127);
      expect(line.stderr).toMatch(/acode: hint: .*not found.*busybox/);
    });

    it('refuses with a code and a hint where the image is missing', async () => {
      const { status, stdout, stderr } = await bench.exec(['--image', 'acode-test/none:9', '--', 'true']);
      expect({ status, stdout: stdout.length }).toEqual({ status: 125, stdout: 0 });
      expect(stderr).toMatch(/acode-test\/none:9 is not on this engine[^]*ACODE-SBX-010[^]*hint: /);
      expect(stderr).not.toContain('correlation id');
      const never = await bench.exec(['--image', 'busybox:0', '--pull', 'never', '--', 'true']);
      expect(never.status).toBe(125);
      expect(never.stderr).toMatch(/busybox:0 is not on this engine[^]*ACODE-SBX-009[^]*hint: .*acode sandbox pull/);
    });

    it('leaves files that belong to the caller', async () => {
      await bench.exec(['touch made && mkdir -p d/e']);
      for (const name of ['made', 'd/e']) {
        const { uid, gid } = await stat(join(bench.workspace, name));
        expect({ uid, gid }).toEqual({ uid: process.getuid?.(), gid: process.getgid?.() });
      }
      const { status } = await bench.exec(['--readonly', 'touch other']);
      expect(status).not.toBe(0);
    });
  });

  it('has left nothing after all of that', async () => {
    expect(await bench.left()).toEqual([]);
  });
});
