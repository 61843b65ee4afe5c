// Completion offers what there is, in each shell.

import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
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
    [['acode', 'explain', '--pub'], ['--publish']],
    [['acode', 'tr'], ['trust']],
    [['acode', 'trust', '--re'], ['--revoke']],
    [
      ['acode', 'run', '--profile', ''],
      ['exec', 'dev', 'task', 'swarm'],
    ],
    [['acode', 'run', '--mount', './a:/a', '--runtime', 'runs'], ['runsc']],
    [
      ['acode', 'run', '--risk', ''],
      ['low', 'medium', 'high', 'critical'],
    ],
    [
      ['acode', 'completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [
      ['acode', '--json', 'docker', 'l'],
      ['list', 'logs'],
    ],
    [['acode', '--socket', 'sandbox', 'docker', 'in'], ['inspect']],
    [['acode', 'sandbox', 'exec', '--', 'l'], []],
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

  it('is one object with --json', async () => {
    const { stdout } = await call(['--json', 'completion', 'fish']);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.completion/1', shell: 'fish' });
  });
});
