// Error table: every error says what happened and what to do next, and has a code of its own.

import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { ERRORS } from './error-table.ts';
import { AcodeError } from './errors.ts';
import type { ErrorCode } from './error-table.ts';

const codes = Object.keys(ERRORS) as ErrorCode[];

const REPOSITORY = new URL('../../../../', import.meta.url);

/** The codes that acode was asked for, and what each was to mean. */
const CATALOGUE = {
  'ACODE-SBX-001': /could not be created/,
  'ACODE-SBX-002': /pull failed/,
  'ACODE-SBX-003': /mount refused/,
  'ACODE-SBX-004': /resource limit exceeded/,
  'ACODE-SBX-005': /network denied/,
  'ACODE-SBX-006': /did not start/,
  'ACODE-SBX-007': /timed out/,
  'ACODE-SBX-008': /engine not available/,
  'ACODE-SBX-009': /image not present/,
  'ACODE-SBX-010': /security policy violation/,
  'ACODE-SBX-011': /as root/,
  'ACODE-SBX-012': /isolation level too low/,
  'ACODE-SBX-013': /invalid configuration/,
  'ACODE-SBX-014': /cancelled/,
  'ACODE-CTN-001': /container creation failed/,
  'ACODE-CTN-002': /container start failed/,
  'ACODE-CTN-003': /container stop failed/,
  'ACODE-CTN-004': /container removal failed/,
  'ACODE-CTN-005': /name collision/,
  'ACODE-CTN-006': /image pull failed/,
  'ACODE-CTN-007': /resource limit invalid/,
  'ACODE-CTN-008': /Docker not available/,
  'ACODE-CTN-009': /too many sandboxes/,
  'ACODE-CTN-010': /orphan cleanup failed/,
  'ACODE-CTN-011': /image not found/,
};

/** The page of errors in two parts: the table, and the codes that are not used. */
function pageOfErrors(): readonly [table: string, unused: string] {
  const [table = '', unused = ''] = readFileSync(new URL('docs/errors.md', REPOSITORY), 'utf8').split(
    '## Codes that are not used',
  );
  return [table, unused];
}

/** The sources of the library and the command, without tests and without the table itself. */
function sources(): string {
  return ['packages/sandbox/src', 'packages/cli/src']
    .flatMap(room => {
      const directory = fileURLToPath(new URL(`${room}/`, REPOSITORY));
      return readdirSync(directory, { recursive: true, encoding: 'utf8' })
        .filter(file => file.endsWith('.ts') && !/\.test\.ts$|error-table\.ts$/.test(file))
        .map(file => readFileSync(`${directory}${file}`, 'utf8'));
    })
    .join('\n');
}

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
    for (const code of codes) expect(code).toMatch(/^ACODE-(?:SBX|CTN|AUD|IMG|FIL|FRK|MSK|EGR)-\d{3}$/);
  });

  it('has each code of the catalogue with its meaning, or the page of errors says what is reported instead', () => {
    const [table, unused] = pageOfErrors();
    for (const [code, meaning] of Object.entries(CATALOGUE)) {
      const title = Object.entries(ERRORS).find(([own]) => own === code)?.[1].title;
      const row = unused.split('\n').find(line => line.startsWith(`| \`${code}\` |`));
      expect(title ?? row, code).toMatch(meaning);
      expect(table.includes(`\`${code}\` |`), code).toBe(title !== undefined);
      expect(row !== undefined, code).toBe(title === undefined);
      if (row === undefined) continue;
      const instead = row.match(/ACODE-[A-Z]+-\d+/g)?.filter(named => named !== code) ?? [];
      expect(instead.length, row).toBeGreaterThan(0);
      for (const named of instead) expect(codes, row).toContain(named);
    }
  });

  it('has no code that nothing reports', () => {
    const text = sources();
    expect(codes.filter(code => !text.includes(`'${code}'`))).toEqual([]);
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
    expect(line.hint).toMatch(/leave out `--`: `acode run "a \| b"`\./);
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
