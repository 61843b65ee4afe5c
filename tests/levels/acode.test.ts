// The local levels through the library, as a caller has them: chosen by the user’s own configuration, with no engine anywhere.

import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import { untilGone, oddSeconds } from './host-processes.ts';

const skipped = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');

describe.skipIf(skipped).each(['bubblewrap', 'ulimit', 'none'] as const)(
  'level %s in the user’s configuration',
  level => {
    let workspace: string;
    let acode: Acode;
    beforeEach(async () => {
      workspace = mkdtempSync('/var/tmp/acode-test-');
      acode = await Acode.open({
        workspace,
        engine: { socket: '/nonexistent/docker.sock' },
        config: { sandbox: { level, bubblewrap: { accept_process_limits: true } } },
      });
    });
    afterEach(async () => {
      await acode.close();
      rmSync(workspace, { recursive: true, force: true });
    });

    it('runs a command without an engine, and the result says where', async () => {
      const result = await acode.run('cat; echo err >&2; exit 3', { stdin: 'in', env: { GIVEN: 'x' }, risk: 'low' });
      expect(result).toMatchObject({ exitCode: 3, stdout: 'in', stderr: 'err\n', level, timedOut: false });
    });

    it('ends a command at its time limit and reports it', async () => {
      const seconds = oddSeconds();
      const result = await acode.run(`echo before; sleep ${seconds}`, { policy: { timeoutMs: 2000 }, risk: 'low' });
      expect(result).toMatchObject({ exitCode: null, timedOut: true, stdout: 'before\n' });
      await untilGone(`sleep ${seconds}`);
    });

    it('ends what runs when the host is closed', async () => {
      const seconds = oddSeconds();
      const running = await acode.spawn(`echo on; sleep ${seconds}`, { risk: 'low' });
      for await (const chunk of running.stdout) if (Buffer.from(chunk).includes('on')) break;
      await acode.close();
      await expect(running.result).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
      await untilGone(`sleep ${seconds}`);
    });

    it('reports what a command left that host tools might execute', async () => {
      const plant =
        'mkdir -p sub/.git behind split && echo x >sub/.git/config && ln -s ../behind sub/.claude && echo "ref: x" >split/HEAD && echo .. >split/commondir';
      const { riskyChanges } = await acode.run(plant, { risk: 'low' });
      expect(riskyChanges.map(({ kind, path }) => `${kind} ${path}`)).toEqual(
        expect.arrayContaining(['git-repository split', 'git-repository sub/.git', 'agent-config sub/.claude']),
      );
    });

    it('keeps a repository from being changed only where there is a wall', async () => {
      mkdirSync(join(workspace, '.git/hooks'), { recursive: true });
      await acode.run('echo evil >.git/hooks/pre-commit', { risk: 'low' });
      expect(existsSync(join(workspace, '.git/hooks/pre-commit'))).toBe(level !== 'bubblewrap');
    });
  },
);
