// Error table: every error says what happened and what to do next, and has a code of its own.

import { describe, expect, it } from 'vitest';
import { AcodeError, ERRORS } from './errors.ts';
import type { ErrorCode } from './errors.ts';

const codes = Object.keys(ERRORS) as ErrorCode[];

describe('the error table', () => {
  it.each(codes)('%s has a message, a hint and an exit status for its example', code => {
    const { title, example, exit } = ERRORS[code];
    const error = new AcodeError(code, example);
    expect(title).not.toBe('');
    expect(error.message).toMatch(/[^\s].*\.$/);
    expect(error.hint.length).toBeGreaterThan(10);
    expect(error.exitStatus).toBe(exit);
    expect(error.message + error.hint).not.toContain('undefined');
  });

  it('uses codes of the catalogue’s form, each once', () => {
    for (const code of codes) expect(code).toMatch(/^ACODE-(?:SBX|CTN|AUD|IMG|FIL|FRK|MSK)-\d{3}$/);
  });
});

describe('AcodeError', () => {
  it('keeps its cause and narrows by code', () => {
    const cause = new Error('why');
    const error: AcodeError = new AcodeError('ACODE-SBX-009', { image: 'x' }, { cause });
    expect(error.cause).toBe(cause);
    expect(error.is('ACODE-SBX-008')).toBe(false);
    expect(error.is('ACODE-SBX-009') && error.context.image).toBe('x');
  });

  it('tells “not found” from “not executable” by exit status, as shells do', () => {
    const context = { command: 'x', image: 'y' };
    expect(new AcodeError('ACODE-SBX-015', { ...context, reason: 'not found' }).exitStatus).toBe(127);
    expect(new AcodeError('ACODE-SBX-015', { ...context, reason: 'not executable' }).exitStatus).toBe(126);
    const noShell = new AcodeError('ACODE-SBX-015', { ...context, command: '/bin/sh', reason: 'not found' });
    expect(noShell.hint).toMatch(/has no shell.*-- \/path\/to\/program.*--image/);
  });

  it('knows a line that was given as the name of a program', () => {
    const line = new AcodeError('ACODE-SBX-015', { command: 'ls $(id)', image: 'y', reason: 'not found' });
    expect(line.hint).toMatch(/leave out `--`: `acode run "a \| b"`\.$/);
  });

  it('does not send anybody for another image where the level has none', () => {
    for (const command of ['x', '/bin/sh']) {
      const context = { command, image: 'host', reason: 'not found' } as const;
      expect(new AcodeError('ACODE-SBX-015', { ...context, imageless: true }).hint).not.toContain('--image');
      expect(new AcodeError('ACODE-SBX-015', context).hint).toContain('--image');
    }
  });

  it('says other things about a refused option than about an attack', () => {
    const option = new AcodeError('ACODE-SBX-010', { violation: 'PrivilegedUser', detail: 'x' });
    const attack = new AcodeError('ACODE-SBX-010', { violation: 'MountMismatch', detail: 'x' });
    expect(option.hint).not.toBe(attack.hint);
    expect(attack.hint).toContain('Nothing of the command ran');
  });
});
