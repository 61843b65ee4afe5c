// Dependencies that are not installed are noticed by the files of the project, and what installs them fits its tools.

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { missingDependencies } from './missing-dependencies.ts';

const PROJECT = JSON.stringify({ devDependencies: { vitest: '4' } });

describe('missing dependencies', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'acode-dependencies-'));
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  const found = (files: Readonly<Record<string, string>>, inside = '.'): Promise<string | null> => {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, name)), { recursive: true });
      writeFileSync(join(root, name), text);
    }
    return missingDependencies({ root, here: join(root, inside) });
  };

  it.each([
    [{ 'package.json': PROJECT, 'package-lock.json': '{}' }, '.', '--fill-cache npm --network bridge -- npm ci`'],
    [{ 'package.json': PROJECT }, '.', '-- npm install`'],
    [{ 'package.json': PROJECT, 'yarn.lock': '' }, '.', '--fill-cache yarn --network bridge -- yarn install`'],
    [{ 'package.json': PROJECT, 'pnpm-lock.yaml': '' }, '.', '-- pnpm install --frozen-lockfile`'],
    [{ 'a/package.json': PROJECT, 'a/src/x': '' }, 'a/src', '-- npm install`'],
    [{ 'requirements.txt': 'pytest' }, '.', '"python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"`'],
    [{ 'pyproject.toml': '' }, '.', '--fill-cache pip --network bridge "python3 -m venv .venv'],
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
});
