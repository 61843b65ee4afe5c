// Eight commands at once, each in a fork of the same snapshot: none sees what another writes.

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyInput } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import { targets } from '../conformance/targets.ts';
import { images, mainEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { fingerprint, project } from './project.ts';

const MIB = 1024 ** 2;
const NUMBERS = Array.from({ length: 8 }, (_, number) => number);
// It writes what the snapshot has, the workspace has and neither has; waits until all others have, and prints what it sees.
const SCRIPT = `echo $0 >> snapshot.txt; echo $0 > a.txt; echo $0 > own-$0; rm run.sh; rm -r src; mkdir src; echo $0 > src/$0
echo ready; read -r line
cat snapshot.txt a.txt own-*; ls src; sed -n '/ \\/workspace / s/.*upperdir=\\([^,]*\\),workdir=\\([^, ]*\\).*/upper \\1\\nwork \\2/p' /proc/self/mountinfo`;

const chosen = targets.filter(
  ({ name, level, absent }) =>
    !absent &&
    (level === 'bubblewrap'
      ? existsSync('/usr/bin/bwrap')
      : name === `${mainEngine.name}/runc` || (everything && name.endsWith('/runc'))),
);

describe.each(chosen)('eight commands at once from one snapshot on $name', target => {
  it('share nothing that they can write; with a direct mount, the same commands do', async () => {
    await using host = await openHost({ ...target, options: { ...target.options, maxConcurrent: NUMBERS.length } });
    project(host.workspace);
    const before = fingerprint(host.workspace);
    const policy = (more: PolicyInput): PolicyInput =>
      policyFrom({ ...host.image(images.debian), limits: { memoryBytes: 64 * MIB }, ...more });
    // Lines that each printed once all of them had written.
    const atOnce = async (policyOf: (number: number) => PolicyInput): Promise<string[][]> => {
      const started = NUMBERS.map(async number => {
        let ready = (): void => undefined;
        const isReady = new Promise<void>(resolve => void (ready = resolve));
        const running = await host.acode.spawn(['sh', '-c', SCRIPT, String(number)], {
          policy: policyOf(number),
          risk: 'low',
          onStdout: chunk => {
            if (Buffer.from(chunk).includes('ready')) ready();
          },
        });
        return { running, isReady };
      });
      const all = await Promise.all(started);
      await Promise.race([
        Promise.all(all.map(({ isReady }) => isReady)),
        Promise.all(all.map(async ({ running }) => running.result)),
      ]);
      await Promise.all(all.map(({ running }) => running.write('\n')));
      const results = await Promise.all(all.map(({ running }) => running.result));
      return results.map(({ stdout }) => stdout.trim().split('\n'));
    };

    const base = { workspace: 'fork', fork: 'base' } as const;
    await host.acode.run(['sh', '-c', 'echo snapshot > snapshot.txt'], { policy: policy(base), risk: 'low' });
    await host.acode.forks.snapshot('clean', 'base');
    const { id } = await host.acode.forks.diff({ fork: 'base' });
    for (const number of NUMBERS) await host.acode.forks.create({ from: 'base@clean', name: `try-${number}` });

    const printed = await atOnce(number => policy({ workspace: 'fork', fork: `try-${number}` }));
    const withoutMounts = printed.map(lines => lines.filter(line => !/^(?:upper|work) /.test(line)));
    expect(withoutMounts).toEqual(
      NUMBERS.map(number => ['ready', 'snapshot', `${number}`, `${number}`, `${number}`, `${number}`]),
    );
    // The kernel’s own word for it: no directory that is written is in two mounts.
    const written = printed.flatMap(lines => lines.filter(line => /^(?:upper|work) /.test(line)));
    expect(written).toHaveLength(2 * NUMBERS.length);
    expect(new Set(written).size).toBe(written.length);
    for (const number of NUMBERS) {
      const { changes } = await host.acode.forks.diff({ fork: `try-${number}` });
      expect(changes.map(({ change, path }) => `${change} ${path}`)).toEqual(
        expect.arrayContaining([`added own-${number}`, `added snapshot.txt`, `added src/${number}`, 'deleted run.sh']),
      );
      expect(changes.filter(({ path }) => /^own-|^src\/\d/.test(path))).toHaveLength(2);
    }
    expect((await host.acode.forks.diff({ fork: 'base' })).id).toBe(id);
    expect(fingerprint(host.workspace)).toBe(before);
    for (const one of await host.acode.forks.list()) await host.acode.forks.discard(one.id);

    // The control: in the workspace itself, each sees what the others write.
    const shared = await atOnce(() => policy({ workspace: 'direct' }));
    expect(shared.filter(lines => NUMBERS.every(number => lines.includes(`${number}`)))).toHaveLength(NUMBERS.length);
  });
});
