// Parsing of hostile configuration files: every size is bounded before the content is interpreted.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import { checkConfig } from './check.ts';
import { parseConfig } from './parse.ts';
import { parseDocument } from './document.ts';
import { shapeFault } from './shape.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const refused = (part: string) =>
  expect.objectContaining({ code: 'ACODE-SBX-013', message: expect.stringContaining(part) as string });
const refusedWithin = (work: () => unknown): number => {
  // The best of three: other tests run at the same time.
  const times = [1, 2, 3].map(() => {
    const began = performance.now();
    expect(work).toThrow(AcodeError);
    return performance.now() - began;
  });
  return Math.min(...times);
};

describe('parseDocument', () => {
  it('knows the place of every key and every entry', () => {
    const { value, where } = parseDocument('a:\n  - b: 1\n  - c: 2\n', 'f.yml');
    expect(value).toEqual({ a: [{ b: 1 }, { c: 2 }] });
    expect(where(['a'])).toBe('f.yml:1:1');
    expect(where(['a', 1, 'c'])).toBe('f.yml:3:5');
    expect(where(['a', 1, 'nothing'])).toBe('f.yml:3:5');
    expect(where(['nothing'])).toBe('f.yml');
  });

  it.each([
    ['a tag', 'a: !!str 1', 'f.yml:1:4: has a YAML tag'],
    ['a type of its own', 'a: !exec "id"', 'has a YAML tag'],
    ['a directive', '%YAML 1.1\n---\na: yes\n', 'has a YAML directive'],
    ['a second document', 'a: 1\n---\nb: 2\n', 'more than one YAML document'],
    ['a key twice', 'a: 1\na: 2\n', 'f.yml:2:1: is not valid YAML: a is there twice'],
    ['a key twice in a list', 'l: [{ a: 1, a: 2 }]', 'is not valid YAML'],
    ['an alias of nothing', 'a: *b', 'is not valid YAML'],
    ['lists in lists in lists', '['.repeat(40) + ']'.repeat(40), 'nested more than 32 deep'],
    ['maps in maps in maps', `${'{a: '.repeat(40)}1${'}'.repeat(40)}`, 'nested more than 32 deep'],
    ['dashes', `${'- '.repeat(40)}1`, 'nested more than 32 deep'],
    ['many entries', `[${'1,'.repeat(600)}]`, 'more than 500 entries'],
    ['an alias as a key', '&k a: 1\n*k : 2', 'has a YAML alias as a key'],
    ['many aliases', `a: &a 1\nb: [${'*a,'.repeat(30)}]`, 'too many YAML aliases'],
  ])('refuses %s', (_, text, part) => {
    expect(() => parseDocument(text, 'f.yml')).toThrow(refused(part));
  });

  it('takes 32 levels, aliases and anchors in the usual number', () => {
    expect(parseDocument('['.repeat(30) + ']'.repeat(30), 'f').value).toHaveLength(1);
    expect(parseDocument('a: &a [1]\nb: *a\n', 'f').value).toEqual({ a: [1], b: [1] });
  });

  it.each([
    ['10 MB of text', 'x'.repeat(10_000_000)],
    ['10 MB of keys', 'k: 1\n'.repeat(2_000_000)],
  ])('refuses %s in a moment', (_, text) => {
    expect(refusedWithin(() => parseDocument(text, 'f'))).toBeLessThan(100);
  });

  it.each([
    ['brackets', '['.repeat(250_000)],
    ['dashes', '- '.repeat(125_000)],
    ['question marks', '? '.repeat(125_000)],
    ['keys', Array.from({ length: 20_000 }, (_, n) => `k${n}: 1`).join('\n')],
    ['commas', `[${','.repeat(250_000)}]`],
    ['documents', '---\n'.repeat(60_000)],
  ])('refuses 256 KiB of %s without much work', (_, text) => {
    expect(refusedWithin(() => parseDocument(text, 'f'))).toBeLessThan(2000);
  });
});

describe('shapeFault', () => {
  it.each(['__proto__', 'constructor', 'prototype'])('finds %s at any depth', name => {
    const text = `{"a":[{"b":{${JSON.stringify(name)}:{"polluted":true}}}]}`;
    expect(shapeFault(JSON.parse(text))).toMatchObject({ path: ['a', '0', 'b', name] });
    expect(() => checkConfig(JSON.parse(text), 'x')).toThrow(refused(name));
    expect(() => parseConfig(text, 'x')).toThrow(refused(name));
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  it('is not led in circles', () => {
    const circle: Record<string, unknown> = {};
    circle['a'] = circle;
    circle['b'] = circle;
    expect(shapeFault(circle)).not.toBeNull();
    expect(() => checkConfig(circle, 'x')).toThrow(refused(''));
  });

  it('has nothing against ordinary values', () => {
    expect(shapeFault({ a: [1, 'x', null, { b: true }] })).toBeNull();
  });
});

describe('whatever a file or a program says', () => {
  const isHarmless = (work: () => unknown): boolean => {
    try {
      work();
    } catch (error) {
      if (!(error instanceof AcodeError)) throw error;
    }
    return Object.keys(Object.prototype).length === 0 && !('polluted' in {});
  };
  const keys =
    'sandbox defaults network mode memory_mb docker resources memory __proto__ constructor polluted 1 ~'.split(' ');
  const word = fc.constantFrom(
    ...keys,
    '\n',
    '\n  ',
    ': ',
    '- ',
    '? ',
    '&a ',
    '*a',
    '!!x ',
    ...'{ } [ ] " # | > %'.split(' '),
  );
  const key = fc.oneof(word, fc.string());
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.array(word, { maxLength: 40 }).map(list => list.join('')),
  );
  const value = fc.oneof(fc.jsonValue(), fc.object({ key, maxDepth: 5 }), fc.anything());
  const placed = fc.oneof(
    value,
    value.map(sandbox => ({ sandbox })),
    value.map(docker => ({ docker })),
  );

  it.each([
    ['text', fc.property(text, one => isHarmless(() => parseConfig(one, 'f.yml')))],
    ['an object', fc.property(placed, one => isHarmless(() => checkConfig(one, 'x')))],
  ])(
    '%s ends in a configuration or an AcodeError',
    (_, property) => {
      expect(fc.check(property, { numRuns: 500 * FACTOR })).toMatchObject({ failed: false, counterexample: null });
    },
    60_000 * FACTOR,
  );
});
