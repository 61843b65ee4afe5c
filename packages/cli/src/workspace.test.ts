// Which directory is the workspace, and where in it the user stands.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { call } from './test-process.ts';
import { placeOf } from './workspace.ts';

let top = '';

beforeEach(() => (top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-place-')))));
afterEach(() => rmSync(top, { recursive: true }));

function directory(...parts: string[]): string {
  const path = join(top, ...parts);
  mkdirSync(path, { recursive: true });
  return path;
}

it('is the nearest project around the current directory, and the way down to it', () => {
  directory('project', '.git');
  const here = directory('project', 'a', 'b');
  expect(placeOf(here)).toMatchObject({ root: join(top, 'project'), inside: join('a', 'b') });
});

it('is a directory with .agent/config.yml too', () => {
  writeFileSync(join(directory('p', '.agent'), 'config.yml'), '');
  const here = directory('p', 'x');
  expect(placeOf(here)).toMatchObject({ root: join(top, 'p'), inside: 'x' });
});

it('is the current directory where there is no project', () => {
  const here = directory('alone');
  expect(placeOf(here)).toMatchObject({ root: here, inside: '.' });
});

it('is the directory that was named, and its root for a user who stands elsewhere', () => {
  const named = directory('named');
  const here = directory('else');
  expect(placeOf(here, '../named')).toEqual({ root: named, inside: '.', here });
  expect(placeOf(directory('named', 'in'), named)).toMatchObject({ root: named, inside: 'in' });
});

it('sees through a link to the workspace', () => {
  const real = directory('real');
  const here = directory('real', 'in');
  symlinkSync(real, join(top, 'link'));
  expect(placeOf(here, join(top, 'link'))).toMatchObject({ root: real, inside: 'in' });
});

it('leaves a directory that does not exist for the library to refuse', () => {
  expect(placeOf(top, 'nowhere')).toMatchObject({ root: join(top, 'nowhere'), inside: '.' });
});

it('takes a directory that only begins like the root for what it is', () => {
  const named = directory('..odd');
  expect(placeOf(directory('..odd', '..x'), named)).toMatchObject({ root: named, inside: '..x' });
});

it('that does not exist is said to be missing, with what to do', async () => {
  const { status, stderr } = await call(['--workspace', join(top, 'nowhere'), 'run', '--', 'true']);
  expect(status).toBe(125);
  expect(stderr).toMatch(
    /nowhere cannot be mounted into a sandbox: it does not exist \(Missing\)[^]*Check the path after --workspace/,
  );
});

it.each(['file', join('file', 'below')])('is not a file: %s is said to be none, and nothing below it', async named => {
  writeFileSync(join(top, 'file'), '');
  const { status, stderr } = await call(['--workspace', join(top, named), 'sandbox', 'create']);
  expect({ status, stderr }).toEqual({
    status: 125,
    stderr: expect.stringMatching(
      /file[^ ]* cannot be mounted into a sandbox: it is not a directory \(NotADirectory\)/,
    ),
  });
  expect(stderr).not.toContain('config.yml');
});
