// Shows `acode sandbox build-image` as people and programs see it.

import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import * as z from 'zod';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';

const answer = z.looseObject({
  schema: z.string(),
  reference: z.string(),
  built: z.boolean(),
  changed: z.array(z.string()),
});

describe.skipIf(withoutEngines)('acode sandbox build-image', () => {
  it('builds once, says what changed, and prints one object where it is asked to', async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'main.sh'), 'echo hi\n');
    writeFileSync(join(bench.workspace, '.env'), 'KEY=x\n');
    mkdirSync(join(bench.workspace, 'empty'));
    const first = await bench.call(['sandbox', 'build-image', '--json']);
    expect(first.status, first.stderr).toBe(0);
    const built = answer.parse(JSON.parse(first.stdout.toString()));
    onTestFinished(() =>
      withEngine(mainEngine, on =>
        on.images.remove(built.reference, { force: true, signal: AbortSignal.timeout(10_000) }),
      ),
    );
    expect(built).toMatchObject({ schema: 'acode.build-image/1', built: true });
    expect(first.stderr).toContain('COPY project/ /project/');
    const second = await bench.call(['sandbox', 'build-image']);
    expect(second.stdout.toString()).toMatch(/^Unchanged: acode-sandbox-workspace-[0-9a-f]{12}:project\n/);
    expect(second.stdout.toString()).toContain('.env');
    expect(second.stderr).toBe('');
    const third = await bench.call(['sandbox', 'build-image', '--install', 'echo dep > dep', '--json']);
    expect(answer.parse(JSON.parse(third.stdout.toString()))).toMatchObject({ built: true, changed: ['install'] });
    const run = await bench.exec(['--image', built.reference, '--', 'cat', '/project/dep', '/project/main.sh']);
    expect(run.stdout.toString()).toBe('dep\necho hi\n');
    expect(await bench.left()).toEqual([]);
  });

  it('ends with 125 and a way on where it is refused, and with 2 where it is called wrongly', async () => {
    await using bench = await Bench.at(mainEngine);
    const refused = await bench.call(['sandbox', 'build-image', '--json', '--base', images.hostile]);
    expect(refused.status).toBe(125);
    expect(JSON.parse(refused.stdout.toString())).toMatchObject({ schema: 'acode.error/1', code: 'ACODE-SBX-010' });
    expect((await bench.call(['sandbox', 'build-image', '--network', 'none'])).status).toBe(2);
  });
});
