// Host paths of the workspace mean its files inside; no other path of the host means anything.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { WorkspacePaths, workspacePaths } from './paths.ts';

const paths = new WorkspacePaths('/home/me/proj', ['/srv/link/']);

describe('a path', () => {
  it.each([
    ['/home/me/proj', '/workspace'],
    ['/home/me/proj/', '/workspace'],
    ['/home/me/proj/package.json', '/workspace/package.json'],
    ['/home/me//proj/./src/', '/workspace/src'],
    ['/home/me/proj/a/../b', '/workspace/b'],
    ['/home/me/../me/proj/b', '/workspace/b'],
    ['/srv/link/b', '/workspace/b'],
  ])('of the workspace on the host, %s, is %s', (given, expected) => {
    expect(paths.inside(given)).toBe(expected);
    expect(paths.has(given)).toBe(true);
  });

  it.each([
    ...['/home/me/project2/x', '/home/me/proj2', '/home/me/proj.bak', '/home/me/proj/../other', '/home/me', '/home'],
    ...['/home/me/proj/../../../etc/passwd', '/srv/link2', '/srv', '/etc/passwd', '/tmp/x', '/'],
    ...['/workspace/../etc/passwd', '../x', 'a/../../x'],
  ])('outside, %s, stays what it is', given => {
    expect(paths.inside(given)).toBe(given);
    expect(paths.has(given)).toBe(false);
  });

  it.each(['a', './a', '.', 'a/../b', '~/x', '/workspace', '/workspace/a', '/workspace/home/me/proj'])(
    'inside, %s, stays what it is',
    given => {
      expect(paths.inside(given)).toBe(given);
      expect(paths.has(given)).toBe(true);
    },
  );

  it('inside is never taken for one of the host', () => {
    expect(new WorkspacePaths('/workspace/app').inside('/workspace/app/x')).toBe('/workspace/app/x');
    expect(new WorkspacePaths('/workspace').inside('/workspace/x')).toBe('/workspace/x');
  });

  it('leads back to the directory on the host, and no further than the workspace', () => {
    expect(paths.onHost('/workspace/packages/a')).toBe('/home/me/proj/packages/a');
    expect(paths.onHost('/home/me/proj/packages/a')).toBe('/home/me/proj/packages/a');
    expect(paths.onHost('packages')).toBe('/home/me/proj/packages');
    for (const given of ['/etc', '../..', '/workspace/../../etc']) expect(paths.onHost(given)).toBe('/home/me/proj');
  });
});

describe('a command', () => {
  it.each([
    ['cat /home/me/proj/package.json', true],
    [['cat', '/home/me/proj/package.json'], true],
    ['cd /home/me/proj && ls', true],
    ['ls "/home/me/proj"', true],
    ['ls /home/me/proj2 /home/me/proj.bak', false],
    ['ls /workspace', false],
  ])('%j names the workspace by its host path: %s', (command, expected) => {
    expect(paths.isNamedIn(command)).toBe(expected);
  });
});

describe('the names of a workspace', () => {
  const top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-names-')));
  const root = join(top, 'real');
  mkdirSync(join(root, 'sub'), { recursive: true });
  mkdirSync(join(top, 'other'));
  symlinkSync(root, join(top, 'link'));
  afterAll(() => rmSync(top, { recursive: true }));
  const place = { root, inside: 'sub' };

  it('are also the link by which the user came in, and the path that was typed', () => {
    const found = workspacePaths(place, { cwd: top, typed: 'link', shell: join(top, 'link', 'sub') });
    expect(found.inside(join(top, 'link', 'x'))).toBe('/workspace/x');
    const entered = workspacePaths(place, { cwd: join(root, 'sub'), shell: join(top, 'link', 'sub') });
    expect(entered.inside(join(top, 'link', 'x'))).toBe('/workspace/x');
  });

  it.each([
    { cwd: '/', typed: undefined, shell: '/sub' },
    { cwd: '/', typed: undefined, shell: 'relative/sub' },
    { cwd: '/', typed: '/nowhere', shell: undefined },
  ])('are none that lead elsewhere: %j', about => {
    expect(workspacePaths(place, about).inside('/x')).toBe('/x');
    const elsewhere = workspacePaths(place, { ...about, shell: join(top, 'other', 'sub') });
    expect(elsewhere.inside(join(top, 'other', 'x'))).toBe(join(top, 'other', 'x'));
  });
});
