// Dependencies that are not installed are noticed by the files of the project, and what installs them fits its tools.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { missingDependencies } from './missing-dependencies.ts';
import type { NotFound } from './missing-dependencies.ts';

const PROJECT = JSON.stringify({ devDependencies: { vitest: '4' } });

describe('missing dependencies', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'acode-dependencies-'));
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  const found = (files: Readonly<Record<string, string>>, inside = '.', ended?: NotFound): Promise<string | null> => {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, name)), { recursive: true });
      writeFileSync(join(root, name), text);
    }
    return missingDependencies({ root, here: join(root, inside) }, ended);
  };

  it.each([
    [{ 'package.json': PROJECT, 'package-lock.json': '{}' }, '.', '`acode run --network allow=npm:install -- npm ci`'],
    [{ 'package.json': PROJECT }, '.', '-- npm install`'],
    [
      { 'package.json': PROJECT, 'yarn.lock': '' },
      '.',
      '`acode run --network allow=npm:install,registry.yarnpkg.com -- yarn install`',
    ],
    [{ 'package.json': PROJECT, 'pnpm-lock.yaml': '' }, '.', '-- pnpm install --frozen-lockfile`'],
    [{ 'a/package.json': PROJECT, 'a/src/x': '' }, 'a/src', '-- npm install`'],
    [{ 'requirements.txt': 'pytest' }, '.', '"python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"`'],
    [{ 'pyproject.toml': '' }, '.', '`acode run --network allow=pypi "python3 -m venv .venv'],
  ])('of %j in %s are installed by %s', async (files, inside, install) => {
    expect(await found(files, inside)).toContain(install);
  });

  it('does not wait for a pipe that a command left there', async () => {
    execFileSync('mkfifo', [join(root, 'package.json')]);
    expect(await found({})).toBeNull();
  });

  it.each([
    [{ 'package.json': PROJECT, 'node_modules/x': '' }, '.'],
    [{ 'a/package.json': PROJECT, 'node_modules/x': '' }, 'a'],
    [{ 'package.json': '{}' }, '.'],
    [{ 'package.json': 'not JSON' }, '.'],
    [{ 'requirements.txt': 'pytest', '.venv/pyvenv.cfg': '' }, '.'],
    [{ Makefile: '' }, '.'],
  ])('are not suspected in %j', async (files, inside) => {
    expect(await found(files, inside)).toBeNull();
  });

  const NODE = {
    'package.json': JSON.stringify({
      devDependencies: { vitest: '4', '@biomejs/biome': '2', typescript: '6' },
      scripts: { lint: 'oxlint --fix', test: 'vitest run' },
    }),
  };
  it.each<[string, string, Readonly<Record<string, string>>]>([
    ['npm test', 'sh: 1: vitest: not found\n', NODE],
    ['cd a && yarn build', 'sh: gulp: not found\n', NODE],
    ['./node_modules/.bin/x', 'sh: ./node_modules/.bin/x: not found\n', NODE],
    ['make', 'make: vitest: command not found\n', NODE],
    ['biome check', '/bin/sh: biome: not found\n', NODE],
    ['tsc -b', '/bin/sh: tsc: not found\n', NODE],
    ['echo a; oxlint', 'bash: line 1: oxlint: command not found\n', NODE],
    ['vitest', '', NODE],
    ['flask run', 'sh: 1: flask: not found\n', { 'requirements.txt': 'Flask==3.0\n' }],
    ['python3 -m x', '', { 'requirements.txt': 'Flask==3.0\n' }],
  ])('are suspected after %j, which printed %j', async (command, stderr, files) => {
    expect(await found(files, '.', { command, stderr })).toContain('may not be installed');
  });

  it.each<[string, string, Readonly<Record<string, string>>]>([
    ['curl x', '/bin/sh: curl: not found\n', NODE],
    ['curl x', '', NODE],
    ['curl https://example.com/npm', 'sh: 1: curl: not found\n', NODE],
    ['echo vitest; jq .', 'bash: line 1: jq: command not found\n', NODE],
    ['curl x', '/bin/sh: curl: not found\n', { 'requirements.txt': 'Flask==3.0\n' }],
  ])('are not suspected after %j, which printed %j', async (command, stderr, files) => {
    expect(await found(files)).toContain('may not be installed');
    expect(await found(files, '.', { command, stderr })).toBeNull();
  });
});
