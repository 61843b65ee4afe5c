// Shows that an image is built again when an input has changed, whichever it is, and otherwise not even asked for.

import { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { engines, images, withoutEngines } from '../support/engines.ts';
import { ProjectBench } from './bench.ts';

type Change = (bench: ProjectBench) => Parameters<ProjectBench['build']>[0] | void;

// What is done to a project, and the inputs that it changes.
const CHANGES: readonly (readonly [what: string, inputs: readonly string[], change: Change])[] = [
  ['a file’s content', ['context'], bench => bench.put('src/a.js', 'other')],
  ['a file’s content of the same length', ['context'], bench => bench.put('src/a.js', 'src/b.js')],
  ['whether a file can be executed', ['context'], bench => chmodSync(bench.host.file('src/a.js'), 0o755)],
  ['a file’s name', ['context'], bench => renameSync(bench.host.file('src/a.js'), bench.host.file('src/z.js'))],
  ['a new empty directory', ['context'], bench => mkdirSync(bench.host.file('empty'))],
  ['a file that is gone', ['context'], bench => rmSync(bench.host.file('src/a.js'))],
  [
    'where a link leads',
    ['context'],
    bench => {
      rmSync(bench.host.file('way'));
      symlinkSync('package.json', bench.host.file('way'));
    },
  ],
  ['a lockfile that is left out', ['lockfiles'], bench => bench.put('package-lock.json', '{"lockfileVersion":3}')],
  ['what is left out', ['ignore'], bench => bench.put('.dockerignore', 'package-lock.json\n.dockerignore\n# more\n')],
  ['the base', ['base'], () => ({ base: images.noshell })],
  ['the install command', ['install'], () => ({ install: { command: 'true' } })],
];

// What is done to a project that changes no input.
const HARMLESS: readonly (readonly [what: string, change: (bench: ProjectBench) => void])[] = [
  ['nothing', () => undefined],
  ['the time of a file', bench => bench.put('src/a.js')],
  ['a secret', bench => bench.put('.env', 'other')],
  ['a file that is left out', bench => bench.put('ignored.log', 'other')],
  ['who may read a file', bench => chmodSync(bench.host.file('src/a.js'), 0o600)],
];

async function project(bench: ProjectBench): Promise<void> {
  bench.put('src/a.js');
  bench.put('package.json', '{}');
  bench.put('package-lock.json', '{}');
  bench.put('ignored.log');
  bench.put('.env');
  bench.put('.dockerignore', 'package-lock.json\n.dockerignore\n*.log\n');
  symlinkSync('src/a.js', bench.host.file('way'));
  expect((await bench.build()).built).toBe(true);
}

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  it.each(CHANGES)('%s is a reason to build', async (what, inputs, change) => {
    await using bench = await ProjectBench.at(engine);
    await project(bench);
    // The pattern for logs goes with the rest of the old file.
    if (what === 'what is left out') rmSync(bench.host.file('ignored.log'));
    const options = change(bench) ?? {};
    expect(await bench.build(options)).toMatchObject({ built: true, changed: inputs });
    expect(bench.builds).toBe(2);
    expect(await bench.build(options)).toMatchObject({ built: false, changed: [] });
    expect(bench.builds).toBe(2);
  });

  it.each(HARMLESS)('%s is none', async (_what, change) => {
    await using bench = await ProjectBench.at(engine);
    await project(bench);
    change(bench);
    expect(await bench.build()).toMatchObject({ built: false, changed: [] });
    expect(bench.builds).toBe(1);
    // The control: the same call builds when it is told to.
    expect(await bench.build({ force: true })).toMatchObject({ built: true });
    expect(bench.builds).toBe(2);
  });
});
