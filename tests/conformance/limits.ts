// Limits hold, and what was hit is reported by name.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { images } from '../support/engines.ts';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import { itWhere } from './targets.ts';
import type { Target } from './targets.ts';

const MIB = 1024 ** 2;

export function limitBehaviours(target: Target): void {
  describe('a limit', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('on time ends the command, with what it printed before', async () => {
      const result = await host.acode.run(['sh', '-c', 'echo before; exec sleep 600'], { policy: { timeoutMs: 2000 } });
      expect(result).toMatchObject({ exitCode: null, timedOut: true, limitExceeded: 'time', stdout: 'before\n' });
    });

    it('on time lets the command end properly, and kills one that will not', async () => {
      const polite = await host.acode.run(['sh', '-c', 'trap "echo bye; exit 0" TERM; while :; do sleep 0.05; done'], {
        policy: { timeoutMs: 2000 },
      });
      expect(polite).toMatchObject({ timedOut: true, stdout: 'bye\n' });
      const stubborn = await host.acode.run(['sh', '-c', 'trap "" TERM INT HUP; while :; do sleep 0.05; done'], {
        policy: { timeoutMs: 500 },
      });
      expect(stubborn).toMatchObject({ timedOut: true, exitCode: null });
    });

    itWhere(target, 'host counters')(
      'on memory is reported although only a child died and the exit status is 0',
      async () => {
        const hog = "sh -c 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done'; echo survived; exit 0";
        const result = await host.acode.run(['sh', '-c', hog], { policy: { limits: { memoryBytes: 64 * MIB } } });
        expect(result).toMatchObject({ exitCode: 0, oomKilled: true, limitExceeded: 'memory', stdout: 'survived\n' });
      },
    );

    itWhere(target, 'memory limit')('on memory holds, and below it there is room', async () => {
      const take = (bytes: string) =>
        host.acode.run(['python3', '-c', `x = bytearray(${bytes}); print(len(x) > 0)`], {
          policy: { ...host.image(images.debian), limits: { memoryBytes: 128 * MIB } },
        });
      expect(await take('10**7')).toMatchObject({ exitCode: 0, stdout: 'True\n' });
      const beyond = await take('10**9');
      expect(beyond.stdout).toBe('');
      expect(beyond.exitCode).not.toBe(0);
    });

    itWhere(target, 'control group')('on memory is reported when the command itself died', async () => {
      const result = await host.acode.run(['python3', '-c', 'x = bytearray(10**9)'], {
        policy: { ...host.image(images.debian), limits: { memoryBytes: 64 * MIB } },
      });
      expect(result).toMatchObject({ exitCode: 137, oomKilled: true, limitExceeded: 'memory' });
    });

    it('on memory is not claimed when there was enough', async () => {
      expect(await host.acode.run(['sh', '-c', 'exit 137'])).toMatchObject({ exitCode: 137, oomKilled: false });
    });

    itWhere(target, 'host counters')('on processes stops a fork bomb', async () => {
      const bomb = 'i=0; while [ $i -lt 100 ]; do sleep 5 & i=$((i+1)); done 2>/dev/null; echo end';
      const result = await host.acode.run(['sh', '-c', bomb], { policy: { limits: { pids: 20 } } });
      expect(result.limitExceeded).toBe('pids');
    });

    itWhere(target, 'process limit')('on processes holds, and below it they can be started', async () => {
      const started = async (pids: number) => {
        const script = 'i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); echo $i; done 2>/dev/null';
        const { stdout } = await host.acode.run(['sh', '-c', script], { policy: { limits: { pids } } });
        return Number(stdout.trim().split('\n').at(-1));
      };
      expect(await started(120)).toBe(60);
      expect(await started(20)).toBeLessThanOrEqual(20);
    });

    itWhere(target, 'file limit')('on open files is what the kernel says inside', async () => {
      const { stdout } = await host.acode.run('ulimit -Hn', { policy: { limits: { openFiles: 99 } } });
      expect(stdout).toBe('99\n');
    });

    itWhere(target, 'control group in sight')(
      'on memory, swap, processes and open files is what the kernel says inside',
      async () => {
        const { stdout } = await host.acode.run(
          [
            'sh',
            '-c',
            'cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; ulimit -n; cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null',
          ],
          { policy: { limits: { memoryBytes: 100 * MIB, openFiles: 99, pids: 33 } } },
        );
        expect(stdout.trim().split('\n')).toEqual([String(100 * MIB), '99', '33']);
        // Version 1 limits memory and swap together, version 2 swap alone; a kernel may count neither.
        const swap = async (swapBytes?: number): Promise<string> => {
          const limits = { memoryBytes: 100 * MIB, ...(swapBytes === undefined ? {} : { swapBytes }) };
          const look =
            'cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes /sys/fs/cgroup/memory.swap.max 2>/dev/null';
          return (await host.acode.run(`${look}; true`, { policy: { limits } })).stdout.trim();
        };
        const [none, some] = [await swap(), await swap(20 * MIB)];
        expect([
          ['', ''],
          ['0', String(20 * MIB)],
          [String(100 * MIB), String(120 * MIB)],
        ]).toContainEqual([none, some]);
      },
    );

    itWhere(target, 'walls')('on files in memory gives “no space left”, and everything below it works', async () => {
      const policy = { limits: { tmpBytes: 2 * MIB } };
      for (const directory of ['/tmp', '$HOME']) {
        const fill = `head -c 1000000 /dev/zero > ${directory}/small && echo ok; head -c 9000000 /dev/zero 2>/dev/null > ${directory}/big || wc -c < ${directory}/big`;
        const [below, size] = (await host.acode.run(fill, { policy })).stdout.split('\n');
        expect(below).toBe('ok');
        expect(Number(size)).toBeGreaterThan(900_000);
        expect(Number(size)).toBeLessThan(2 * MIB);
      }
    });

    // A kernel of its own shows no counters of the host’s, and a run this short is not sampled.
    itWhere(target, 'host counters')('leaves figures of what was used', async () => {
      const { usage } = await host.acode.run(['sh', '-c', 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done']);
      expect(usage?.peakMemoryBytes).toBeGreaterThan(100_000);
      expect(usage?.cpuMs).toBeGreaterThan(1);
    });

    itWhere(target, 'control group')('leaves figures also of a command that was stopped', async () => {
      const { usage } = await host.acode.run(['sleep', '60'], { policy: { timeoutMs: 1200 } });
      expect(usage?.peakMemoryBytes).toBeGreaterThan(100_000);
    });
  });
}
