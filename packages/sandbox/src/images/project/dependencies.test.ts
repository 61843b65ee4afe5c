// Dependencies of a project image: which directories its label names, and what of a label counts.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { EngineBackend } from '../../isolation/backend.ts';
import { dependenciesFor, dependenciesLabel } from './dependencies.ts';
import { DEPENDENCIES_LABEL } from './project-base.ts';

let root = '';

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'acode-dependencies-'));
});

afterEach(() => {
  rmSync(root, { recursive: true });
});

const directories = (...paths: string[]) => paths.map(path => ({ path, kind: 'directory' as const }));
const label = async (
  sent: ReturnType<typeof directories>,
  before = directories(),
): Promise<{ paths: string[]; omitted: number }> => JSON.parse(await dependenciesLabel(root, sent, before));

function engineWith(text: string): Pick<EngineBackend, 'builds'> {
  const image = { id: 'sha256:1', labels: { [DEPENDENCIES_LABEL]: text }, layers: [], triggers: [] };
  return {
    builds: {
      impossible: null,
      find: () => Promise.resolve(image),
      build: () => Promise.reject(new Error('not built')),
      remove: () => Promise.resolve(),
    },
  };
}

const found = (text: string) =>
  dependenciesFor(engineWith(text), { imageId: 'sha256:1', root, target: '/workspace' }, AbortSignal.timeout(1000));

describe('the label of dependencies', () => {
  it('names the outermost directories of dependencies, and no build output', async () => {
    const sent = directories(
      'node_modules',
      'node_modules/x/node_modules',
      'packages/a/node_modules',
      '.venv',
      'dist',
      'src',
    );
    await expect(label(sent)).resolves.toMatchObject({
      paths: ['.venv', 'node_modules', 'packages/a/node_modules'],
      omitted: 0,
    });
  });

  it('names no link, no file, no sources of the project, and nothing that a mount option could not hold', async () => {
    const link = { path: 'node_modules', kind: 'link' as const };
    const sent = [link, ...directories('vendor', 'a,b/node_modules', 'c d/node_modules', 'e:f/.venv')];
    await expect(dependenciesLabel(root, sent, directories('vendor')).then(JSON.parse)).resolves.toMatchObject({
      paths: [],
      omitted: 3,
    });
    // The control: what an install command made there counts.
    await expect(label(directories('vendor'))).resolves.toMatchObject({ paths: ['vendor'] });
  });

  it('names at most 16, and says how many more there are', async () => {
    const { paths, omitted } = await label(
      directories(...Array.from({ length: 20 }, (_, at) => `p${at}/node_modules`)),
    );
    expect([paths.length, omitted]).toEqual([16, 4]);
  });
});

describe('dependencies for a workspace', () => {
  it.each([
    ['nothing', ''],
    ['another form', '[]'],
    ['a path out of the project', '{"lockfiles":"","paths":["../node_modules"],"omitted":0}'],
    ['an absolute path', '{"lockfiles":"","paths":["/etc/node_modules"],"omitted":0}'],
    ['another directory', '{"lockfiles":"","paths":[".git"],"omitted":0}'],
    ['words of a mount option', '{"lockfiles":"","paths":["x,upperdir=/etc/node_modules"],"omitted":0}'],
    ['none', '{"lockfiles":"","paths":[],"omitted":0}'],
  ])('are refused for a label that says %s', async (_, text) => {
    await expect(found(text)).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      hint: expect.stringContaining('build-image'),
    });
  });

  it('are current until a lockfile changes; without one, until a manifest does', async () => {
    for (const file of ['package.json', 'package-lock.json']) {
      writeFileSync(join(root, file), 'one');
      const text = await dependenciesLabel(root, directories('node_modules'), []);
      expect((await found(text)).notes).toEqual([]);
      writeFileSync(join(root, file), 'two');
      expect((await found(text)).notes).toEqual([expect.stringContaining('out of date')]);
    }
    const text = await dependenciesLabel(root, directories('node_modules'), []);
    writeFileSync(join(root, 'package.json'), 'three');
    expect((await found(text)).notes).toEqual([]);
  });

  it('say what they hide, and what has no place', async () => {
    mkdirSync(join(root, 'node_modules/x'), { recursive: true });
    const text = await dependenciesLabel(root, directories('node_modules', 'gone/node_modules'), []);
    await expect(found(text)).resolves.toMatchObject({
      dependencies: [{ source: '/project/node_modules', target: '/workspace/node_modules' }],
      notes: [expect.stringContaining('hidden and unchanged'), expect.stringContaining('gone/node_modules')],
    });
  });
});
