// What the command line knows of the library without loading it: its directories, and the variables it reads.

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { READ_VARIABLES, runtimeDirectory, userConfigFile } from '../../packages/cli/src/serve/identity.ts';
import { directoriesOf, homeOf } from '../../packages/sandbox/src/lifecycle/directories.ts';

const LIBRARY = new URL('../../packages/sandbox/src/', import.meta.url).pathname;

describe('the variables of a server', () => {
  it('are all that the library reads by name', () => {
    const files = readdirSync(LIBRARY, { recursive: true, encoding: 'utf8' }).filter(
      // What runs in browsers, and what attacks or examines a host, is nothing that a server does.
      name => name.endsWith('.ts') && !name.endsWith('.test.ts') && !/^(?:doctor|isolation\/web|web\.ts)/.test(name),
    );
    const read = files.flatMap(name => {
      const text = readFileSync(join(LIBRARY, name), 'utf8');
      return [...text.matchAll(/\benv\['([A-Z_]+)'\]/g), ...text.matchAll(/xdg\('([A-Z_]+)'/g)].map(
        ([, variable = '']) => variable,
      );
    });
    expect(new Set(read).size).toBeGreaterThan(3);
    expect(read.filter(name => !READ_VARIABLES.includes(name) && !name.startsWith('ACODE_'))).toEqual([]);
  });
});

describe('the directories of a server', () => {
  it.each([
    {},
    { XDG_RUNTIME_DIR: '/run/user/7', XDG_CONFIG_HOME: '/c' },
    { XDG_RUNTIME_DIR: 'x', XDG_CONFIG_HOME: 'y' },
    { HOME: '/h' },
    { HOME: '' },
    { HOME: 'relative' },
  ])('are the library’s in %j', env => {
    const { runtime, config } = directoriesOf({ env, home: homeOf(env), uid: 7 });
    expect(runtimeDirectory(env, 7)).toBe(runtime);
    expect(userConfigFile(env)).toBe(join(config, 'config.yml'));
  });

  it('are the library’s where another user has taken the runtime directory', () => {
    const uid = process.getuid?.() ?? 0;
    const base = mkdtempSync('/var/tmp/acode-agree-');
    const logins = join(base, 'logins');
    vi.stubEnv('TMPDIR', base);
    try {
      const env = { XDG_STATE_HOME: join(base, 'state') };
      const seen = [
        () => undefined,
        () => symlinkSync('/', join(base, `acode-${uid}`)),
        () => mkdirSync(join(logins, String(uid)), { recursive: true, mode: 0o755 }),
        () => chmodSync(join(logins, String(uid)), 0o700),
        () => mkdirSync(join(base, 'state', 'acode', 'run'), { recursive: true }),
      ].map(change => {
        change();
        const { runtime } = directoriesOf({ env, home: '/h', uid, logins });
        expect(runtimeDirectory(env, uid, logins)).toBe(runtime);
        return runtime;
      });
      // The control: these are not all the same.
      expect(new Set(seen).size).toBe(3);
    } finally {
      vi.unstubAllEnvs();
      rmSync(base, { recursive: true });
    }
  });
});
