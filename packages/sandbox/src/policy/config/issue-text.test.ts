// Messages for invalid values: what was expected, in acode’s words and never with the value.

import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { policyInputSchema } from '../../contract/policy-schema.ts';
import { parseConfig } from './parse.ts';
import { issueText } from './issue-text.ts';

const textFor = (schema: z.ZodType, value: unknown): string | undefined =>
  schema.safeParse(value, { error: issueText }).error?.issues[0]?.message;

describe('a mistake in a value', () => {
  it.each<[z.ZodType, unknown, string]>([
    [z.number().positive(), 0, 'must be more than 0'],
    [z.number().max(5), 6, 'must be at most 5'],
    [z.int(), 1.5, 'expected a whole number, found a broken number'],
    [z.int(), 'x', 'expected a number, found text'],
    [z.boolean(), 'yes', 'expected true or false, found `yes` (text); write true'],
    [z.boolean(), 'hunter2', 'expected true or false, found text'],
    [z.number(), '12', 'expected a number, found "12" (text); write 12'],
    [z.strictObject({}), [], 'expected keys with values, found a list'],
    [z.strictObject({}), null, 'expected keys with values, found nothing'],
    [z.strictObject({}), { a: 1 }, 'has an unknown key, a'],
    [z.strictObject({ a: z.string() }), {}, 'is missing; expected text'],
    [z.string().min(1), '', 'must not be empty'],
    [z.string().max(2), 'abc', 'must have at most 2 characters'],
    [z.array(z.string()).max(1), ['a', 'b'], 'must have at most 1 entry'],
    [z.array(z.never()).max(0), ['a'], 'must be empty'],
    [z.enum(['a', 'b', 'c']), 'd', 'expected a, b or c'],
    [z.literal(true), false, 'expected true'],
    [z.union([z.boolean(), z.array(z.string())]), 5, 'expected true or false, or a list'],
    [z.string().regex(/x/, 'expected an x'), 'y', 'expected an x'],
    [z.custom(() => false), 1, 'does not have the form that is expected here'],
  ])('against %o in %j is: %s', (schema, value, text) => {
    expect(textFor(schema, value)).toBe(text);
  });

  it('in one of several forms tells about the form that was meant', () => {
    const network = policyInputSchema.shape.network;
    expect(textFor(network, { nam: 'x' })).toMatch(/name is missing|unknown key/);
    expect(textFor(network, 'brige')).toMatch(/^expected none or bridge/);
  });
});

describe('a mistake in a file', () => {
  it.each([
    ['sandbox: { defaults: { pids_limit: 1 } }', 'pids_limit` must be at least 8.'],
    ['sandbox: { defaults: { open_files: 16 } }', 'open_files` must be at least 32.'],
    ['sandbox: { ceilings: { open_files: 31 } }', 'open_files` must be at least 32.'],
    ['sandbox: { defaults: { timeout_seconds: 0 } }', 'timeout_seconds` must be more than 0.'],
    ['sandbox: { output: { save: no } }', 'save` expected true or false, found `no` (text); write false.'],
    ['sandbox: 5', '`sandbox` expected keys with values, found a whole number.'],
    ['- a', 'f.yml:1:1: holds a list at its top; expected keys such as `sandbox:`.'],
    ['# why\nhello', 'f.yml:2:1: holds text at its top; expected keys such as `sandbox:`.'],
  ])('%j is reported as %j', (text, message) => {
    expect(() => parseConfig(text, 'f.yml')).toThrow(message);
  });
});
