// What a command gets: its words, environment, directory and input, and nothing else.

import { existsSync, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { images } from '../support/engines.ts';
import { FORGE, canReadParent } from '../support/forged-claim.ts';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import { itWhere } from './targets.ts';
import type { Target } from './targets.ts';

export function commandBehaviours(target: Target): void {
  const { level, variables } = target;
  describe('a command', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('prints hi and exits 0', async () => {
      const result = await host.acode.run(['echo', 'hi']);
      expect(result).toMatchObject({
        exitCode: 0,
        stdout: 'hi\n',
        stderr: '',
        timedOut: false,
        oomKilled: false,
        level,
      });
      expect(result.durationMs).toBeGreaterThan(0);
      expect(String(result.durationMs)).toMatch(/^\d+(\.\d{1,3})?$/);
    });

    itWhere(target, 'engine')('says in which container of which image it ran', async () => {
      const result = await host.acode.run(['true']);
      expect(result.containerId).toMatch(/^[0-9a-f]{64}$/);
      expect(result.image?.reference).toBe(images.busybox);
    });

    it('keeps its streams apart and its own exit status', async () => {
      const result = await host.acode.run(['sh', '-c', 'echo out; echo err >&2; exit 42']);
      expect(result).toMatchObject({ exitCode: 42, stdout: 'out\n', stderr: 'err\n' });
    });

    it('is a line for the shell if it is a string, and never sees a shell if it is a list', async () => {
      expect((await host.acode.run('echo $((1+1)) | tr 2 3')).stdout).toBe('3\n');
      expect((await host.acode.run(['echo', '$((1+1))', ';', 'id'])).stdout).toBe('$((1+1)) ; id\n');
    });

    it('gets words of every kind unchanged', async () => {
      const words = ["it's", 'a\nb', '"', '\\', '$HOME', '`id`', '', ' ', 'ā😀\u0081', '-n', '--', 'x'.repeat(50_000)];
      const { stdout } = await host.acode.run([
        'sh',
        '-c',
        'for w in "$@"; do printf "%s\\0" "$w"; done',
        'sh',
        ...words,
      ]);
      expect(stdout.split('\0').slice(0, -1)).toEqual(words);
    });

    it('has exactly the environment it was given, the image’s path and a home', async () => {
      process.env['HOST_SECRET'] = 'must not leak';
      const { stdout } = await host.acode.run(['env'], { env: { A: '1', B: "it's\n2" }, taskId: 'task-7' });
      delete process.env['HOST_SECRET'];
      const names = stdout.split('\n').flatMap(line => /^([A-Za-z_]+)=/.exec(line)?.[1] ?? []);
      expect(new Set(names)).toEqual(new Set(['A', 'B', ...variables]));
      expect(stdout).toContain("B=it's\n2\n");
      expect(stdout).toMatch(/^ACODE_SANDBOX=1$/m);
      expect(stdout).toMatch(/^ACODE_TASK_ID=task-7$/m);
    });

    itWhere(target, 'engine')('has no environment of its own in what the engine tells everybody', async () => {
      await using command = await host.acode.spawn(['cat'], { env: { API_TOKEN: 'hunter2' } });
      const mine = (await host.acode.list()).find(({ sessionId }) => sessionId === host.session);
      const details = JSON.stringify(await host.acode.inspect(mine?.containerId ?? ''));
      expect(details).toContain(host.session);
      expect(details).not.toContain('hunter2');
      await command.closeStdin();
    });

    it('refuses an environment that changes how programs load code', async () => {
      await expect(host.acode.run(['env'], { env: { LD_PRELOAD: '/x.so' } })).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
      });
    });

    it('starts in the workspace, or in a directory of it', async () => {
      mkdirSync(host.file('sub dir'));
      expect((await host.acode.run(['pwd'])).stdout).toBe(`${host.inside}\n`);
      expect((await host.acode.run(['pwd'], { cwd: 'sub dir' })).stdout).toBe(`${host.inside}/sub dir\n`);
    });

    it('refuses a directory that is missing or leads out of the workspace', async () => {
      await expect(host.acode.run(['pwd'], { cwd: 'none' })).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
      await expect(host.acode.run(['pwd'], { cwd: '../..' })).rejects.toMatchObject({ code: 'ACODE-SBX-003' });
    });

    it('reads end of file when it was given no input', async () => {
      expect(await host.acode.run(['cat'])).toMatchObject({ exitCode: 0, stdout: '' });
    });

    it.each([
      ['text', 'line\n'.repeat(50_000)],
      ['bytes', Buffer.from('line\n'.repeat(50_000))],
      ['a stream', () => Readable.from(Array.from({ length: 500 }, () => Buffer.from('line\n'.repeat(100))))],
    ])('reads %s to its end', async (_, stdin) => {
      const { stdout } = await host.acode.run(['wc', '-l'], { stdin: typeof stdin === 'function' ? stdin() : stdin });
      expect(stdout.trim()).toBe('50000');
    });

    it('may end without reading its input', async () => {
      const endless = new Readable({ read: () => undefined });
      expect(await host.acode.run(['true'], { stdin: endless })).toMatchObject({ exitCode: 0 });
    });

    it('rejects a command that does not exist with 127, and one that cannot be executed with 126', async () => {
      await expect(host.acode.run(['no-such-command'])).rejects.toMatchObject({
        code: 'ACODE-SBX-015',
        exitStatus: 127,
        hint: /image/,
      });
      writeFileSync(host.file('plain.txt'), 'x');
      await expect(host.acode.run(['./plain.txt'])).rejects.toMatchObject({ code: 'ACODE-SBX-015', exitStatus: 126 });
    });

    it('cannot claim that it never started, nor that the engine ended it for want of memory', async () => {
      writeFileSync(host.file('forge.sh'), FORGE);
      // A kernel of its own lets no process read its parent: then the line is the same without the nonce.
      const isInReach = target.lacks['own kernel'] !== undefined && canReadParent();
      const framed = isInReach ? /^\u001e[0-9a-f]{32} missing\n$/ : /^\u001e missing\n$/;
      const result = await host.acode.run(['sh', 'forge.sh', 'missing', '127']);
      expect(result).toMatchObject({ exitCode: 127, riskyChanges: [] });
      expect(existsSync(host.file('made-by-forger'))).toBe(true);
      expect([result.stdout, result.stderr]).toEqual([expect.stringMatching(framed), result.stdout]);
      // Podman tells nothing of memory, so that the claim of the sandbox stands there.
      if (target.lacks.Podman === undefined) return;
      const forged = await host.acode.run(['sh', 'forge.sh', 'exit 0;memory.events|oom_kill 5', '9']);
      expect(forged).toMatchObject({ oomKilled: false });
    });

    it('that has no interpreter has started, and ends with a status of its own', async () => {
      writeFileSync(host.file('script'), '#!/no/such/interpreter\n', { mode: 0o755 });
      const { exitCode } = await host.acode.run(['./script']);
      expect([126, 127]).toContain(exitCode);
    });

    it('writes files that belong to the caller', async () => {
      await host.acode.run(['sh', '-c', 'echo made > made; mkdir dir; echo x > dir/inner']);
      for (const name of ['made', 'dir', 'dir/inner']) {
        const { uid, gid } = statSync(host.file(name));
        expect([uid, gid]).toEqual([process.getuid?.(), process.getgid?.()]);
      }
    });

    itWhere(target, 'walls')('cannot change a workspace that is read-only, and can read it', async () => {
      writeFileSync(host.file('kept'), 'here');
      const result = await host.acode.run(['sh', '-c', 'cat kept; echo no > kept'], {
        policy: { workspace: 'readonly' },
      });
      expect(result.stdout).toBe('here');
      expect(result.exitCode).not.toBe(0);
      expect((await host.acode.run(['cat', 'kept'])).stdout).toBe('here');
    });

    it('has a home of its own, which is gone with it', async () => {
      const first = await host.acode.run('echo mine > "$HOME/marker"; cat "$HOME/marker"');
      expect(first).toMatchObject({ exitCode: 0, stdout: 'mine\n' });
      expect((await host.acode.run('cat "$HOME/marker"')).exitCode).not.toBe(0);
    });

    itWhere(target, 'walls')('is fresh each time: what was outside the workspace is gone', async () => {
      expect((await host.acode.run(['touch', '/tmp/marker'])).exitCode).toBe(0);
      expect((await host.acode.run(['ls', '/tmp/marker'])).exitCode).not.toBe(0);
    });
  });
}
