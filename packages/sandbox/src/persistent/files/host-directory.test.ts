// Open directory handles: a handle keeps pointing to the same directory, whatever replaces its path.

import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HostDirectory } from './arrival.ts';

const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'held-'));
  mkdirSync(join(home, 'tree/branch'), { recursive: true });
  mkdirSync(join(home, 'outside'));
  writeFileSync(join(home, 'outside/precious'), 'precious');
});

afterEach(() => rmSync(home, { recursive: true, force: true }));

// What a command in a sandbox does to a workspace while this host works in it.
function swap(): void {
  renameSync(join(home, 'tree/branch'), join(home, 'tree/moved'));
  symlinkSync(join(home, 'outside'), join(home, 'tree/branch'));
}

describe.skipIf(!existsSync('/proc/self/fd'))('a directory that is replaced by a link while it is held', () => {
  it('is written to all the same, and not what the link leads to', () => {
    using tree = HostDirectory.open(join(home, 'tree'));
    using branch = tree.enter('branch');
    swap();
    const file = branch.openFile('arrived', NEW_FILE);
    writeSync(file, 'x');
    closeSync(file);
    expect(readdirSync(join(home, 'outside'))).toEqual(['precious']);
    expect(readdirSync(join(home, 'tree/moved'))).toEqual(['arrived']);
    // The control: by its name, the same write follows the link.
    writeFileSync(join(home, 'tree/branch/arrived'), 'x');
    expect(readdirSync(join(home, 'outside'))).toEqual(['arrived', 'precious']);
  });

  it('is listed and removed from all the same', () => {
    using tree = HostDirectory.open(join(home, 'tree'));
    using branch = tree.enter('branch');
    writeFileSync(join(home, 'tree/branch/own'), 'x');
    swap();
    expect(branch.list().map(({ name }) => name.toString())).toEqual(['own']);
    branch.remove('own', false);
    expect(readdirSync(join(home, 'tree/moved'))).toEqual([]);
    expect(readdirSync(join(home, 'outside'))).toEqual(['precious']);
  });
});

describe('a link', () => {
  it('is not entered, opened or removed through', () => {
    swap();
    symlinkSync(join(home, 'outside/precious'), join(home, 'tree/file'));
    using tree = HostDirectory.open(join(home, 'tree'));
    expect(() => tree.enter('branch')).toThrow(/ENOTDIR|ELOOP/);
    expect(() => tree.openFile('file', constants.O_RDONLY)).toThrow('ELOOP');
    expect(() => tree.remove('branch', true)).toThrow(/ENOTDIR|ELOOP/);
    using parent = HostDirectory.open(home);
    parent.remove('tree', true);
    expect(readdirSync(join(home, 'outside'))).toEqual(['precious']);
    // The control: what is really there can be entered and opened.
    using outside = parent.enter('outside');
    closeSync(outside.openFile('precious', constants.O_RDONLY));
  });
});
