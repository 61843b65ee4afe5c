// Entry points of the library: each refuses root before it touches anything.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Acode } from './acode.ts';
import { assertNotRoot } from './open.ts';

const isRoot = process.getuid?.() === 0;
let top = '';
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'ways-in-'));
  for (const name of ['CONFIG_HOME', 'STATE_HOME', 'RUNTIME_DIR']) vi.stubEnv(`XDG_${name}`, join(top, name));
  // The runtime directory exists once a user has logged in.
  mkdirSync(join(top, 'RUNTIME_DIR'), { mode: 0o700 });
});
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  rmSync(top, { recursive: true });
});

const options = (): { workspace: string; engine: { socket: string } } => ({
  workspace: top,
  engine: { socket: join(top, 'no.sock') },
});

describe('assertNotRoot', () => {
  it('refuses uid 0 with acode’s own message, and no other uid', () => {
    expect(() => assertNotRoot(0, false)).toThrow('acode must not run as root/Administrator');
    expect(() => assertNotRoot(0, true)).not.toThrow();
    expect(() => assertNotRoot(1, false)).not.toThrow();
  });
});

describe('Acode.open', () => {
  it('refuses root before it reads a configuration, makes a directory or asks an engine', async () => {
    vi.spyOn(process, 'getuid').mockReturnValue(0);
    // Each of these would cause an error of its own if it were read.
    const broken = { configFile: join(top, 'missing.yml'), pool: { min: 1 }, workspace: '/nonexistent' };
    await expect(Acode.open({ ...options(), ...broken })).rejects.toMatchObject({
      code: 'ACODE-SBX-011',
      message: 'acode must not run as root/Administrator.',
    });
    expect(readdirSync(top)).toEqual(['RUNTIME_DIR']);
    expect(readdirSync(join(top, 'RUNTIME_DIR'))).toEqual([]);
  });

  it.skipIf(isRoot)('opens for everybody else: the control', async () => {
    await using _ = await Acode.open(options());
    expect(existsSync(join(top, 'RUNTIME_DIR', 'acode'))).toBe(true);
  });
});

describe('Acode.observe', () => {
  it.skipIf(isRoot)('is open to root, and so has nothing that runs, makes or removes anything', async () => {
    await using observer = await Acode.observe(options());
    expect(Object.keys(observer).sort()).toEqual(
      [
        'audit',
        'close',
        'doctor',
        'images',
        'inspect',
        'list',
        'logs',
        'mode',
        'network',
        'serveSetting',
        'status',
        'trust',
        'usage',
      ].sort(),
    );
    expect(Object.keys(observer.images)).toEqual(['list', 'isPresent']);
  });
});

describe('what is loaded when it is needed', () => {
  it('is loaded ahead where acode lies in the workspace: all of it', () => {
    const root = join(import.meta.dirname, '..');
    const files = readdirSync(root, { recursive: true, encoding: 'utf8' });
    const sources = files.filter(file => file.endsWith('.ts') && !file.endsWith('.test.ts'));
    const lazily = sources.flatMap(file =>
      [...readFileSync(join(root, file), 'utf8').matchAll(/\bimport\('(\.[^']+)'\)/g)].map(([, path = '']) =>
        relative(root, join(root, dirname(file), path)),
      ),
    );
    const body = (file: string, name: string): string =>
      readFileSync(join(root, file), 'utf8').split(`async function ${name}(`)[1]?.split('\n}')[0] ?? '';
    const text = body('host/open.ts', 'loadAhead') + body('host/compose.ts', 'loadLevels');
    const ahead = [...text.matchAll(/import\('([^']+)'\)/g)].map(([, path = '']) => join('host', path));
    expect(text).toContain('loadLevels()');
    expect(lazily.length).toBeGreaterThan(8);
    expect(lazily.filter(path => !ahead.includes(path))).toEqual([]);
  });
});
