// Mount points: a directory of the workspace, made where it is missing, and never behind a link.

import { existsSync, lstatSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { makeMountPoint, mountPointAt } from './mount-point.ts';

let top = '';

beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'acode-mount-point-'));
  mkdirSync(join(top, 'workspace/packages/a'), { recursive: true });
  mkdirSync(join(top, 'outside'));
});

afterEach(() => {
  rmSync(top, { recursive: true });
});

const root = (): string => join(top, 'workspace');

describe('a mount point', () => {
  it('is absent, empty, filled or unfit', () => {
    expect(mountPointAt(root(), 'packages/a/node_modules')).toBe('absent');
    expect(mountPointAt(root(), 'packages/b/node_modules')).toBe('unfit');
    mkdirSync(join(root(), 'node_modules'));
    expect(mountPointAt(root(), 'node_modules')).toBe('empty');
    writeFileSync(join(root(), 'node_modules/x'), '');
    expect(mountPointAt(root(), 'node_modules')).toBe('filled');
    expect(mountPointAt(root(), 'node_modules/x')).toBe('unfit');
    symlinkSync('../outside', join(root(), 'link'));
    expect([mountPointAt(root(), 'link'), mountPointAt(root(), 'link/node_modules')]).toEqual(['unfit', 'unfit']);
  });

  it('is made once, and is left as it is where it exists', () => {
    makeMountPoint(root(), 'packages/a/node_modules');
    const made = lstatSync(join(root(), 'packages/a/node_modules'));
    expect(made.isDirectory()).toBe(true);
    makeMountPoint(root(), 'packages/a/node_modules');
    expect(lstatSync(join(root(), 'packages/a/node_modules')).ino).toBe(made.ino);
  });

  it('is never made through a link, in the middle or at the end', () => {
    symlinkSync('../outside', join(root(), 'link'));
    symlinkSync('../outside/end', join(root(), 'end'));
    for (const path of ['link/node_modules', 'end'])
      expect(() => makeMountPoint(root(), path)).toThrow(expect.objectContaining({ code: 'ACODE-SBX-003' }));
    expect(existsSync(join(top, 'outside/node_modules'))).toBe(false);
    expect(existsSync(join(top, 'outside/end'))).toBe(false);
    // The control: a directory in the link’s place is taken.
    rmSync(join(root(), 'link'));
    mkdirSync(join(root(), 'link'));
    makeMountPoint(root(), 'link/node_modules');
    expect(existsSync(join(root(), 'link/node_modules'))).toBe(true);
  });
});
