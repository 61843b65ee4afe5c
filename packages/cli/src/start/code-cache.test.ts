// Compiled code is read only where this user alone, and never a sandbox, can have written it.

import { chmodSync, linkSync, mkdirSync, mkdtempSync, readFileSync, readdirSync } from 'node:fs';
import { renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cacheOf, readCache, writeCache } from './code-cache.ts';
import type { OwnCache } from './code-cache.ts';

const uid = process.getuid?.() ?? 0;
const NAME = 'part.bin';
const data = Buffer.from('compiled');

describe('compiled code', () => {
  let top: string;
  let cache: OwnCache;

  beforeEach(() => {
    top = mkdtempSync(join(tmpdir(), 'acode-code-'));
    mkdirSync(join(top, 'state', 'acode'), { recursive: true });
    cache = { directory: join(top, 'state', 'acode', 'code-cache'), uid };
  });
  afterEach(() => rmSync(top, { recursive: true, force: true }));

  const file = (): string => join(cache.directory, NAME);
  const stored = (): void => {
    writeCache(cache, NAME, data);
    expect(readCache(cache, NAME)).toEqual(data);
  };

  it('is read as it was written, and replaced as a whole', () => {
    stored();
    writeCache(cache, NAME, Buffer.from('newer'));
    expect(readCache(cache, NAME)?.toString()).toBe('newer');
    expect(readdirSync(cache.directory)).toEqual([NAME]);
  });

  it('is not stored where acode has stored nothing else', () => {
    const directory = join(top, 'elsewhere', 'acode', 'code-cache');
    writeCache({ directory, uid }, NAME, data);
    expect(readdirSync(top)).toEqual(['state']);
  });

  it.each<[string, () => void]>([
    ['others can read', () => chmodSync(file(), 0o644)],
    ['others can write', () => chmodSync(file(), 0o620)],
    ['has a second name', () => linkSync(file(), join(top, 'second'))],
    ['is a link', () => (renameSync(file(), join(top, 'other')), symlinkSync(join(top, 'other'), file()))],
    ['is a directory', () => (rmSync(file()), mkdirSync(file(), { mode: 0o700 }))],
    ['is empty', () => writeFileSync(file(), '')],
    ['has lost its end', () => writeFileSync(file(), readFileSync(file()).subarray(0, -1))],
    ['has one wrong bit', () => writeFileSync(file(), Buffer.from('compiledcompilee'))],
    ['lies in a directory that others can enter', () => chmodSync(cache.directory, 0o750)],
    [
      'lies behind a link',
      () => (renameSync(cache.directory, join(top, 'real')), symlinkSync(join(top, 'real'), cache.directory)),
    ],
  ])('that %s is not read', (_, spoil) => {
    stored();
    spoil();
    expect(readCache(cache, NAME)).toBeNull();
  });

  it('of another user is not read', () => {
    stored();
    expect(readCache({ ...cache, uid: uid + 1 }, NAME)).toBeNull();
  });

  it('of many builds is removed, the oldest first; what a process leaves unfinished too', () => {
    stored();
    for (let hour = 1; hour <= 12; hour++) {
      const path = join(cache.directory, `old-${hour}.bin`);
      writeFileSync(path, '');
      utimesSync(path, hour * 3600, hour * 3600);
    }
    const now = Date.now() / 1000;
    for (const [name, seconds] of [
      ['a.bin.1-x', now - 3600],
      ['b.bin.2-y', now],
    ] as const) {
      writeFileSync(join(cache.directory, name), '');
      utimesSync(join(cache.directory, name), seconds, seconds);
    }
    writeCache(cache, NAME, data);
    const left = readdirSync(cache.directory).sort();
    expect(left).toEqual(
      ['b.bin.2-y', NAME, ...[5, 6, 7, 8, 9, 10, 11, 12].map(hour => `old-${hour}.bin`)].sort((one, other) =>
        one < other ? -1 : 1,
      ),
    );
  });

  describe('has a directory', () => {
    // Of an ordinary user: the tests may run as root, who has none.
    const own = 1000;
    const of = (given: { state?: string; cwd?: string; argv?: string[]; env?: Record<string, string> }) =>
      cacheOf({
        env: { XDG_STATE_HOME: given.state ?? join(top, 'state'), ...given.env },
        uid: own,
        cwd: given.cwd ?? join(top, 'work'),
        argv: given.argv ?? ['run'],
      });
    beforeEach(() => mkdirSync(join(top, 'work')));

    it('in the state directory, outside of any workspace', () => {
      expect(of({})).toEqual({ directory: join(top, 'state', 'acode', 'code-cache'), uid: own });
      expect(of({ argv: ['--workspace', '../work', 'run'] })).not.toBeNull();
    });

    it.each<[string, () => OwnCache | null]>([
      ['in the current directory', () => of({ cwd: top })],
      ['in the directory after --workspace', () => of({ argv: ['--workspace', top, 'run'] })],
      ['in the directory after --workspace=', () => of({ argv: ['run', '--workspace=..'] })],
      ['in a project', () => (mkdirSync(join(top, '.git')), of({}))],
      [
        'in a project of acode’s',
        () => (mkdirSync(join(top, '.agent')), writeFileSync(join(top, '.agent', 'config.yml'), ''), of({})),
      ],
      [
        'in a HOME in the current directory',
        () => of({ state: '', env: { HOME: join(top, 'work', 'home') }, cwd: join(top, 'work') }),
      ],
      [
        'behind a link into the current directory',
        () => (
          mkdirSync(join(top, 'work', 'acode')),
          symlinkSync(join(top, 'work'), join(top, 'link')),
          of({ state: join(top, 'link') })
        ),
      ],
      [
        'behind a link in the current directory',
        () => (symlinkSync(join(top, 'state'), join(top, 'work', 'link')), of({ state: join(top, 'work', 'link') })),
      ],
    ])('but not %s', (_, found) => {
      expect(found()).toBeNull();
    });

    it('also for who stands in the account’s home, which no sandbox is given', () => {
      const { homedir } = userInfo();
      expect(of({ state: join(homedir, '.local', 'state'), cwd: homedir })).not.toBeNull();
      expect(of({ state: join(homedir, '.local', 'state'), cwd: '/' })).not.toBeNull();
      expect(of({ state: join(homedir, '.local', 'state'), cwd: join(homedir, '.local') })).toBeNull();
    });

    it('but not for root', () => {
      expect(cacheOf({ env: { XDG_STATE_HOME: join(top, 'state') }, uid: 0, cwd: '/', argv: [] })).toBeNull();
    });
  });
});
