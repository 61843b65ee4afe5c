// CommandRunner: one body of behaviours, on a host and on a persistent sandbox, through the interface alone.

import { mkdirSync } from 'node:fs';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandRunner, Sandbox } from '@acode/sandbox';
import { TestHost, mainEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines)('a place where commands run', () => {
  let host: TestHost;
  let sandbox: Sandbox;
  beforeAll(async () => {
    host = await TestHost.open(mainEngine);
    mkdirSync(host.file('sub dir'));
    sandbox = await host.acode.create();
  });
  afterAll(async () => {
    await sandbox.kill();
    await host[Symbol.asyncDispose]();
  });

  describe.each<[string, () => CommandRunner]>([
    ['the host', () => host.acode],
    ['a persistent sandbox', () => sandbox],
  ])('%s', (_, place) => {
    it('keeps the streams apart, and the exit status is the command’s own', async () => {
      const result = await place().run(['sh', '-c', 'echo out; echo err >&2; exit 42']);
      expect(result).toMatchObject({
        exitCode: 42,
        stdout: 'out\n',
        stderr: 'err\n',
        timedOut: false,
        level: 'docker',
      });
    });

    it('gives a string to the shell, and a list to no shell', async () => {
      expect((await place().run('echo $((1+1)) | tr 2 3')).stdout).toBe('3\n');
      expect((await place().run(['echo', '$((1+1))', ';', 'id'])).stdout).toBe('$((1+1)) ; id\n');
    });

    it('sets variables and the working directory, and refuses a directory outside the workspace', async () => {
      const { stdout } = await place().run('pwd; echo "$A"', { cwd: 'sub dir', env: { A: "it's\n2" } });
      expect(stdout).toBe("/workspace/sub dir\nit's\n2\n");
      await expect(place().run(['pwd'], { cwd: '../..' })).rejects.toMatchObject({ code: 'ACODE-SBX-003' });
    });

    it('feeds text, bytes and a stream to standard input, and end of file without one', async () => {
      const lines = 'line\n'.repeat(1000);
      for (const stdin of [lines, Buffer.from(lines), Readable.from([Buffer.from(lines)])])
        expect((await place().run(['wc', '-l'], { stdin })).stdout.trim()).toBe('1000');
      expect((await place().run(['cat'])).stdout).toBe('');
    });

    it('rejects a command that does not exist, and one that is cancelled with what it printed', async () => {
      await expect(place().run(['no-such-command'])).rejects.toMatchObject({ code: 'ACODE-SBX-015', exitStatus: 127 });
      const stop = new AbortController();
      const running = place().run('echo before; sleep 60', { signal: stop.signal, onStdout: () => stop.abort() });
      await expect(running).rejects.toMatchObject({
        code: 'ACODE-SBX-014',
        context: { result: expect.objectContaining({ stdout: 'before\n' }) },
      });
    });

    it('writes to standard input of a command that was started, until it is closed', async () => {
      await using command = await place().spawn(['cat']);
      await command.write('one\n');
      await command.write(Buffer.from('two\n'));
      await command.closeStdin();
      expect(await command.result).toMatchObject({ exitCode: 0, stdout: 'one\ntwo\n' });
    });

    it('streams output while the command runs, and kills it with a signal', async () => {
      await using command = await place().spawn(['sh', '-c', 'echo first; exec sleep 60']);
      for await (const chunk of command.stdout) {
        expect(Buffer.from(chunk).toString()).toBe('first\n');
        break;
      }
      await command.kill('SIGKILL');
      expect(await command.result).toMatchObject({ exitCode: 137, stdout: 'first\n', timedOut: false });
    });
  });
});
