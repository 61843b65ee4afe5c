// Completion offers what there is, in each shell.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { call } from '../test-process.ts';

const { stdout: bash } = await call(['completion', 'bash']);

function completions(...words: string[]): string[] {
  const script = `compopt() { :; }\n${bash}\nCOMP_WORDS=("$@")\nCOMP_CWORD=$(($# - 1))\n_acode\nprintf '%s\\n' "\${COMPREPLY[@]}"`;
  const out = execFileSync('bash', ['-c', script, 'bash', ...words], { encoding: 'utf8' });
  return out.split('\n').filter(Boolean);
}

describe('completion in bash', () => {
  it.each<[string[], string[]]>([
    [['acode', 'sand'], ['sandbox']],
    [['acode', 'sandbox', 'st'], ['status']],
    [
      ['acode', 'sandbox', 'k'],
      ['keep', 'kill'],
    ],
    [['acode', 'sandbox', 'keep', '--for', '8'], ['8h']],
    [
      ['acode', 'sandbox', 'shell', '--mo'],
      ['--mount', '--mouse'],
    ],
    [['acode', 'sandbox', 'exec', '--mem'], ['--memory']],
    [['acode', 'run', '--network', 'b'], ['bridge']],
    // As bash takes them apart, and with what it completes: the text after the last = or :.
    [['acode', 'run', '--network', 'allow', '=', 'n'], ['npm:install']],
    [['acode', 'run', '--network', 'allow', '=', 'npm', ':'], ['install']],
    [['acode', 'run', '--memory', '=', '512', '--network', 'b'], ['bridge']],
    [['acode', 'explain', '--pub'], ['--publish']],
    [['acode', 'tr'], ['trust']],
    [['acode', 'trust', '--re'], ['--revoke']],
    [
      ['acode', 'run', '--profile', ''],
      ['exec', 'dev', 'task', 'swarm', 'agent'],
    ],
    [['acode', 'run', '--mount', './a:/a', '--runtime', 'runs'], ['runsc']],
    [
      ['acode', 'run', '--risk', ''],
      ['low', 'medium', 'high', 'critical'],
    ],
    [
      ['acode', 'completion', ''],
      ['install', 'bash', 'zsh', 'fish'],
    ],
    [['acode', 'completion', 'install', 'f'], ['fish']],
    [['acode', 'test', '--with', 'c'], ['cargo']],
    [
      ['acode', '--json', 'docker', 'l'],
      ['list', 'logs'],
    ],
    [['acode', '--socket', 'sandbox', 'docker', 'in'], ['inspect']],
    [['acode', 'sandbox', 'exec', '--', 'l'], []],
    // Commands below it, and agents.
    [
      ['acode', 'agent', ''],
      ['list', 'show', 'update', 'claude', 'codex', 'gemini', 'opencode'],
    ],
    [['acode', 'agent', 'co'], ['codex']],
    [['acode', 'agent', 'show', 'g'], ['gemini']],
    [['acode', 'agent', 'claude', '--bud'], ['--budget']],
    [['acode', 'agent', '--budget', 'requests', '='], ['200']],
    [['acode', 'login', 'cl'], ['claude']],
    [['acode', 'hook', 'exec', 'op'], ['opencode']],
    [['acode', 'doctor', '--agent', 'ge'], ['gemini']],
  ])('of %j offers %j', (words, offered) => {
    expect(completions(...words)).toEqual(offered);
  });
});

describe('completion', () => {
  it.each(['bash', 'zsh', 'fish'])('for %s knows every command', async shell => {
    const { status, stdout } = await call(['completion', shell]);
    expect(status).toBe(0);
    for (const word of [
      'sandbox',
      'status',
      'exec',
      'cleanup',
      'inspect',
      'logs',
      'explain',
      'max-output',
      'open-files',
      'mount',
    ])
      expect(stdout).toContain(word);
  });

  it('knows the agents of the user’s file, and those of acode where that file is not valid', async () => {
    const config = mkdtempSync(join(tmpdir(), 'acode-config-'));
    const file = join(config, 'acode', 'agents.yml');
    const names = async (text: string): Promise<boolean[]> => {
      mkdirSync(join(file, '..'), { recursive: true });
      writeFileSync(file, text, { mode: 0o600 });
      const { stdout } = await call(['completion', 'bash'], { env: { XDG_CONFIG_HOME: config } });
      return ['aider', 'claude'].map(name => new RegExp(`compgen -W '[^']*\\b${name}\\b`).test(stdout));
    };
    expect(await names('agents: { aider: { command: [aider] } }')).toEqual([true, true]);
    expect(await names('agents: [')).toEqual([false, true]);
    rmSync(config, { recursive: true });
  });

  it('is one object with --json', async () => {
    const { stdout } = await call(['--json', 'completion', 'fish']);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.completion/1', shell: 'fish' });
  });
});

describe('installing completion', () => {
  let home = '';

  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), 'acode-home-'));
  });

  afterEach(() => {
    rmSync(home, { recursive: true });
  });

  const acode = (argv: string[], env: Record<string, string> = {}) =>
    call(['completion', 'install', ...argv], { env: { HOME: home, ...env } });
  const at = (path: string) => join(home, path);

  it.each([
    ['bash', '.local/share/bash-completion/completions/acode'],
    ['zsh', '.local/share/zsh/site-functions/_acode'],
    ['fish', '.config/fish/completions/acode.fish'],
  ])('for %s writes the script to the user’s own directory, once, and takes it back', async (shell, path) => {
    const first = await acode([shell]);
    expect(first).toMatchObject({
      status: 0,
      stdout: expect.stringContaining(`Installed the completion for ${shell}`),
    });
    expect(readFileSync(at(path), 'utf8')).toBe((await call(['completion', shell])).stdout);
    const inode = execFileSync('stat', ['-c', '%i', at(path)], { encoding: 'utf8' });
    expect((await acode([shell])).stdout).toContain('is up to date');
    expect(execFileSync('stat', ['-c', '%i', at(path)], { encoding: 'utf8' })).toBe(inode);
    writeFileSync(at(path), '# completion for acode\n');
    expect((await acode([shell])).stdout).toContain('Updated');
    expect((await acode([shell, '--uninstall'])).stdout).toContain('Removed');
    expect(existsSync(at(path))).toBe(false);
    await expect(acode([shell, '--uninstall'])).resolves.toMatchObject({
      status: 0,
      stdout: expect.stringContaining('There is no completion'),
    });
  });

  it('never changes an rc file: the line that zsh needs is printed', async () => {
    writeFileSync(at('.zshrc'), 'mine\n');
    const { stdout } = await acode([], { SHELL: '/usr/bin/zsh' });
    expect(stdout).toContain(`Add the line below to ${at('.zshrc')}, before \`compinit\` is called.`);
    expect(stdout).toContain(`\n    fpath=(${at('.local/share/zsh/site-functions')} $fpath)\n`);
    expect(readFileSync(at('.zshrc'), 'utf8')).toBe('mine\n');
  });

  it('goes where the shell’s own variables say', async () => {
    await acode(['bash'], { BASH_COMPLETION_USER_DIR: at('own') });
    await acode(['fish'], { XDG_CONFIG_HOME: at('config') });
    expect([readdirSync(at('own/completions')), readdirSync(at('config/fish/completions'))]).toEqual([
      ['acode'],
      ['acode.fish'],
    ]);
  });

  it('leaves a file alone that acode did not write', async () => {
    await acode(['fish']);
    const file = at('.config/fish/completions/acode.fish');
    writeFileSync(file, '# mine\n');
    for (const argv of [['fish'], ['fish', '--uninstall']])
      await expect(acode(argv)).resolves.toMatchObject({
        status: 2,
        stderr: expect.stringContaining('not written by acode'),
      });
    expect(readFileSync(file, 'utf8')).toBe('# mine\n');
  });

  it('asks for the name of a shell that it does not know', async () => {
    await expect(acode([], { SHELL: '/bin/dash' })).resolves.toMatchObject({
      status: 2,
      stderr: expect.stringMatching(/\$SHELL is \/bin\/dash[^]*acode completion install zsh/),
    });
  });

  it.skipIf(process.getuid?.() === 0)('says why where it cannot write', async () => {
    chmodSync(home, 0o500);
    const { status, stderr } = await acode(['fish']);
    chmodSync(home, 0o700);
    expect(status).not.toBe(0);
    expect(stderr).toContain('EACCES');
  });
});
