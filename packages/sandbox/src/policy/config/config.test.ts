// Configuration is read strictly: a mistake is an error with its place, and nothing is ignored.

import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { directoriesOf, ensurePrivateDirectory, homeOf, ownDirectories } from '../../lifecycle/directories.ts';
import { checkConfig } from './check.ts';
import { parseConfig } from './parse.ts';
import { loadUserConfig, readAllowRoot } from './load.ts';

const parse = (text: string) => parseConfig(text, 'config.yml').config;
const refused = (code: string, part: string) =>
  expect.objectContaining({ code, message: expect.stringContaining(part) });

describe('parseConfig', () => {
  it('reads sizes in every form', () => {
    expect(parse('sandbox: { defaults: { memory_mb: 1024 } }').sandbox?.defaults?.memory_mb).toBe(1024 ** 3);
    expect(parse('sandbox: { defaults: { memory_mb: 1.5g } }').sandbox?.defaults?.memory_mb).toBe(1.5 * 1024 ** 3);
  });

  it('takes an empty file', () => {
    expect(parse('')).toEqual({});
    expect(parse('# nothing\n')).toEqual({});
  });

  it('names the key, the line and the column of an unknown key', () => {
    expect(() => parse('sandbox:\n  defaults:\n    memroy_mb: 5\n')).toThrow(
      refused('ACODE-SBX-013', 'config.yml:3:5: `sandbox.defaults.memroy_mb` is not a known key'),
    );
    expect(() => parse('sandbx: {}')).toThrow(refused('ACODE-SBX-013', 'config.yml:1:1'));
  });

  it('names the key and the place of a bad value', () => {
    expect(() => parse('sandbox:\n  defaults:\n    pids_limit: many\n')).toThrow(
      refused('ACODE-SBX-013', 'config.yml:3:5: `sandbox.defaults.pids_limit`'),
    );
    expect(() => parse('sandbox: { defaults: { memory_mb: "1024; id" } }')).toThrow(
      refused('ACODE-SBX-013', 'must be a size'),
    );
    expect(() => parse('sandbox: { containers: { name_prefix: "A B" } }')).toThrow(
      refused('ACODE-SBX-013', 'lower-case'),
    );
    expect(() => parse('- a\n- b\n')).toThrow(refused('ACODE-SBX-013', 'config.yml'));
  });

  it('refuses a key that is planned and has no effect, in words of its own', () => {
    expect(() => parse('sandbox:\n  mounts:\n    tmpfs: true\n')).toThrow(
      refused('ACODE-SBX-016', 'sandbox.mounts.tmpfs (config.yml:3:5)'),
    );
    expect(() => parse('sandbox: { enabled: false }')).toThrow(refused('ACODE-SBX-016', 'sandbox.enabled'));
  });

  it('refuses what is not YAML, says a thing twice, or multiplies by aliases', () => {
    expect(() => parse('a: [')).toThrow(refused('ACODE-SBX-013', 'is not valid YAML'));
    expect(() => parse('allow_root: true\nallow_root: false\n')).toThrow(refused('ACODE-SBX-013', 'config.yml:2:1'));
    const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${'bcdefgh'
      .split('')
      .map((name, n) => `${name}: &${name} [${`*${'abcdefgh'[n]},`.repeat(9)}]`)
      .join('\n')}\n`;
    expect(() => parse(bomb)).toThrow(refused('ACODE-SBX-013', 'aliases'));
  });

  it('does not let a key reach a prototype', () => {
    expect(() => parse('__proto__: { allow_root: true }')).toThrow(refused('ACODE-SBX-013', ''));
    expect(({} as { allow_root?: boolean }).allow_root).toBeUndefined();
  });
});

describe('checkConfig', () => {
  it('holds an object to the same schema', () => {
    expect(() => checkConfig({ sandbox: { nonsense: 1 } }, 'AcodeOptions.config')).toThrow(
      refused('ACODE-SBX-013', 'AcodeOptions.config: `sandbox.nonsense`'),
    );
    expect(checkConfig(undefined, 'x').config).toEqual({});
  });
});

describe('the user’s file', () => {
  const directory = () => mkdtempSync(join(tmpdir(), 'acode-config-'));

  it('may be absent; one that was named may not', async () => {
    expect((await loadUserConfig(directory())).config).toEqual({});
    await expect(loadUserConfig(directory(), '/no/such.yml')).rejects.toMatchObject({
      code: 'ACODE-SBX-013',
      message: '/no/such.yml: does not exist.',
      hint: expect.stringContaining('--config'),
    });
  });

  it('may not be huge', async () => {
    const where = directory();
    writeFileSync(join(where, 'config.yml'), `# ${'x'.repeat(300_000)}`);
    await expect(loadUserConfig(where)).rejects.toMatchObject({
      message: expect.stringContaining('larger than') as string,
    });
  });

  it('is read for one key before the root guard, and allows nothing where it cannot be understood', async () => {
    const where = directory();
    expect(await readAllowRoot(where, process.getuid?.() ?? 0)).toBe(false);
    for (const [text, allowed] of [
      ['allow_root: true', true],
      ['allow_root: "true"', false],
      ['allow_root: [', false],
      ['allow_root: yes', false],
      ['x', false],
    ] as const) {
      writeFileSync(join(where, 'config.yml'), text);
      expect(await readAllowRoot(where, process.getuid?.() ?? 0)).toBe(allowed);
    }
  });
});

describe('a configuration path that is not a file', () => {
  it('is refused at once: a FIFO, a directory, a device', async () => {
    const where = mkdtempSync(join(tmpdir(), 'acode-odd-'));
    execFileSync('mkfifo', [join(where, 'fifo')]);
    for (const path of [join(where, 'fifo'), where, '/dev/zero']) {
      await expect(loadUserConfig(where, path)).rejects.toMatchObject({ code: 'ACODE-SBX-013' });
    }
  });

  it('allows nothing to root where another can write it', async () => {
    const where = mkdtempSync(join(tmpdir(), 'acode-odd-'));
    const uid = process.getuid?.() ?? 0;
    writeFileSync(join(where, 'config.yml'), 'allow_root: true');
    expect(await readAllowRoot(where, uid)).toBe(true);
    expect(await readAllowRoot(where, uid + 1)).toBe(false);
    chmodSync(join(where, 'config.yml'), 0o666);
    expect(await readAllowRoot(where, uid)).toBe(false);
  });
});

describe('directories', () => {
  it('follow the XDG variables where they are absolute', () => {
    const env = { XDG_CONFIG_HOME: '/c', XDG_STATE_HOME: 'relative', XDG_RUNTIME_DIR: '/r' };
    expect(directoriesOf({ env, home: '/h', uid: 7 })).toEqual({
      home: '/h',
      config: '/c/acode',
      state: '/h/.local/state/acode',
      runtime: '/r/acode',
    });
    expect(directoriesOf({ env: {}, home: '/h', uid: 7 }).runtime).toBe(join(tmpdir(), 'acode-7'));
  });

  it('are never below an empty or relative HOME, which would be the current directory', () => {
    expect(homeOf({ HOME: '/h' })).toBe('/h');
    for (const HOME of ['', 'relative', './x', undefined])
      expect(homeOf(HOME === undefined ? {} : { HOME })).toBe(userInfo().homedir);
  });

  it('have another runtime directory where another user has taken the usual one, and every process finds the same one', async () => {
    const uid = process.getuid?.() ?? 0;
    const base = mkdtempSync(join(tmpdir(), 'acode-taken-'));
    const [temporary, logins, state] = ['tmp', 'logins', 'state'].map(name => join(base, name));
    for (const path of [temporary, logins]) mkdirSync(path ?? '');
    vi.stubEnv('TMPDIR', temporary);
    try {
      const host = { env: { XDG_STATE_HOME: state }, home: base, uid, logins: logins ?? '' };
      const usual = join(temporary ?? '', `acode-${uid}`);
      const fallback = join(state ?? '', 'acode', 'run');
      const login = join(logins ?? '', String(uid));
      const place = () => directoriesOf(host).runtime;
      expect(place()).toBe(usual);
      expect((await ownDirectories(host)).runtime).toBe(usual);
      // The control: acode uses its own, and no one else’s; a link does not count.
      expect(place()).toBe(usual);
      rmSync(usual, { recursive: true });
      symlinkSync(base, usual);
      expect(place()).toBe(fallback);
      mkdirSync(login, { mode: 0o755 });
      expect(place()).toBe(fallback);
      chmodSync(login, 0o700);
      expect(place()).toBe(join(login, 'acode'));
      expect((await ownDirectories(host)).runtime).toBe(join(login, 'acode'));
      // The session ends, and later there is another one: the directory used in between remains the answer.
      rmSync(login, { recursive: true });
      expect((await ownDirectories(host)).runtime).toBe(fallback);
      expect(statSync(fallback).mode & 0o777).toBe(0o700);
      mkdirSync(login, { mode: 0o700 });
      expect(place()).toBe(fallback);
      // Where nothing can be had, the way out is named.
      rmSync(fallback, { recursive: true });
      writeFileSync(fallback, '');
      await expect(ownDirectories(host)).rejects.toMatchObject({
        code: 'ACODE-SBX-013',
        hint: expect.stringContaining('export XDG_RUNTIME_DIR='),
      });
    } finally {
      vi.unstubAllEnvs();
      rmSync(base, { recursive: true, force: true });
    }
  });

  it('are private, and not those of another or of a link', async () => {
    const uid = process.getuid?.() ?? 0;
    const base = mkdtempSync(join(tmpdir(), 'acode-private-'));
    await ensurePrivateDirectory(join(base, 'a', 'b'), uid);
    expect(statSync(join(base, 'a', 'b')).mode & 0o777).toBe(0o700);
    mkdirSync(join(base, 'open'));
    chmodSync(join(base, 'open'), 0o777);
    await ensurePrivateDirectory(join(base, 'open'), uid);
    expect(statSync(join(base, 'open')).mode & 0o777).toBe(0o700);
    symlinkSync(join(base, 'open'), join(base, 'link'));
    await expect(ensurePrivateDirectory(join(base, 'link'), uid)).rejects.toMatchObject({ code: 'ACODE-SBX-013' });
    await expect(ensurePrivateDirectory(join(base, 'open'), uid + 1)).rejects.toMatchObject({ code: 'ACODE-SBX-013' });
  });
});
