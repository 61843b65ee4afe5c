// Commands that go on beside their caller: in the background and with a terminal.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { oddSeconds } from '../levels/host-processes.ts';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { countInside, places, textOf, untilSaid } from './places.ts';

describe.skipIf(withoutEngines).each(places)('on $name', place => {
  let host: ConformanceHost;
  let sandbox: Sandbox;
  beforeAll(async () => {
    host = await openHost(place);
    sandbox = await host.acode.create();
  });
  afterAll(() => host[Symbol.asyncDispose]());

  describe('a command in the background', () => {
    it('has the process it says it has', async () => {
      await using command = await sandbox.commands.run('echo $$ $PPID; sleep 600', { background: true });
      expect(command.pid).toBeGreaterThan(1);
      const [own, parent] = (await untilSaid(command.stdout, '\n')).trim().split(' ').map(Number);
      expect([own, parent]).toContain(command.pid);
    });

    it('can be talked to while it runs', async () => {
      await using command = await sandbox.commands.run(['cat'], { background: true });
      await command.write('one\n');
      expect(await untilSaid(command.stdout, 'one\n')).toBe('one\n');
      await command.write(Buffer.from('two\n'));
      await command.closeStdin();
      expect(await command.wait()).toMatchObject({ exitCode: 0, stdout: 'one\ntwo\n' });
    });

    it('has streams that end, to be read late and more than once', async () => {
      const command = await sandbox.commands.run('echo out; echo err >&2', { background: true });
      await command.result;
      expect([await textOf(command.stdout), await textOf(command.stderr)]).toEqual(['out\n', 'err\n']);
      expect(await textOf(command.stdout)).toBe('out\n');
    });

    it('is sent signals with everything it started', async () => {
      const seconds = oddSeconds();
      const nest = `sh -c "sleep ${seconds} & sh -c 'sleep ${seconds} & wait' & wait" & sleep ${seconds} & echo up; wait`;
      const command = await sandbox.commands.run(nest, { background: true });
      await untilSaid(command.stdout, 'up');
      // The control: they are all there.
      await until(async () => (await countInside(sandbox, `sleep ${seconds}`)) >= 3);
      await command.kill('SIGKILL');
      expect((await command.wait()).exitCode).toBe(137);
      await expect.poll(() => countInside(sandbox, `sleep ${seconds}`)).toBe(0);
    });

    it('may answer a signal, and gets SIGTERM unless told otherwise', async () => {
      const script = 'trap "echo told; exit 7" TERM; trap "echo used" USR1; echo up; while :; do sleep 0.05; done';
      const command = await sandbox.commands.run(script, { background: true });
      await untilSaid(command.stdout, 'up');
      await command.kill('SIGUSR1');
      await untilSaid(command.stdout, 'used');
      await command.kill();
      expect(await command.wait()).toMatchObject({ exitCode: 7, stdout: 'up\nused\ntold\n' });
    });

    it('can be killed when it is over, and by no word that is no signal', async () => {
      const command = await sandbox.commands.run(['true'], { background: true });
      await command.wait();
      await command.kill();
      await using other = await sandbox.commands.run(['sleep', '600'], { background: true });
      await expect(other.kill('SIGTERM; id')).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    });

    it('is listed with its words while it runs, can be connected to, and is not listed afterwards', async () => {
      const command = await sandbox.commands.run(['sleep', '600'], { background: true });
      expect(await sandbox.commands.list()).toMatchObject([{ pid: command.pid, command: ['sleep', '600'], cwd: '.' }]);
      expect(Date.parse((await sandbox.commands.list())[0]?.startedAt ?? '')).toBeGreaterThan(Date.now() - 60_000);
      const same = await sandbox.commands.connect(command.pid);
      await same.disconnect();
      await same.kill('SIGKILL');
      await command.wait();
      expect(await sandbox.commands.list()).toEqual([]);
      await expect(sandbox.commands.connect(command.pid)).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    });

    it('ends when its handle is disposed of, also one that does not listen', async () => {
      const seconds = oddSeconds();
      {
        await using command = await sandbox.commands.run(
          `trap "" TERM INT HUP; echo up; sleep ${seconds}; sleep ${seconds}`,
          {
            background: true,
          },
        );
        await untilSaid(command.stdout, 'up');
      }
      await expect.poll(() => countInside(sandbox, `sleep ${seconds}`)).toBe(0);
    });

    it('outlives the time limit of a run, and ends at a time limit of its own', async () => {
      await using brief = await host.acode.create({ policy: { timeoutMs: 500 } });
      expect(await brief.commands.run(['sleep', '60'])).toMatchObject({ timedOut: true });
      const command = await brief.commands.run('sleep 1.5; echo there', { background: true });
      expect(await command.wait()).toMatchObject({ exitCode: 0, stdout: 'there\n' });
      const limited = await brief.commands.run(['sleep', '60'], { background: true, timeoutMs: 300 });
      expect(await limited.wait()).toMatchObject({ timedOut: true, exitCode: null });
    });

    it('loses nothing of ten megabytes to a slow reader, up to the output limit', async () => {
      const command = await sandbox.commands.run('head -c 10000000 /dev/zero | tr "\\0" x', { background: true });
      let seen = 0;
      for await (const chunk of command.stdout) {
        if (seen === 0) await new Promise(resolve => void setTimeout(resolve, 200));
        seen += chunk.length;
      }
      const { dropped } = await command.wait();
      expect(seen + dropped.stdout).toBe(10_000_000);
    });

    it('rejects where it never started', async () => {
      const command = await sandbox.commands.run(['no-such-program'], { background: true });
      await expect(command.result).rejects.toMatchObject({ code: 'ACODE-SBX-015' });
      expect(await sandbox.commands.list()).toEqual([]);
    });
  });

  describe('a command with a terminal', () => {
    it('has one, of the size that was asked for, and is told of another size', async () => {
      await using terminal = await sandbox.commands.terminal(
        '[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; stty size; trap "stty size" WINCH; echo up; while :; do sleep 0.05; done',
        { size: { columns: 101, rows: 33 } },
      );
      const first = await untilSaid(terminal.stdout, 'up');
      expect(first).toMatch(/^terminal\r\n33 101\r\nup\r\n/);
      await terminal.resize({ columns: 55, rows: 11 });
      expect(await untilSaid(terminal.stdout, '11 55')).toContain('11 55');
    });

    it('gives its exit status, and everything it prints on one stream', async () => {
      const terminal = await sandbox.commands.terminal('echo out; echo err >&2; exit 5');
      expect(await terminal.wait()).toMatchObject({ exitCode: 5, stdout: 'out\r\nerr\r\n', stderr: '' });
    });

    it('is typed into: echoes, edits, and takes an interrupt', async () => {
      await using terminal = await sandbox.commands.terminal(['sh']);
      await terminal.write('echo $((40+2))\n');
      expect(await untilSaid(terminal.stdout, '42')).toContain('echo $((40+2))');
      await terminal.write('sleep 600\n');
      await new Promise(resolve => void setTimeout(resolve, 200));
      await terminal.write('\u0003');
      await terminal.write('echo in$((1))\n');
      await untilSaid(terminal.stdout, 'in1');
      await terminal.write('exit 9\n');
      expect((await terminal.wait()).exitCode).toBe(9);
    });

    it('takes bytes as they are where the terminal is raw', async () => {
      await using terminal = await sandbox.commands.terminal('stty raw -echo; echo up; head -c 4 | od -An -tx1');
      await untilSaid(terminal.stdout, 'up');
      await terminal.write(Buffer.from([0x03, 0x04, 0x0d, 0x1e]));
      expect(await untilSaid(terminal.stdout, '1e')).toContain('03 04 0d 1e');
    });

    it('has its variables and directory, and is listed', async () => {
      await sandbox.commands.run(['mkdir', '-p', 'below']);
      await using terminal = await sandbox.commands.terminal('echo "$TERM $A"; pwd; sleep 600', {
        env: { A: "it's" },
        cwd: 'below',
      });
      const text = await untilSaid(terminal.stdout, 'below');
      expect(text).toBe("xterm-256color it's\r\n/workspace/below\r\n");
      expect((await sandbox.commands.list()).map(({ pid }) => pid)).toContain(terminal.pid);
    });

    it('is hung up on and killed with everything it started', async () => {
      const seconds = oddSeconds();
      const terminal = await sandbox.commands.terminal(`sleep ${seconds} & sleep ${seconds} & echo up; wait`);
      await untilSaid(terminal.stdout, 'up');
      expect(await countInside(sandbox, `sleep ${seconds}`)).toBeGreaterThanOrEqual(2);
      await terminal.kill('SIGKILL');
      await terminal.wait();
      await expect.poll(() => countInside(sandbox, `sleep ${seconds}`)).toBe(0);
    });

    it('ends at its time and when it is cancelled', async () => {
      const limited = await sandbox.commands.terminal(['sleep', '600'], { timeoutMs: 300 });
      expect(await limited.wait()).toMatchObject({ timedOut: true, exitCode: null });
      const cancel = new AbortController();
      const cancelled = await sandbox.commands.terminal(['sleep', '600'], { signal: cancel.signal });
      cancel.abort();
      await expect(cancelled.result).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    });

    it('refuses a size that is none, and says where it cannot begin', async () => {
      const none = { columns: 0, rows: 24 };
      await expect(sandbox.commands.terminal(['sh'], { size: none })).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
      const nowhere = await sandbox.commands
        .terminal(['sh'], { cwd: 'nowhere' })
        .then(
          ({ result }) => result,
          (error: unknown) => Promise.reject(error),
        )
        .catch((error: unknown) => error);
      expect(nowhere).toMatchObject({ code: 'ACODE-SBX-017', context: { field: 'cwd' } });
    });
  });
});
