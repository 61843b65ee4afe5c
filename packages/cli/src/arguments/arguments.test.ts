// Each argument type takes what it should and refuses the rest.

import { InvalidArgumentError } from '@commander-js/extra-typings';
import { describe, expect, it } from 'vitest';
import { UsageError } from '../failure/usage.ts';
import { commandOf, quoted } from './command-words.ts';
import { count } from './count.ts';
import { cpus } from './cpus.ts';
import { network } from './network.ts';
import { inOptions, requestCommand, requestOf } from './request.ts';
import { risk } from './risk.ts';
import { seconds } from './seconds.ts';
import { size } from './size.ts';
import { user } from './user.ts';
import { variable } from './variable.ts';

describe('an argument is read as', () => {
  it.each<[string, (text: string) => unknown, string, unknown]>([
    ['megabytes without a unit', size, '64', 64 * 1024 ** 2],
    ['a size with a unit', size, '512k', 512 * 1024],
    ['a broken size', size, '1.5g', 1.5 * 1024 ** 3],
    ['seconds', seconds, '2', 2000],
    ['part of a second', seconds, '0.25', 250],
    ['a count', count, '16', 16],
    ['CPUs', cpus, '.5', 0.5],
    ['a user', user, '1000:100', '1000:100'],
    ['the caller', user, 'caller', 'caller'],
    ['no network', network, 'none', 'none'],
    ['a network by name', network, 'build-net', { name: 'build-net' }],
    ['a risk in capitals', risk, 'HIGH', 'high'],
    ['a variable', variable, 'A=b=c', { A: 'b=c' }],
    ['an empty variable', variable, 'A=', { A: '' }],
  ])('%s', (_, read, text, value) => {
    expect(read(text)).toEqual(value);
  });

  it('several variables, the last of a name winning', () => {
    expect(variable('B=3', variable('B=2', variable('A=1')))).toEqual({ A: '1', B: '3' });
  });

  it('a variable whose name is a trap for objects', () => {
    expect(Object.entries(variable('__proto__=x'))).toEqual([['__proto__', 'x']]);
  });
});

describe('an argument is refused', () => {
  it.each<[string, (text: string) => unknown, string]>([
    ['a size in words', size, 'lots'],
    ['a negative size', size, '-5'],
    ['no time', seconds, '0'],
    ['time with a unit', seconds, '5s'],
    ['endless time', seconds, '1e99'],
    ['no processes', count, '0'],
    ['half a process', count, '1.5'],
    ['no CPU', cpus, '0'],
    ['infinite CPUs', cpus, 'Infinity'],
    ['a user by name', user, 'root'],
    ['a user without group', user, '1000'],
    ['a network with a comma', network, 'a,b'],
    ['a risk nobody knows', risk, 'huge'],
    ['a variable that would be inherited', variable, 'HOME'],
    ['a variable without a name', variable, '=x'],
  ])('%s', (_, read, text) => {
    expect(() => read(text)).toThrow(InvalidArgumentError);
  });
});

describe('the words of a command', () => {
  const of = (before: string[], after: string[] | null = null) =>
    commandOf({ before, after, called: 'acode run', options: ['--network', '--json'] });

  it('are a shell line when there is one', () => {
    expect(of(['ls | wc'])).toBe('ls | wc');
  });

  it('are an argument vector after --', () => {
    expect(of([], ['ls', '--json'])).toEqual(['ls', '--json']);
  });

  it.each([
    [['echo', 'hi'], null, 'acode run "echo hi"'],
    [['echo', 'hi'], null, 'acode run -- echo hi'],
    [['ls -l', '--network', 'none'], null, "acode run --network none 'ls -l'"],
    [['ls', '--network=none'], null, 'acode run -- ls --network=none'],
    [['ls', '-l'], null, 'acode run -- ls -l'],
    [[], null, 'acode run -- echo hi'],
    [['  '], null, 'acode run -- echo hi'],
    [[], [], 'acode run -- echo hi'],
    [['echo'], ['hi'], 'acode run -- echo hi'],
  ] as const)('%j and %j are a mistake, and the hint has the way to write it', (before, after, hint) => {
    const attempt = () => of([...before], after && [...after]);
    expect(attempt).toThrow(UsageError);
    expect(attempt).toThrow(expect.objectContaining({ exitStatus: 2, hint: expect.stringContaining(hint) }));
  });

  it('are quoted for a shell where they must be', () => {
    expect(['a-b', 'a b', "it's", ''].map(quoted)).toEqual(['a-b', "'a b'", String.raw`'it'\''s'`, `''`]);
  });
});

describe('the options of a run', () => {
  const parse = (...argv: string[]) => {
    const command = requestCommand('run');
    command.parse(argv, { from: 'user' });
    return requestOf(command.opts(), 'sub');
  };

  it('become a request, and what was not said stays absent', () => {
    expect(parse('ls')).toEqual({ policy: { limits: {} }, cwd: 'sub' });
  });

  it('each reach their field', () => {
    const options = '--image i --memory 64 --cpus 0.5 --pids 9 --timeout 2 --max-output 1k --network none --readonly';
    const more =
      '--user 5:6 --env A=1 --env B=2 --workdir x --pull never --level docker --risk low --session s --task t ls';
    expect(parse(...`${options} ${more}`.split(' '))).toEqual({
      policy: {
        image: 'i',
        limits: { memoryBytes: 64 * 1024 ** 2, cpus: 0.5, pids: 9, outputBytes: 1024 },
        timeoutMs: 2000,
        network: 'none',
        workspace: 'readonly',
        user: '5:6',
        pull: 'never',
        level: 'docker',
      },
      env: { A: '1', B: '2' },
      cwd: 'x',
      risk: 'low',
      sessionId: 's',
      taskId: 't',
    });
  });

  it('are what a sentence of the library is put into', () => {
    expect(inOptions('policy.limits.memoryBytes: must be at least 6 MiB; limits.pids too, the image not.')).toBe(
      '--memory: must be at least 6 MiB; --pids too, the image not.',
    );
  });
});
