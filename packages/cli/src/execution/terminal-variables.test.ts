import { describe, expect, it } from 'vitest';
import { terminalVariables, variablesOfTerminal } from './terminal-variables.ts';

const of = (env: Readonly<Record<string, string>>, isTerminal = true) =>
  terminalVariables({ stdout: { isTerminal }, io: { env } });

describe('the variables of a terminal', () => {
  it('are the caller’s, with colours asked for', () => {
    expect(of({ TERM: 'xterm-256color', COLORTERM: 'truecolor', LANG: 'de_DE.UTF-8' })).toEqual({
      TERM: 'xterm-256color',
      COLORTERM: 'truecolor',
      FORCE_COLOR: '1',
      LANG: 'C.UTF-8',
    });
  });

  it('are none where the output is not a terminal', () => {
    expect(of({ TERM: 'xterm', LANG: 'C.UTF-8' }, false)).toEqual({});
  });

  it('ask for no colours where the caller wants none', () => {
    expect(of({ NO_COLOR: '1' })).toEqual({ NO_COLOR: '1' });
    expect(of({ NO_COLOR: '' })).toEqual({ FORCE_COLOR: '1' });
  });

  it('say UTF-8 only where the variable that counts does', () => {
    const counts: readonly (readonly [Record<string, string>, boolean])[] = [
      [{ LANG: 'en_US.utf8' }, true],
      [{ LANG: 'C' }, false],
      [{ LC_ALL: 'C', LANG: 'en_US.UTF-8' }, false],
      [{ LC_ALL: '', LC_CTYPE: 'C.UTF-8', LANG: 'C' }, true],
      [{}, false],
    ];
    for (const [env, expected] of counts) expect('LANG' in of(env), JSON.stringify(env)).toBe(expected);
  });

  it('leave out what no terminal is called', () => {
    for (const TERM of ['', 'a b', 'x\n', '../x', '$(id)', 'x'.repeat(65), '\u001b[0m'])
      expect(of({ TERM, COLORTERM: TERM }), JSON.stringify(TERM)).toEqual({ FORCE_COLOR: '1' });
  });
});

describe('the variables of a program with a terminal', () => {
  const inside = (env: Readonly<Record<string, string>>) =>
    variablesOfTerminal({ stdout: { isTerminal: true }, io: { env } });

  it('name a terminal that images know, and leave the colours to it', () => {
    expect(inside({ TERM: 'xterm-kitty', COLORTERM: 'truecolor' })).toEqual({
      TERM: 'xterm-256color',
      COLORTERM: 'truecolor',
    });
    for (const TERM of ['tmux-256color', 'screen', 'xterm', 'linux', 'vt100'])
      expect(inside({ TERM })).toEqual({ TERM });
    expect(inside({ NO_COLOR: '1' })).toEqual({ TERM: 'xterm-256color', NO_COLOR: '1' });
  });
});
