// What a person is to paste into a shell or a file has no typographic quotes: curly ones are for prose.

import { AcodeError, ERRORS, DENIAL_RULES, denialText } from '@acode/sandbox';
import type { Denial, ErrorCode, Remedy } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { OPTION_TERMS } from '../arguments/option-names.ts';
import { EXAMPLES } from '../examples.ts';
import { buildProgram } from '../program.ts';
import { call } from '../test-process.ts';

const CURLY = /[‘’“”]/;

// Between backquotes, and what follows the name of the program or of an option.
function pastedIn(text: string): string[] {
  const quoted = [...text.matchAll(/`([^`]*)`/g)].map(([, command = '']) => command);
  const plain = [...text.matchAll(/(?:acode (?:run|sandbox|config|explain) |--[a-z-]+[= ])["'‘’“”][^.;]*/g)].map(
    ([found]) => found,
  );
  return [...quoted, ...plain];
}

function codesOf(): ErrorCode[] {
  return Object.keys(ERRORS).filter((code): code is ErrorCode => code in ERRORS);
}

const REMEDIES: readonly Remedy[] = [
  { kind: 'use-less' },
  { kind: 'raise-limit', field: 'policy.timeoutMs', suggested: 2000 },
  { kind: 'change-request', field: 'policy.network', suggested: 'bridge', consent: 'sandbox.network.allow_bridge' },
  { kind: 'change-setting', field: 'sandbox.network.timeout_seconds', suggested: 'raise' },
  { kind: 'add-setting', field: 'sandbox.network.private_hosts', suggested: 'a.example' },
  { kind: 'choose-image', field: 'policy.image' },
  { kind: 'leave-out', suggested: 'sudo' },
  { kind: 'provide-offline' },
  { kind: 'copy-file', suggested: 'SSL_CERT_FILE' },
];

describe('what is to be pasted has straight quotes only', () => {
  it('finds what is to be pasted, and curly quotes in it', () => {
    expect(pastedIn('Write `a “b”` or acode run “c”.').every(found => CURLY.test(found))).toBe(true);
    expect(pastedIn('Write `a “b”` or acode run “c”.')).toHaveLength(2);
    expect(pastedIn('The user’s own file.')).toEqual([]);
  });

  it.each(codesOf())('in message and hint of %s', code => {
    const { message, hint } = new AcodeError(code, ERRORS[code].example).inTerms(OPTION_TERMS);
    for (const text of pastedIn(`${message} ${hint}`)) expect(text).not.toMatch(CURLY);
  });

  it.each(DENIAL_RULES)('in the text of the denial %s', rule => {
    const setBy = { value: null, layer: 'built-in', where: 'rule' } as const;
    const denial: Denial = { rule, value: 1, setBy, count: 1, remedies: REMEDIES };
    for (const text of pastedIn(denialText(denial, { terms: OPTION_TERMS }))) expect(text).not.toMatch(CURLY);
  });

  it('in examples', () => {
    for (const { type } of Object.values(EXAMPLES).flat()) expect(type).not.toMatch(CURLY);
  });

  it('in the help of every command', async () => {
    const program = buildProgram(() => Promise.resolve(), { text: '', width: null });
    const names = program.commands.flatMap(one => [
      [one.name()],
      ...one.commands.map(below => [one.name(), below.name()]),
    ]);
    for (const words of names) {
      const { stdout } = await call([...words, '--help']);
      for (const text of pastedIn(stdout)) expect(text, words.join(' ')).not.toMatch(CURLY);
    }
  });

  it.each([
    ['rnu'],
    ['run'],
    ['run', 'ls', '-la'],
    ['run', 'busybox', 'ls'],
    ['run', '--rm', 'ls'],
    ['run', '-it', 'ls'],
    ['run', '--env', 'a b', 'ls'],
  ])('in the hint for `acode %s`', async (...words) => {
    const { status, stderr } = await call(words);
    expect(status).toBe(2);
    for (const text of pastedIn(stderr)) expect(text).not.toMatch(CURLY);
  });
});
