// Private files: whole or not there, only the owner’s, and never what another user could have put in their place.

import { chmodSync, mkdtempSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { createPrivateFile, readPrivateFile, writePrivateFile } from './directories.ts';

const uid = process.getuid?.() ?? 0;
const terms = { maxBytes: 16, uid };
let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'acode-private-file-'));
  path = join(directory, 'file');
});

describe('a private file', () => {
  it('is read as it was last written, only its owner can open it, and no draft is left', () => {
    writePrivateFile(path, 'first');
    writePrivateFile(path, 'second', { durable: false });
    expect(readPrivateFile(path, terms)?.text).toBe('second');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readdirSync(directory)).toEqual(['file']);
  });

  it('replaces a link and does not write through it', () => {
    const other = join(directory, 'other');
    writeFileSync(other, 'untouched');
    symlinkSync(other, path);
    writePrivateFile(path, 'new');
    expect(readFileSync(other, 'utf8')).toBe('untouched');
    expect(readPrivateFile(path, terms)?.text).toBe('new');
  });

  it('leaves no draft where it cannot have its name', () => {
    const full = join(directory, 'directory');
    createPrivateFile(path, 'x');
    expect(() => writePrivateFile(join(path, 'below'), 'x')).toThrow('ENOTDIR');
    symlinkSync(directory, full);
    expect(readdirSync(directory).sort()).toEqual(['directory', 'file']);
  });

  it('that is created twice is the first one', () => {
    createPrivateFile(path, 'first');
    createPrivateFile(path, 'second');
    expect(readPrivateFile(path, terms)?.text).toBe('first');
    expect(readdirSync(directory)).toEqual(['file']);
  });

  it('is not read where it is open to others, another user’s, a link, a directory, or too long', () => {
    writePrivateFile(path, 'text');
    expect(readPrivateFile(path, terms)?.text).toBe('text');
    expect(readPrivateFile(path, { ...terms, uid: uid + 1 })).toBeNull();
    expect(readPrivateFile(path, { maxBytes: 3 })).toBeNull();
    for (const mode of [0o640, 0o602, 0o604]) {
      chmodSync(path, mode);
      expect(readPrivateFile(path, terms)).toBeNull();
    }
    chmodSync(path, 0o600);
    symlinkSync(path, join(directory, 'link'));
    expect(readPrivateFile(join(directory, 'link'), terms)).toBeNull();
    expect(readPrivateFile(directory, terms)).toBeNull();
    expect(readPrivateFile(path, terms)?.text).toBe('text');
  });
});
