// Random commands in forks wherever they run, three layers each: the diff against a full listing that a command prints inside.
// One case here; `npm run ci:long forks` has many, on every engine and level.

import { execFileSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { ForkChange } from '@acode/sandbox';
import {
  Chance,
  LISTING,
  SEEDS,
  expected,
  reported,
  script,
  treeOf,
} from '../../packages/sandbox/src/workspace/fork/random.test.support.ts';
import type { Tree } from '../../packages/sandbox/src/workspace/fork/random.test.support.ts';
import { targets } from '../conformance/targets.ts';
import type { Target } from '../conformance/targets.ts';
import { images, mainEngine, makeWorkspace } from '../support/engines.ts';
import { everything } from '../support/targets.ts';

const CASES = Number(process.env['ACODE_RANDOM_FORKS'] ?? 1);
const LAYERS = 3;

const chosen = targets.filter(({ name, level, absent }) => {
  if (absent || (level === 'bubblewrap' && !existsSync('/usr/bin/bwrap'))) return false;
  return (
    level === 'bubblewrap' ||
    name === `${mainEngine.name}/runc` ||
    (everything && level !== 'ulimit' && level !== 'none')
  );
});

/** What happened in all cases of a target. */
interface Figures {
  changes: number;
  /** FIFOs and sockets that exist only inside: gVisor keeps them to itself. */
  inside: number;
  wrong: string[];
}

// Valid UTF-8 as it is; in other names invalid bytes as octal numbers, and backslashes doubled.
function shown(name: string): string {
  const bytes = Buffer.from(name, 'latin1');
  const text = bytes.toString('utf8');
  if (Buffer.from(text).equals(bytes)) return text;
  return name
    .replaceAll('\\', String.raw`\\`)
    .replaceAll(/[\u0080-\u00ff]/g, byte => `\\${(byte.codePointAt(0) ?? 0).toString(8)}`);
}

function textual(tree: Tree): Tree {
  return new Map([...tree].map(([name, entry]) => [shown(name), entry]));
}

async function runCase(acode: Acode, workspace: string, target: Target, seed: number, figures: Figures): Promise<void> {
  const chance = new Chance(seed);
  const onHost = (text: string): Buffer =>
    execFileSync('sh', [], { cwd: workspace, input: Buffer.from(text, 'latin1'), maxBuffer: 2 ** 26, timeout: 60_000 });
  const before = textual(treeOf(onHost([SEEDS, script(chance, 10), LISTING].join('\n'))));
  const fork = `seed-${seed}`;
  const image = target.lacks.engine === undefined ? { image: images.debian } : {};
  let listing = Buffer.alloc(0);
  for (let layer = 1; layer <= LAYERS; layer += 1) {
    const { stdout, stdoutBytes } = await acode.run(['sh', '-s'], {
      policy: policyFrom({ ...image, workspace: 'fork', fork }),
      risk: 'low',
      stdin: Buffer.from(`${script(chance, 12)}\n${layer === LAYERS ? LISTING : 'true'}\n`, 'latin1'),
    });
    listing = Buffer.from(stdoutBytes ?? stdout);
  }
  const inside = textual(treeOf(listing));
  // One of the workspace’s own is there on the host, too.
  const isHidden = (name: string, kind: string): boolean =>
    target.level === 'gvisor' && 'ps'.includes(kind) && before.get(name)?.kind !== kind;
  const after = new Map([...inside].filter(([name, { kind }]) => !isHidden(name, kind)));
  figures.inside += inside.size - after.size;
  const forks = await acode.forks.list();
  const changes: readonly ForkChange[] = forks.some(({ name }) => name === fork)
    ? (await acode.forks.diff({ fork })).changes
    : [];
  figures.changes += changes.length;
  const found = reported(changes.map(change => ({ bytes: change.path, change })));
  const wanted = expected(before, after);
  for (const line of new Set([...found, ...wanted]))
    if (found.includes(line) !== wanted.includes(line))
      figures.wrong.push(`seed ${seed}: ${found.includes(line) ? 'only in the diff' : 'missing'}: ${line}`);
  for (const { id } of forks) await acode.forks.discard(id);
}

describe.each(chosen)('random commands in forks on $name', target => {
  const workspace = makeWorkspace();
  afterAll(() => rmSync(workspace, { recursive: true, force: true }));

  it('have exactly the changes that a full listing inside shows', { timeout: 60_000 * (CASES + 2) }, async () => {
    await using acode = await Acode.open({
      workspace,
      ...target.options,
      engine: { socket: target.engine.socket },
      config: { sandbox: { ...target.options.config?.sandbox } },
    });
    const figures: Figures = { changes: 0, inside: 0, wrong: [] };
    for (let seed = 1; seed <= CASES; seed += 1) {
      await runCase(acode, workspace, target, seed, figures);
      execFileSync('sh', ['-c', 'chmod -R u+rwx . && find . -mindepth 1 -delete'], { cwd: workspace });
    }
    const { changes, inside, wrong } = figures;
    if (CASES > 1)
      process.stdout.write(
        `FIGURE ${target.name}: ${CASES} cases of ${LAYERS} layers, ${changes} changes, ${wrong.length} wrong${inside > 0 ? `, ${inside} FIFOs only inside` : ''}\n`,
      );
    expect(wrong).toEqual([]);
    expect(changes).toBeGreaterThan(CASES * 5);
  });
});
