// Canonical JSON: one value has one text, independent of how the object was built; values outside JSON are refused.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalJson } from './record.ts';

function shuffled(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(shuffled);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, item]) => [key, shuffled(item)]),
  );
}

const values = fc.jsonValue({ maxDepth: 4 });

describe('canonical JSON', () => {
  it('reads back as the value, and does not depend on the order of keys', () => {
    fc.assert(
      fc.property(values, value => {
        const text = canonicalJson(value);
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(shuffled(value))).toBe(text);
        expect(canonicalJson(JSON.parse(text))).toBe(text);
      }),
    );
  });

  it('takes one line, whatever is in it', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), text => {
        expect(canonicalJson({ [text]: text })).not.toMatch(/[\r\n]/);
      }),
    );
  });

  it('sorts by code units and leaves out what is undefined', () => {
    expect(canonicalJson({ b: 1, a: [{ d: null, c: undefined }], B: true, ä: -0, 10: 1, 9: 2 })).toBe(
      '{"10":1,"9":2,"B":true,"a":[{"d":null}],"b":1,"ä":0}',
    );
  });

  it.each([
    ['a number that is none', NaN],
    ['infinity', Infinity],
    ['a function', () => 1],
    ['a big number', 1n],
    ['undefined in a list', [undefined]],
    ['a date', new Date(0)],
    ['a map', new Map()],
    ['bytes', Buffer.from('x')],
    ['an instance', new Error('x')],
  ])('refuses %s', (_, value) => {
    expect(() => canonicalJson({ value })).toThrow(TypeError);
  });

  it('refuses what is deeper than any record', () => {
    let value: unknown = 1;
    for (let depth = 0; depth < 15; depth += 1) value = [value];
    expect(() => canonicalJson({ value })).not.toThrow();
    for (let depth = 0; depth < 5; depth += 1) value = [value];
    expect(() => canonicalJson({ value })).toThrow(/too deep/);
  });
});
