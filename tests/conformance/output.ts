// Output is hostile: capped, drained, never lost below the cap, and decoded without harm.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import type { Target } from './targets.ts';

const MIB = 1024 ** 2;

export function outputBehaviours(target: Target): void {
  describe('output', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('arrives while the command runs', async () => {
      await using command = await host.acode.spawn(['sh', '-c', 'echo first; sleep 600']);
      for await (const chunk of command.stdout) {
        expect(Buffer.from(chunk).toString()).toBe('first\n');
        break;
      }
    });

    it('reaches callbacks, iterators and the result alike', async () => {
      const seen: Uint8Array[] = [];
      const command = await host.acode.spawn(['sh', '-c', 'echo one; sleep 0.1; echo two'], {
        onStdout: chunk => seen.push(chunk),
      });
      const iterated: Uint8Array[] = [];
      for await (const chunk of command.stdout) iterated.push(chunk);
      const { stdout } = await command.result;
      expect(stdout).toBe('one\ntwo\n');
      expect(Buffer.concat(seen).toString()).toBe(stdout);
      expect(Buffer.concat(iterated).toString()).toBe(stdout);
    });

    it('loses no byte of 1 MB on each stream, twenty times, also behind a slow reader', async () => {
      const script =
        'i=0; while [ $i -lt 16 ]; do head -c 65536 /dev/zero | tr "\\0" o; head -c 65536 /dev/zero | tr "\\0" e >&2; i=$((i+1)); done';
      for (let n = 0; n < 20; n += 1) {
        const command = await host.acode.spawn(['sh', '-c', script]);
        let read = 0;
        for await (const chunk of command.stdout) {
          read += chunk.length;
          if (n % 4 === 0) await new Promise(resolve => setTimeout(resolve, 5));
        }
        const result = await command.result;
        expect([read, result.stdout.length, result.stderr.length]).toEqual([MIB, MIB, MIB]);
        expect([/^o+$/.test(result.stdout), /^e+$/.test(result.stderr)]).toEqual([true, true]);
      }
    });

    it('is cut at the limit of each stream, to the byte, and the rest is drained and counted', async () => {
      const result = await host.acode.run(
        ['sh', '-c', 'head -c 5000000 /dev/zero | tr "\\0" x; head -c 10 /dev/zero | tr "\\0" y >&2; exit 7'],
        {
          policy: { limits: { outputBytes: 1000 } },
        },
      );
      expect(result).toMatchObject({
        exitCode: 7,
        stdout: 'x'.repeat(1000),
        stderr: 'y'.repeat(10),
        dropped: { stdout: 4_999_000, stderr: 0 },
        limitExceeded: 'output',
      });
    });

    it('is text across chunk borders, and bytes where it is not text', async () => {
      const text = await host.acode.run(['sh', '-c', "printf '\\303'; sleep 0.2; printf '\\244'"]);
      expect(text.stdout).toBe('ä');
      expect(text.stdoutBytes).toBeUndefined();
      const binary = await host.acode.run(['sh', '-c', "printf '\\377\\000\\376'"]);
      expect([...(binary.stdoutBytes ?? [])]).toEqual([255, 0, 254]);
    });

    it('of a command that is killed is kept', async () => {
      expect(await host.acode.run(['sh', '-c', 'echo before; kill -9 $$'])).toMatchObject({
        exitCode: 137,
        stdout: 'before\n',
      });
    });

    it('does not wait for what the command left running', async () => {
      const result = await host.acode.run(['sh', '-c', 'sleep 600 & echo done']);
      expect(result).toMatchObject({ exitCode: 0, stdout: 'done\n' });
    });
  });
}
