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
        on.images.remove(built.reference, { force: true, signal: AbortSignal.timeout(60_000) }),
      ),
    );
    expect(built).toMatchObject({ schema: 'acode.build-image/1', built: true });
    expect(first.stderr).toMatch(/^acode: read the project, [\d.]+ s\nacode: built the image, [\d.]+ s\n$/);
    const second = await bench.call(['sandbox', 'build-image']);
    expect(second.stdout.toString()).toMatch(/^Unchanged: acode-sandbox-workspace-[0-9a-f]{12}:project\n/);
    expect(second.stdout.toString()).toContain('.env');
    expect(second.stderr).toBe('');
    const third = await bench.call(['sandbox', 'build-image', '--install', 'echo dep > dep', '--json', '--verbose']);
    expect(third.stderr).toContain('COPY project/ /project/');
    expect(answer.parse(JSON.parse(third.stdout.toString()))).toMatchObject({ built: true, changed: ['install'] });
    const run = await bench.exec(['--image', built.reference, '--', 'cat', '/project/dep', '/project/main.sh']);
    expect(run.stdout.toString()).toBe('dep\necho hi\n');
    expect(await bench.left()).toEqual([]);
  });

  it('says how the image is used, and warns where what was installed is in it no more', async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'main.sh'), 'echo hi\n');
    const first = await bench.call(['sandbox', 'build-image', '--install', 'echo dep > dep', '--json']);
    const built = answer.parse(JSON.parse(first.stdout.toString()));
    onTestFinished(() =>
      withEngine(mainEngine, on =>
        on.images.remove(built.reference, { force: true, signal: AbortSignal.timeout(60_000) }),
      ),
    );
    expect(first.stderr).not.toContain('warning');
    const elsewhere = await bench.exec(['--image', built.reference, '--workdir', '/project', '--', 'pwd']);
    expect(elsewhere.status).toBe(125);
    expect(elsewhere.stderr).toMatch(/hint: .*directory of the workspace.*"cd \/project && …"/);
    const inside = await bench.exec(['--image', built.reference, 'cd /project && cat dep']);
    expect(inside.stdout.toString()).toBe('dep\n');
    const without = await bench.call(['sandbox', 'build-image']);
    expect(without.stderr).toMatch(/warning: .*with an install command before, and this build has none/);
    expect(without.stdout.toString()).toMatch(new RegExp(`Use it +acode run --image ${built.reference} `));
    await bench.repositoryFile(`sandbox: { images: { default: ${built.reference} } }\n`);
    expect((await bench.exec(['--', 'cat', '/project/main.sh'])).stdout.toString()).toBe('echo hi\n');
    const onItself = await bench.call(['sandbox', 'build-image']);
    expect(onItself.status).toBe(125);
    expect(onItself.stderr).toMatch(
      /^acode: --base: commands here get .*hint: Name the image to build on with --base/s,
    );
  });

  it('ends with 125 and a way on where it is refused, and with 2 where it is called wrongly', async () => {
    await using bench = await Bench.at(mainEngine);
    const refused = await bench.call(['sandbox', 'build-image', '--json', '--base', images.hostile]);
    expect(refused.status).toBe(125);
    expect(JSON.parse(refused.stdout.toString())).toMatchObject({ schema: 'acode.error/1', code: 'ACODE-SBX-010' });
    expect((await bench.call(['sandbox', 'build-image', '--network', 'none'])).status).toBe(2);
    const audit = await bench.call(['audit', 'tail', '--json']);
    expect(audit.stdout.toString()).toMatch(
      /"kind":\s*"refusal"[^}]*"operation":\s*"build"|"operation":\s*"build"[^}]*"kind":\s*"refusal"/,
    );
  });

  it('tells an install command that could fetch nothing that it had no network, and how to get one', async () => {
    await using bench = await Bench.at(mainEngine);
    writeFileSync(join(bench.workspace, 'package.json'), '{}');
    // In place of the real one, which tries for minutes.
    writeFileSync(join(bench.workspace, 'npm'), 'echo trying; sleep 60\n');
    // Another test may have filled the cache that npm would have here.
    await bench.configure({ defaults: { timeout_seconds: 2 }, cache_volumes: { enabled: false } });
    const late = await bench.call(['sandbox', 'build-image', '--install', 'sh ./npm ci']);
    expect(late.status).toBe(125);
    expect(late.stderr).toMatch(/warning: the install command has no network/);
    expect(late.stderr).toMatch(/took longer than its time limit, and it had no network/);
    expect(late.stderr).toMatch(/hint: .*--network allow=npm:install/);
    expect(late.stderr).not.toContain('.dockerignore');
    await bench.configure({});
    const failed = await bench.call(['sandbox', 'build-image', '--install', "echo 'wget: bad address' >&2; exit 1"]);
    expect(failed.stderr).toMatch(/the install command ended with 1, and it had no network/);
    const unrelated = await bench.call(['sandbox', 'build-image', '--install', 'echo printed; exit 3']);
    expect(unrelated.stderr).toMatch(/^acode: read the project, [\d.]+ s\nprinted\n/);
    expect(unrelated.stderr).toMatch(/the install command ended with 3\./);
    expect(unrelated.stderr).not.toContain('--network');
    writeFileSync(join(bench.workspace, 'go.mod'), '');
    await bench.configure({ images: {} });
    const several = await bench.call(['sandbox', 'build-image']);
    expect(several.stderr).toMatch(/several languages[^]*hint: .*--base/);
    expect(several.stderr).not.toContain('--image');
  });
});
