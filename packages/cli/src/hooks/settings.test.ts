// Settings of agents: the hook is added beside what is there, found again, and removed without a trace.

import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { HOOKED } from './agents.ts';
import { HOOK_ERRORS } from './errors.ts';
import { installHook, removeHook } from './install.ts';
import { cleanEnvironment, launchOf, programOf } from './launch.ts';
import { SETTINGS } from './settings.ts';
import { hookStatus } from './status.ts';

let top: string;
const about = (agent: (typeof HOOKED)[number]) => ({
  agent,
  env: { HOME: join(top, 'home'), PATH: '/usr/bin:/bin' },
  node: process.execPath,
  entry: '/opt/acode.js',
});
const write = (path: string, value: unknown): void => {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value));
};

beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'acode-settings-'));
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

describe.each(HOOKED)('the hook of %s', agent => {
  const others = {
    model: 'x',
    env: { A: '1' },
    hooks: { Stop: [{ hooks: [] }], PreToolUse: [{ matcher: 'Edit' }], BeforeTool: [{ matcher: 'read' }] },
  };

  it('is added beside what is there, is the same when added twice, and leaves nothing behind', async () => {
    const file = SETTINGS[agent].file(about(agent).env);
    write(file, others);
    chmodSync(file, 0o640);
    expect(await installHook(about(agent))).toMatchObject({ outcome: 'installed', file });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({ model: 'x', env: { A: '1' } });
    expect(lstatSync(file).mode & 0o777).toBe(0o640);
    expect(await hookStatus(about(agent))).toMatchObject({ state: 'whole', faults: [] });
    const once = readFileSync(file, 'utf8');
    expect(await installHook(about(agent))).toMatchObject({ outcome: 'unchanged' });
    expect(readFileSync(file, 'utf8')).toBe(once);
    expect(await removeHook(about(agent))).toMatchObject({ outcome: 'removed' });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(others);
    expect(await removeHook(about(agent))).toMatchObject({ outcome: 'absent' });
    expect(await hookStatus(about(agent))).toMatchObject({ state: 'none' });
  });

  it('makes a file where there is none, and follows a link to one', async () => {
    const file = SETTINGS[agent].file(about(agent).env);
    await installHook(about(agent));
    expect(lstatSync(file).mode & 0o777).toBe(0o600);
    await removeHook(about(agent));
    rmSync(file);
    write(join(top, 'dotfiles', 'settings'), {});
    symlinkSync(join(top, 'dotfiles', 'settings'), file);
    await installHook(about(agent));
    expect(lstatSync(file).isSymbolicLink()).toBe(true);
    expect(await hookStatus(about(agent))).toMatchObject({ state: 'whole' });
  });

  it('changes no file that it does not understand', async () => {
    const file = SETTINGS[agent].file(about(agent).env);
    for (const text of ['{ "a": 1, // comment\n }', '[]', 'x']) {
      write(file, text);
      await expect(installHook(about(agent))).rejects.toMatchObject({ code: 'ACODE-HOK-004' });
      expect(readFileSync(file, 'utf8')).toBe(text);
    }
  });

  it('is reported where its program is missing, changed, or others can write it', async () => {
    await installHook(about(agent));
    const [program] = (await import('./install.ts')).programTexts(about(agent)).keys();
    if (program === undefined) throw new Error('there is no program');
    const text = readFileSync(program, 'utf8');
    const faulty = async (): Promise<string> => {
      const { state, faults } = await hookStatus(about(agent));
      return `${state}: ${faults.join()}`;
    };
    chmodSync(program, 0o777);
    expect(await faulty()).toMatch(/^faulty: .*not yours alone/);
    writeFileSync(program, text.replace('/opt/acode.js', '/evil.js'));
    chmodSync(program, 0o700);
    expect(await faulty()).toMatch(/^faulty: .*not what acode would write/);
    writeFileSync(program, text.replace("'HOME=", "'NODE_OPTIONS=--require=/x' 'HOME="));
    expect(await faulty()).toMatch(/^faulty: .*not what acode would write/);
    rmSync(program);
    expect(await faulty()).toMatch(/^faulty: .*missing/);
  });
});

it.each(['claude', 'opencode'] as const)('another program in the place of acode’s is left to %s', async agent => {
  const file = SETTINGS[agent].file(about(agent).env);
  const other = agent === 'claude' ? { env: { CLAUDE_CODE_SHELL_PREFIX: '/logger' } } : { shell: '/bin/fish' };
  write(file, other);
  await expect(installHook(about(agent))).rejects.toMatchObject({ code: 'ACODE-HOK-004' });
  await removeHook(about(agent));
  expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(other);
});

describe('acode hook exec', () => {
  const launching = (args: readonly string[] = [], projectSettings = false) => ({
    ...about('claude'),
    place: { root: join(top, 'work'), here: join(top, 'work/sub'), inside: 'sub' },
    program: '/bin/true',
    args,
    projectSettings,
  });
  beforeEach(() => mkdirSync(join(top, 'work/sub'), { recursive: true }));

  it('gives claude settings above those of the repository, and one workspace for all commands', async () => {
    const { argv } = await launchOf(launching(['-p', 'hi']));
    expect(argv.slice(0, 3)).toEqual(['--setting-sources', 'user', '--settings']);
    const given = JSON.parse(argv[3] ?? '') as { env: Record<string, string> };
    const program = given.env['CLAUDE_CODE_SHELL_PREFIX'] ?? '';
    expect(readFileSync(program, 'utf8')).toContain(`hook run claude '${join(top, 'work')}' "$@"`);
    expect(argv.slice(4)).toEqual(['-p', 'hi']);
  });

  it.each(['--settings', '--settings={}', '--setting-sources', '--setting-sources=project'])(
    'refuses %s',
    async option => {
      await expect(launchOf(launching([option]))).rejects.toMatchObject({ code: 'ACODE-HOK-003' });
    },
  );

  it.each(['env', 'hooks', 'statusLine', 'apiKeyHelper', 'disableAllHooks'])(
    'refuses a repository that sets %s, in every directory up to the workspace, unless the user accepts it',
    async key => {
      for (const name of ['work/.claude/settings.json', 'work/sub/.claude/settings.local.json']) {
        write(join(top, name), { [key]: { a: 'x' } });
        await expect(launchOf(launching())).rejects.toMatchObject({
          code: 'ACODE-HOK-002',
          context: { keys: [key], file: join(top, name) },
        });
        expect((await launchOf(launching([], true))).argv[1]).toBe('user,project,local');
        write(join(top, name), { permissions: {} });
      }
      expect(await launchOf(launching())).toBeDefined();
    },
  );

  it('refuses settings of a repository that it cannot read', async () => {
    write(join(top, 'work/.claude/settings.json'), '{ "env": ');
    await expect(launchOf(launching())).rejects.toMatchObject({ code: 'ACODE-HOK-004' });
  });

  it('takes no variable that loads code, and no program of the workspace', () => {
    const root = join(top, 'work');
    const env = cleanEnvironment(
      {
        A: '1',
        NODE_OPTIONS: 'x',
        BASH_ENV: 'x',
        LD_PRELOAD: 'x',
        'BASH_FUNC_ls%%': 'x',
        PATH: `.:${root}/bin:/usr/bin`,
      },
      root,
    );
    expect(env).toEqual({ A: '1', PATH: '/usr/bin' });
    mkdirSync(join(root, 'bin'));
    mkdirSync(join(top, 'bin'));
    writeFileSync(join(root, 'bin/claude'), '', { mode: 0o755 });
    symlinkSync(join(root, 'bin/claude'), join(top, 'bin/claude'));
    expect(() => programOf('claude', `${root}/bin:${top}/bin`, root)).toThrow(/no directory of PATH/);
    rmSync(join(top, 'bin/claude'));
    writeFileSync(join(top, 'bin/claude'), '', { mode: 0o755 });
    expect(programOf('claude', `${root}/bin:${top}/bin`, root)).toBe(join(top, 'bin/claude'));
  });
});

it.each(Object.entries(HOOK_ERRORS.rows))('%s has a message and a hint for its example', (code, row) => {
  const error = HOOK_ERRORS.create(code as 'ACODE-HOK-001', row.example as { agent: string; reason: string });
  expect(code).toMatch(/^ACODE-HOK-\d{3}$/);
  expect(error.message).toMatch(/\.$/);
  expect(error.message + error.hint).not.toContain('undefined');
});
