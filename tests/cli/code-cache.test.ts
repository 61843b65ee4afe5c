// The compiled code that the built command stores and runs: never what a sandbox may have written.

import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { renameSync, symlinkSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { Script } from 'node:vm';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BIN } from './bench.ts';

const PLANTED = 7;

describe('compiled code', () => {
  let top: string;
  let marker: string;

  beforeEach(() => {
    top = mkdtempSync('/var/tmp/acode-code-');
    marker = join(top, 'marker');
    for (const name of ['home', 'work/.git', 'state/acode'])
      mkdirSync(join(top, name), { recursive: true, mode: 0o700 });
  });
  afterEach(() => rmSync(top, { recursive: true, force: true }));

  const state = (): string => join(top, 'state');
  const codeIn = (directory: string): string => join(directory, 'acode', 'code-cache');
  function version(given: { state?: string; cwd?: string; argv?: string[]; env?: NodeJS.ProcessEnv } = {}) {
    const env = {
      PATH: process.env['PATH'],
      HOME: join(top, 'home'),
      XDG_STATE_HOME: given.state ?? state(),
      ...given.env,
    };
    const { status, stdout, stderr } = spawnSync(process.execPath, [BIN, ...(given.argv ?? []), '--version'], {
      cwd: given.cwd ?? join(top, 'work'),
      env,
      encoding: 'utf8',
      timeout: 30_000,
    });
    return { status, stdout, stderr };
  }
  const fine = { status: 0, stdout: '0.1.0\n', stderr: '' };

  // What another program of the same length was compiled to: V8 compares nothing else of the two.
  function plant(): void {
    expect(version()).toEqual(fine);
    const [name = ''] = readdirSync(codeIn(state()));
    const part = readFileSync(join(dirname(BIN), name.replace(/\.js-.*$/, '.js')), 'latin1');
    const modules = Number(/^\/\*(\d+)\*\//.exec(part)?.[1]);
    const evil = `process.getBuiltinModule('node:fs').writeFileSync(${JSON.stringify(marker)}, 'x'); process.exit(${PLANTED});`;
    const planted = new Script(evil.padEnd(part.length), { filename: 'evil' }).createCachedData();
    const once = Buffer.concat([planted, new Uint8Array(modules + 1)]);
    writeFileSync(join(codeIn(state()), name), Buffer.concat([once, once]));
  }

  it('is stored by the first command, in files of the user’s alone, and used by the next', () => {
    expect(version()).toEqual(fine);
    const names = readdirSync(codeIn(state()));
    expect(names).toHaveLength(1);
    const found = (): object[] =>
      names.map(name => lstatSync(join(codeIn(state()), name))).map(({ ino, mode }) => ({ ino, mode: mode & 0o777 }));
    const before = found();
    expect(before).toMatchObject([{ mode: 0o600 }]);
    expect(version()).toEqual(fine);
    // It was accepted: what V8 rejects is replaced by another file.
    expect(found()).toEqual(before);
  });

  it('is not stored where acode has stored nothing else, and never by `acode uninstall`', () => {
    expect(version({ state: join(top, 'none') })).toEqual(fine);
    expect(existsSync(join(top, 'none'))).toBe(false);
    expect(spawnSync(process.execPath, [BIN, 'uninstall', '--help'], { env: { XDG_STATE_HOME: state() } }).status).toBe(
      0,
    );
    expect(existsSync(codeIn(state()))).toBe(false);
  });

  it('that is damaged is replaced, and the command runs without it', () => {
    expect(version()).toEqual(fine);
    const [name = ''] = readdirSync(codeIn(state()));
    const path = join(codeIn(state()), name);
    const whole = readFileSync(path);
    const other = Buffer.from(whole);
    other.writeUInt8(other.readUInt8(whole.length >> 2) ^ 1, whole.length >> 2);
    for (const damaged of [Buffer.alloc(0), Buffer.alloc(whole.length), whole.subarray(0, whole.length >> 1), other]) {
      writeFileSync(path, damaged);
      expect(version()).toEqual(fine);
      expect(readFileSync(path).equals(damaged)).toBe(false);
      expect(version()).toEqual(fine);
    }
  });

  it('planted where no sandbox can write would run: the control of the following', () => {
    plant();
    expect(version().status).toBe(PLANTED);
    expect(existsSync(marker)).toBe(true);
  });

  const planted: readonly [string, () => ReturnType<typeof version>][] = [
    [
      'in the workspace, as its state directory',
      () => {
        renameSync(state(), join(top, 'work', 'state'));
        return version({ state: join(top, 'work', 'state'), cwd: join(top, 'work') });
      },
    ],
    [
      'in the workspace, as its home',
      () => {
        mkdirSync(join(top, 'work', '.local'));
        renameSync(state(), join(top, 'work', '.local', 'state'));
        return version({ state: '', env: { HOME: join(top, 'work') } });
      },
    ],
    [
      'in the workspace that is named, for a command elsewhere',
      () => {
        mkdirSync(join(top, 'plain'));
        renameSync(state(), join(top, 'plain', 'state'));
        return version({ state: join(top, 'plain', 'state'), argv: ['--workspace', join(top, 'plain')] });
      },
    ],
    [
      'in another project',
      () => {
        mkdirSync(join(top, 'other', '.git'), { recursive: true });
        renameSync(state(), join(top, 'other', 'state'));
        return version({ state: join(top, 'other', 'state') });
      },
    ],
    [
      'in the workspace, behind a link',
      () => {
        cpSync(state(), join(top, 'work', 'state'), { recursive: true });
        rmSync(state(), { recursive: true });
        symlinkSync(join(top, 'work', 'state'), state());
        return version();
      },
    ],
  ];
  it.each(planted)('planted %s never runs', (_, call) => {
    plant();
    expect(call()).toEqual(fine);
    expect(existsSync(marker)).toBe(false);
  });
});
