// Languages of a workspace, by file names alone, however hostile and however many.

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { DirectoryLook } from './directory-look.ts';
import { recogniseLanguages } from './locate.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'acode-languages-'));
});
afterEach(() => rmSync(root, { recursive: true }));

const touch = (...names: string[]): void => names.forEach(name => writeFileSync(join(root, name), ''));

describe('the languages of a workspace', () => {
  it.each([
    ['package.json', 'node'],
    ['App.csproj', 'dotnet'],
    ['Lib.FSPROJ', 'dotnet'],
    ['All.sln', 'dotnet'],
    ['All.slnx', 'dotnet'],
    ['global.json', 'dotnet'],
    ['pyproject.toml', 'python'],
    ['requirements.txt', 'python'],
    ['setup.py', 'python'],
    ['go.mod', 'go'],
    ['Cargo.toml', 'rust'],
  ])('%s says %s', (file, language) => {
    expect(recogniseLanguages(root)).toEqual([]);
    touch('README.md', file);
    expect(recogniseLanguages(root)).toEqual([{ language, file }]);
  });

  it('come in the order of the alphabet, each with the file that speaks first', () => {
    touch('package.json', 'requirements.txt', 'pyproject.toml', 'b.sln', 'a.csproj');
    expect(recogniseLanguages(root)).toEqual([
      { language: 'dotnet', file: 'a.csproj' },
      { language: 'node', file: 'package.json' },
      { language: 'python', file: 'pyproject.toml' },
    ]);
  });

  it('are not those of directories, links or files below', () => {
    mkdirSync(join(root, 'package.json'));
    mkdirSync(join(root, 'sub'));
    touch('sub/go.mod', 'real');
    symlinkSync('real', join(root, 'Cargo.toml'));
    symlinkSync('/etc/passwd', join(root, 'x.sln'));
    expect(recogniseLanguages(root)).toEqual([]);
  });

  it('are none where there is no directory, or a link in its place', () => {
    touch('go.mod');
    symlinkSync(root, `${root}-link`);
    expect(recogniseLanguages(`${root}-link`)).toEqual([]);
    rmSync(`${root}-link`);
    expect(recogniseLanguages(join(root, 'missing'))).toEqual([]);
    expect(recogniseLanguages(root)).toHaveLength(1);
  });

  it('cost the same in a directory of thousands of files', () => {
    const next = vi.spyOn(DirectoryLook.prototype, 'next');
    onTestFinished(() => next.mockRestore());
    const entriesRead = (): number => {
      next.mockClear();
      expect(recogniseLanguages(root)).toEqual([{ language: 'go', file: 'go.mod' }]);
      return next.mock.calls.length;
    };
    touch('go.mod', ...Array.from({ length: 1500 }, (_, n) => `file-${n}`));
    const some = entriesRead();
    expect(some).toBeLessThan(1500);
    touch(...Array.from({ length: 1500 }, (_, n) => `more-${n}`));
    expect(entriesRead()).toBe(some);
  });

  it('are those of now, also where the directory had not changed for a while and was looked into', async () => {
    touch('go.mod');
    await new Promise(resolve => void setTimeout(resolve, 1100));
    const found = [{ language: 'go', file: 'go.mod' }];
    const remembered = recogniseLanguages(root);
    expect(remembered).toEqual(found);
    // The very same list: it was not searched again.
    expect(recogniseLanguages(root)).toBe(remembered);
    touch('Cargo.toml');
    expect(recogniseLanguages(root)).toEqual([...found, { language: 'rust', file: 'Cargo.toml' }]);
    rmSync(join(root, 'Cargo.toml'));
    mkdirSync(join(root, 'Cargo.toml'));
    expect(recogniseLanguages(root)).toEqual(found);
  });
});
