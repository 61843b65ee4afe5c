// What holds where there is no engine: nothing is left out in silence, and what has no walls says so.

import { randomBytes } from 'node:crypto';
import { readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import { describeWhere } from './targets.ts';
import type { Target } from './targets.ts';

/** The words of every process of this host, as every user may read them. */
function wordsOfEverybody(): string {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map(name => {
      try {
        return readFileSync(`/proc/${name}/cmdline`, 'utf8');
      } catch {
        return '';
      }
    })
    .join('\n');
}

export function localBehaviours(target: Target): void {
  describeWhere(target, 'no engine')('a sandbox without an engine', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('has no environment of its own in what the host tells everybody', async () => {
      const [secret, word] = [randomBytes(8).toString('hex'), randomBytes(8).toString('hex')];
      await using command = await host.acode.spawn(['sh', '-c', 'echo "$API_TOKEN"; cat', word], {
        env: { API_TOKEN: secret },
      });
      for await (const chunk of command.stdout) if (Buffer.from(chunk).includes(secret)) break;
      const words = wordsOfEverybody();
      expect(words).toContain(word);
      expect(words).not.toContain(secret);
      await command.closeStdin();
    });

    it('is refused for another user, rather than run as the caller', async () => {
      await expect(host.acode.run(['touch', 'as-somebody'], { policy: { user: '4242:4242' } })).rejects.toMatchObject({
        code: 'ACODE-SBX-016',
        hint: /^Leave the user out/,
      });
      expect((await host.acode.run(['ls', 'as-somebody'])).exitCode).not.toBe(0);
      expect((await host.acode.run(['id', '-u'])).stdout).toBe(`${process.getuid?.()}\n`);
    });

    it('is not enough for a critical command, which is refused', async () => {
      await expect(host.acode.run(['touch', 'critical'], { risk: 'critical' })).rejects.toMatchObject({
        code: 'ACODE-SBX-012',
        message: /fail-closed/,
      });
      expect((await host.acode.run(['ls', 'critical'])).exitCode).not.toBe(0);
      expect((await host.acode.run(['touch', 'harmless'], { risk: 'low' })).exitCode).toBe(0);
    });
  });

  describeWhere(target, 'no walls')('a sandbox without walls', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('says that it is no security boundary, and that the network is the host’s', async () => {
      const notes = (await host.acode.explain(['true'])).notes.join('\n');
      expect(notes).toContain('no security boundary');
      expect(notes).toContain('The network is the host’s own');
    });

    it('shows the host’s processes, name and other directories', async () => {
      const canary = `${host.workspace}.canary`;
      writeFileSync(canary, 'of the host\n');
      const { stdout } = await host.acode.run(`ls /proc | grep -c "^[0-9]"; uname -n; cat ${canary}`);
      rmSync(canary);
      const [processes, name, content] = stdout.trim().split('\n');
      expect(Number(processes)).toBeGreaterThanOrEqual(12);
      expect(name).toBe(hostname());
      expect(content).toBe('of the host');
    });

    it('is refused with a workspace that must not be written, which it could not hold', async () => {
      const policy = { workspace: 'readonly' } as const;
      await expect(host.acode.run(['touch', 'written'], { policy })).rejects.toMatchObject({
        code: 'ACODE-SBX-016',
        hint: /docker or bubblewrap/,
      });
      expect((await host.acode.run(['ls', 'written'])).exitCode).not.toBe(0);
      expect((await host.acode.run(['touch', 'written'])).exitCode).toBe(0);
    });
  });
}
