// What holds where a sandbox has a kernel of its own, in place of the behaviours that are about the host’s kernel.
//
// Not held there, and why: a limit on processes counts the runtime’s own threads, so a small one keeps the sandbox from
// starting and none is reported as hit; few open files do the same; the control groups inside are not the host’s; the
// end of one process for want of memory is the end of all of them.

import { release } from 'node:os';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { images } from '../support/engines.ts';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import { describeWhere } from './targets.ts';
import type { Target } from './targets.ts';

const MIB = 1024 ** 2;

export function ownKernelBehaviours(target: Target): void {
  const { level } = target;
  describeWhere(target, 'own kernel')('a sandbox with a kernel of its own', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('shows that kernel, and says level and runtime in the result', async () => {
      const result = await host.acode.run(['cat', '/proc/version']);
      expect(result).toMatchObject({ exitCode: 0, level, runtime: 'runsc' });
      expect(result.stdout).not.toContain(release());
    });

    it('is explained with its runtime, without the filter, and with a note that says so', async () => {
      const { engineRequest, notes } = await host.acode.explain(['true']);
      expect(engineRequest).toMatchObject({ HostConfig: { Runtime: 'runsc', SecurityOpt: ['no-new-privileges'] } });
      expect(notes.join('\n')).toMatch(/does not apply the system call filter/);
    });

    it('runs without capabilities, on a root that is mounted read-only', async () => {
      const { stdout } = await host.acode.run(
        'grep ^Cap /proc/self/status; grep " / " /proc/mounts | cut -d" " -f4 | cut -d, -f1; touch /tmp/works && echo works',
      );
      const lines = stdout.trim().split('\n');
      expect(lines.slice(0, -2).filter(line => !/^Cap\w+:\s+0+$/.test(line))).toEqual([]);
      expect(lines.slice(-2)).toEqual(['ro', 'works']);
    });

    it('has no network but its own loopback', async () => {
      const { stdout } = await host.acode.run('tail -n +3 /proc/net/dev | cut -d: -f1');
      expect(stdout.trim()).toBe('lo');
    });

    it('ends as a whole when memory runs out, and that is reported', async () => {
      const hog = "sh -c 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done'; echo survived";
      const result = await host.acode.run(['sh', '-c', hog], {
        policy: { image: images.busybox, limits: { memoryBytes: 64 * MIB } },
      });
      expect(result).toMatchObject({ exitCode: 137, oomKilled: true, limitExceeded: 'memory', stdout: '' });
    });
  });
}
