// `acode build` and `acode test` on a real engine: the project’s own command, and one sandbox for each package of a workspace.

import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { Bench } from './bench.ts';

const resultSchema = z.looseObject({
  schema: z.string(),
  tool: z.string(),
  packages: z.array(z.looseObject({ package: z.string(), outcome: z.string(), output: z.string() })),
});

describe.skipIf(withoutEngines)('`acode build` and `acode test`', () => {
  let bench: Bench;
  let project = '';

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    await bench.configure({ images: { default: images.debian } });
  });

  beforeEach(({ task }) => {
    project = join(bench.workspace, task.id.replaceAll(/\W/g, ''));
  });

  afterAll(async () => {
    expect(await bench.left()).toEqual([]);
    await bench[Symbol.asyncDispose]();
  });

  const files = async (all: Readonly<Record<string, string>>): Promise<void> => {
    for (const [path, text] of Object.entries(all)) {
      await mkdir(dirname(join(project, path)), { recursive: true });
      await writeFile(join(project, path), text);
    }
  };
  const script = (name: string, test: string): string => JSON.stringify({ name, scripts: { test } });
  const acode = (...argv: string[]) => bench.call(argv, { cwd: project });

  it('run the command that the files mean, in their directory, with the arguments after --', async () => {
    await files({ 'package.json': script('p', 'echo in $PWD with'), Makefile: 'all:\n\t@echo made $(WORD)\n' });
    const [tested, built] = await Promise.all([
      acode('test', '--', 'a b'),
      acode('build', '--with', 'make', '--', 'WORD=it'),
    ]);
    expect(tested).toMatchObject({ status: 0, stderr: expect.stringContaining("acode: running: npm test -- 'a b'\n") });
    expect(tested.stdout.toString()).toMatch(/in \/workspace\/\w+ with a b\n/);
    expect(built).toMatchObject({ status: 0, stderr: 'acode: running: make WORD=it\n' });
    expect(built.stdout.toString()).toBe('made it\n');
  });

  it('end with the status of the command, and name dependencies that are not installed', async () => {
    await files({ 'requirements.txt': 'pytest\n' });
    const { status, stdout, stderr } = await acode('test');
    expect([status, stdout.toString()]).toEqual([1, '']);
    expect(stderr).toMatch(/running: python3 -m pytest\n[^]*No module named pytest\n[^]*hint: .*there is no \.venv/);
  });

  it('say that node_modules is incomplete, and so does `acode run`', async () => {
    const manifest = { scripts: { test: 'vitest' }, devDependencies: { vitest: '4' } };
    await files({ 'package.json': JSON.stringify(manifest), 'node_modules/other/package.json': '{}' });
    const [tested, ran] = await Promise.all([acode('test'), acode('run', 'npm test')]);
    const hint =
      'acode: hint: node_modules is incomplete: vitest is not installed. To install them: `acode run --network allow=npm:install -- npm install`. Then run this again.\n';
    for (const { status, stderr } of [tested, ran]) {
      expect(status).toBe(127);
      expect(stderr.split(hint)).toHaveLength(2);
      expect(stderr).not.toContain('--image');
    }
  });

  it('--parallel runs each package in a sandbox of its own, shows what failed, and ends with one table', async () => {
    await files({
      'package.json': JSON.stringify({ workspaces: ['packages/*'] }),
      'packages/a/package.json': script('a', 'touch /tmp/from-a; echo quiet'),
      'packages/b/package.json': script('b', 'touch /tmp/from-b; ls /tmp; echo loud >&2; exit 3'),
      'packages/c/package.json': '{}',
    });
    const { status, stdout, stderr } = await acode('test', '--parallel', '--jobs', '1');
    expect(status).toBe(1);
    const shown = stdout.toString();
    // Which of the two streams comes first is not said.
    for (const line of ['from-b', 'loud'])
      expect(shown).toMatch(new RegExp(`^── packages/b: failed\n[^]*^${line}\n`, 'm'));
    // The first package ran before, in another sandbox with another /tmp; and what it printed is of no interest.
    expect(shown).not.toMatch(/from-a|quiet/);
    expect(shown).toMatch(
      /PACKAGE +RESULT +TIME +NOTE\npackages\/a +passed +[\d.]+ s\npackages\/b +failed \(3\) +[\d.]+ s\npackages\/c +skipped/,
    );
    expect(shown).toMatch(/1 passed, 1 failed, 1 skipped\n$/);
    expect(stderr).toMatch(/running: npm test in 3 packages, 1 at a time\n/);
  });

  it('--parallel --json is one object', async () => {
    await files({ 'package.json': JSON.stringify({ workspaces: ['a'] }), 'a/package.json': script('a', 'echo out') });
    const { status, stdout } = await acode('test', '--parallel', '--json');
    expect(status).toBe(0);
    const { packages, ...about } = resultSchema.parse(JSON.parse(stdout.toString()));
    expect(about).toMatchObject({ schema: 'acode.test/1', tool: 'npm', command: ['npm', 'test'] });
    expect(packages).toMatchObject([{ package: 'a', outcome: 'passed', exitCode: 0 }]);
    expect(packages[0]?.output).toContain('out\n');
  });

  it('--parallel ends every sandbox at a signal', async () => {
    const wait = script('x', 'echo up; sleep 60');
    await files({
      'package.json': JSON.stringify({ workspaces: ['a', 'b', 'c'] }),
      'a/package.json': wait,
      'b/package.json': wait,
      'c/package.json': wait,
    });
    const { child, ended } = bench.start(['test', '--parallel', '--jobs', '2'], { cwd: project });
    await expect.poll(() => bench.left()).toHaveLength(2);
    child.kill('SIGINT');
    await expect(ended).resolves.toMatchObject({ status: 130, stderr: expect.stringContaining('stopped by SIGINT') });
    expect(await bench.left()).toEqual([]);
  });
});
