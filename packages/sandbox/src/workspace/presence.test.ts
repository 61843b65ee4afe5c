// Existence of names, with a cache that must never be stale.

import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { stampOf, thoseThere } from './file-identity.ts';

const LATER_MS = 5000;

describe('what is there', () => {
  let home: string;
  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'acode-presence-'));
    mkdirSync(join(home, '.config'));
    settle();
  });
  afterEach(() => {
    vi.useRealTimers();
    rmSync(home, { recursive: true, force: true });
  });

  // As if the directories had been left alone for a while: only then is anything remembered.
  function settle(): void {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + LATER_MS });
  }

  function there(...names: string[]): string[] {
    const entries = names.map(name => ({ path: join(home, name), directory: dirname(join(home, name)) }));
    return thoseThere(entries).map(({ path }) => path.slice(home.length + 1));
  }

  it('says what exists, and counts a link that leads nowhere', () => {
    writeFileSync(join(home, '.netrc'), '');
    symlinkSync('/nowhere', join(home, '.config/gh'));
    expect(there('.netrc', '.aws', '.config/gh', '.config/op', '.cargo/credentials')).toEqual(['.netrc', '.config/gh']);
  });

  it.each(['.aws', '.config/gh', '.cargo/credentials'])('notices that %s came, however often it was asked', name => {
    for (let count = 0; count < 3; count += 1) expect(there(name)).toEqual([]);
    mkdirSync(dirname(join(home, name)), { recursive: true });
    symlinkSync('/anywhere', join(home, name));
    expect(there(name)).toEqual([name]);
    settle();
    expect(there(name)).toEqual([name]);
  });

  it('notices that one went', () => {
    writeFileSync(join(home, '.netrc'), '');
    settle();
    expect([there('.netrc'), there('.netrc')]).toEqual([['.netrc'], ['.netrc']]);
    rmSync(join(home, '.netrc'));
    expect(there('.netrc')).toEqual([]);
  });

  it('notices that another directory, or a link to one, took the place of the first', () => {
    expect(there('.config/gh')).toEqual([]);
    mkdirSync(join(home, 'other'));
    writeFileSync(join(home, 'other/gh'), '');
    settle();
    renameSync(join(home, '.config'), join(home, 'aside'));
    renameSync(join(home, 'other'), join(home, '.config'));
    expect(there('.config/gh')).toEqual(['.config/gh']);
    renameSync(join(home, '.config'), join(home, 'other'));
    symlinkSync(join(home, 'aside'), join(home, '.config'));
    expect(there('.config/gh')).toEqual([]);
    // The target of a link is checked every time: the link’s own time says nothing about that directory.
    writeFileSync(join(home, 'aside/gh'), '');
    expect(there('.config/gh')).toEqual(['.config/gh']);
  });

  it('is not fooled by a time that was set back', () => {
    expect(there('.aws')).toEqual([]);
    writeFileSync(join(home, '.aws'), '');
    utimesSync(home, 0, 0);
    expect(there('.aws')).toEqual(['.aws']);
  });

  it('remembers nothing of a directory that was changed a moment ago', () => {
    vi.useRealTimers();
    mkdirSync(join(home, 'new'));
    expect(stampOf(join(home, 'new'))).toBeNull();
    settle();
    expect(stampOf(join(home, 'new'))).not.toBeNull();
    expect(stampOf(join(home, 'none'))).toBeNull();
  });
});
