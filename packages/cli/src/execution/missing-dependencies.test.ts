// Dependencies that are not installed are noticed by the files of the project, and what installs them fits its tools.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { missingDependencies } from './missing-dependencies.ts';
import type { NotFound } from './missing-dependencies.ts';

const PROJECT = JSON.stringify({ devDependencies: { vitest: '4' } });
const SEVERAL = JSON.stringify({ dependencies: { '@scope/one': '1' }, devDependencies: { vitest: '4', eslint: '9' } });
const OPTIONAL = JSON.stringify({
  devDependencies: { x: '1', fsevents: '2' },
  optionalDependencies: { fsevents: '2' },
});
// What leaves node_modules, drives a terminal or is longer than any name is not looked for, and not printed.
const ODD_NAMES = JSON.stringify({
  dependencies: { '../../etc/none': '1', '.bin': '1', 'a\n\u001b[2J': '1', 'two words': '1', ['n'.repeat(300)]: '1' },
});

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

  it.each<[Readonly<Record<string, string>>, string]>([
    [{ 'package.json': PROJECT, 'node_modules/x': '' }, 'vitest is not installed.'],
    [
      { 'package.json': SEVERAL, 'node_modules/@scope/other/x': '' },
      '@scope/one and 2 other packages are not installed.',
    ],
    [{ 'package.json': SEVERAL, 'node_modules/@scope/one/x': '' }, 'vitest and 1 other package are not installed.'],
    [{ 'package.json': SEVERAL, 'node_modules/vitest/x': '', 'node_modules/@scope': '' }, 'eslint is not installed.'],
  ])('of %j are incomplete: %s', async (files, what) => {
    expect(await found({ ...files, 'package-lock.json': '{}' })).toBe(
      `node_modules is incomplete: ${what} To install them: \`acode run --network allow=npm:install -- npm ci\`. Then run this again.`,
    );
  });

  it('that are incomplete name the package that the command wanted first', async () => {
    const files = { 'package.json': SEVERAL, 'node_modules/x': '' };
    expect(await found(files, '.', { command: 'npm test', stderr: 'sh: 1: vitest: not found\n' })).toContain(
      'incomplete: vitest and 2 other packages are not installed',
    );
  });

  it('are looked for through no link', async () => {
    const outside = mkdtempSync(join(tmpdir(), 'acode-dependencies-'));
    try {
      mkdirSync(join(root, 'node_modules'));
      symlinkSync(outside, join(root, 'node_modules/@scope'));
      writeFileSync(join(root, 'node_modules/vitest'), '');
      writeFileSync(join(root, 'node_modules/eslint'), '');
      expect(await found({ 'package.json': SEVERAL })).toBeNull();
      rmSync(join(root, 'node_modules'), { recursive: true });
      symlinkSync(outside, join(root, 'node_modules'));
      expect(await found({ 'package.json': SEVERAL })).toBeNull();
    } finally {
      rmSync(outside, { recursive: true });
    }
  });

  it('does not wait for a pipe that a command left there', async () => {
    execFileSync('mkfifo', [join(root, 'package.json')]);
    expect(await found({})).toBeNull();
  });

  it.each([
    [{ 'package.json': PROJECT, 'node_modules/vitest/x': '' }, '.'],
    [{ 'a/package.json': PROJECT, 'node_modules/vitest/x': '', 'a/node_modules/y/x': '' }, 'a'],
    [{ 'package.json': PROJECT, 'node_modules/.cache/x': '', '.pnp.cjs': '' }, '.'],
    [{ 'package.json': OPTIONAL, 'node_modules/x': '' }, '.'],
    [{ 'package.json': ODD_NAMES, 'node_modules/x': '' }, '.'],
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
