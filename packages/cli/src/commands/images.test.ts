// What the commands about images show a person.

import type { ImageInfo, PrunedImage, PulledImage } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import type { Call } from '../call.ts';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { Recorder } from '../test-process.ts';
import { BuildOutput, renderProjectImage } from '../project/build-image.ts';
import { renderImages } from './images.ts';
import { renderPrune } from './prune-images.ts';
import { registryOf, renderPulled } from './pull.ts';

const look = lookOf(new Output(new Recorder()), { env: {}, now: () => Date.parse('2026-01-02T03:04:05Z') }, false);
const A = `sha256:${'a'.repeat(64)}`;
const B = `sha256:${'b'.repeat(64)}`;

const image = (more: Partial<ImageInfo> = {}): ImageInfo => ({
  id: A,
  tags: ['node:20-alpine'],
  digests: [`node@${B}`],
  sizeBytes: 180_000_000,
  createdAt: '2025-12-01T00:00:00Z',
  pulledByAcode: true,
  pulledAt: '2025-12-31T03:04:05Z',
  lastUsedAt: '2026-01-01T03:04:05Z',
  containers: 0,
  ...more,
});

const pulled = (more: Partial<PulledImage> = {}): PulledImage => ({
  reference: 'node:20-alpine',
  id: A,
  digest: B,
  changed: true,
  sizeBytes: 180_000_000,
  durationMs: 1000,
  warnings: [],
  ...more,
});

describe('a build', () => {
  const output = (verbose: boolean) => {
    const interruption = { signal: new AbortController().signal } as Call['interruption'];
    const printed = new Recorder();
    const stderr = new Output(printed);
    let now = 0;
    const say = async (text: string): Promise<void> => void (await stderr.write(text));
    const options = { json: false, verbose, color: false };
    const io = { now: () => (now += 1500) };
    return { printed, build: new BuildOutput({ stderr, interruption, options, say, errorLook: look, io }) };
  };

  it('names the current step, with the last line that it printed, and prints each that has ended', async () => {
    const { build, printed } = output(false);
    expect(build.doing).toBe('Reading the project…');
    build.begin('install');
    expect(build.doing).toBe('Running the install command…');
    build.add('one\nadded 3 packages\n');
    expect(build.doing).toBe('Running the install command: added 3 packages');
    build.begin('build');
    expect(build.doing).toBe('Building the image…');
    build.add('Step 1/4 : FROM x\n');
    await build.done();
    expect(printed.text).toBe(
      'acode: read the project, 1.5 s\nacode: ran the install command, 1.5 s\nacode: built the image, 1.5 s\n',
    );
  });

  it('shows what a step printed if it fails, and all of it as it comes with --verbose', async () => {
    const quiet = output(false);
    quiet.build.begin('install');
    quiet.build.add('npm error\n');
    await quiet.build.failed();
    expect(quiet.printed.text).toBe('acode: read the project, 1.5 s\nnpm error\n');
    const loud = output(true);
    loud.build.add('Step 1/4\n');
    await loud.build.failed();
    expect(loud.printed.text).toBe('Step 1/4\n');
  });
});

describe('images', () => {
  it('have tag, digest, size, who pulled them and when they were used, and their sum', () => {
    const items = [image(), image({ tags: [], digests: [], pulledByAcode: false, lastUsedAt: null })];
    const text = renderImages({ items, totalBytes: 360_000_000, diskBytes: 200_000_000 }, look);
    expect(text).toMatch(/^IMAGE +DIGEST +SIZE +PULLED BY +LAST USED\n/);
    expect(text).toMatch(/node:20-alpine +sha256:b{12} +180 MB +acode +1 day ago\n/);
    expect(text).toMatch(/sha256:a{12} +sha256:a{12} +180 MB\n2 images, 360 MB in total, 200 MB on disk\.\n$/);
  });

  it('keep their names in a narrow terminal: the digest gives way first, then who pulled them and when', () => {
    const names = ['registry.example/tools/first:1', 'registry.example/tools/second:1'];
    const items = names.map(name => image({ tags: [name] }));
    const shown = (width: number): string =>
      renderImages({ items, totalBytes: 1, diskBytes: 1 }, { ...look, width })
        .split('\n')
        .slice(0, 3)
        .join('\n');
    expect(shown(120)).toMatch(/^IMAGE +DIGEST +SIZE +PULLED BY +LAST USED\n/);
    expect(shown(70)).toMatch(/^IMAGE +SIZE +PULLED BY +LAST USED\n/);
    for (const width of [70, 55, 41]) for (const name of names) expect(shown(width)).toContain(name);
    expect(
      shown(40)
        .split('\n')
        .every(line => line.length <= 40),
    ).toBe(true);
    expect(shown(40)).toMatch(/tools\/first/);
    expect(shown(40)).toMatch(/tools\/second/);
  });

  it('that there are none of are said to be none', () => {
    expect(renderImages({ items: [], totalBytes: 0, diskBytes: 0 }, look)).toBe('The engine has no images.\n');
  });
});

describe('a pull', () => {
  it('ends with what was pulled, what has moved and what could not be had', () => {
    const failed = [{ reference: 'evil/x', code: 'ACODE-SBX-010', message: 'Refused.', hint: 'Choose another.' }];
    const text = renderPulled(
      [pulled({ previousDigest: A, warnings: ['it moves'] }), pulled({ changed: false })],
      failed,
      look,
    );
    expect(text).toBe(
      [
        `✓ node:20-alpine ${B} (180 MB)`,
        `  the tag has moved: it was ${A}`,
        '  note: it moves',
        `✓ node:20-alpine ${B} (180 MB, was there)`,
        '✗ evil/x: Refused. ACODE-SBX-010',
        '  ╰▶ hint: Choose another.',
        '',
      ].join('\n'),
    );
  });

  it('cannot drive the terminal by a name', () => {
    expect(renderPulled([pulled({ reference: 'x\u001b]0;y\u0007' })], [], look)).not.toContain('\u001b');
  });
});

describe('a prune', () => {
  const one: PrunedImage = {
    reference: 'docker.io/library/x:1',
    id: A,
    sizeBytes: 5_000_000,
    lastUsedAt: '2025-12-01T03:04:05Z',
  };

  it('shows what was removed, what remains and why, and what failed', () => {
    const report = {
      removed: [one],
      kept: [{ ...one, reason: 'a container uses it' }],
      failed: [{ ...one, reason: 'conflict' }],
      removedBytes: 5_000_000,
      dryRun: false,
    };
    const text = renderPrune(report, look);
    expect(text).toMatch(/x:1 +5\.0 MB +32 days ago +removed\n/);
    expect(text).toContain('kept: a container uses it');
    expect(text).toContain('failed: conflict');
    expect(text).toMatch(/Removed 1 image \(freed up to 5\.0 MB: layers that other images share stay\), 1 could not/);
    expect(renderPrune({ ...report, failed: [], dryRun: true }, look)).toContain('would be removed');
  });

  it('of nothing says so', () => {
    const nothing = { removed: [], kept: [], failed: [], removedBytes: 0, dryRun: false };
    expect(renderPrune(nothing, look)).toBe('There is no image that acode pulled or built.\n');
  });
});

it('a project image is shown with the command that uses it', () => {
  const built = {
    reference: 'acode-sandbox-app-0123456789ab:project',
    id: A,
    checksum: 'c',
    built: true,
    changed: [],
    base: { reference: 'node:20-alpine', id: B },
    files: 1,
    bytes: 1,
    withheld: { count: 0, paths: [] },
    dependencies: [],
    durationMs: 1,
  };
  expect(renderProjectImage(built, look)).toContain('acode run --image acode-sandbox-app-0123456789ab:project');
  expect(renderProjectImage({ ...built, dependencies: ['node_modules'] }, look)).toMatch(
    /Dependencies +node_modules\n +Use it +acode run --deps/,
  );
});

it.each([
  ['node', 'docker.io'],
  ['me/tools:1', 'docker.io'],
  ['mcr.microsoft.com/dotnet/sdk:8.0', 'mcr.microsoft.com'],
  ['localhost:5000/x', 'localhost:5000'],
])('%s is asked of %s', (reference, registry) => {
  expect(registryOf(reference)).toBe(registry);
});
