// Sandboxes of level bubblewrap that are given up while they are made: what was started by then goes as well.

import { readFileSync, readdirSync, rmSync } from 'node:fs';
import { Acode } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { targets } from '../conformance/targets.ts';
import { makeWorkspace } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { until } from '../support/waiting.ts';

const ROUNDS = everything ? 100 : 25;
const AT_ONCE = 4;

// Without a parent of ours, and before it has a view of its own, such a process is known by its name alone.
function strays(): Set<string> {
  return new Set(readdirSync('/proc').filter(name => /^\d+$/.test(name) && isStray(name)));
}

function isStray(pid: string): boolean {
  try {
    const [, name = '', state = '', parent = ''] =
      /^\d+ \((.*)\) (\S) (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
    // One that has ended waits for whoever collects the ended, and that is not ours to do.
    return name === 'bwrap' && parent === '1' && state !== 'Z';
  } catch {
    return false;
  }
}

for (const { name, options, absent } of targets.filter(({ level }) => level === 'bubblewrap'))
  describe.skipIf(absent)(`sandboxes of ${name} that are given up while they are made`, () => {
    it('leave no process behind, whatever moment it was', async () => {
      const workspace = makeWorkspace();
      const before = strays();
      await using acode = await Acode.open({
        ...options,
        engine: { socket: '/nonexistent' },
        workspace,
        maxConcurrent: AT_ONCE,
      });
      const began = performance.now();
      await acode.run(['true']);
      const longestMs = performance.now() - began;
      let ran = 0;
      const worker = async (): Promise<void> => {
        for (let round = 0; round < ROUNDS; round += 1) {
          const cancel = new AbortController();
          setTimeout(() => cancel.abort(), Math.random() * longestMs);
          await acode.run(['true'], { signal: cancel.signal }).then(
            () => (ran += 1),
            () => undefined,
          );
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));
      // Otherwise it was not the making that was given up.
      expect(ran).toBeLessThan(ROUNDS * AT_ONCE);
      await until(() => [...strays()].every(pid => before.has(pid)));
      rmSync(workspace, { recursive: true });
    });
  });
