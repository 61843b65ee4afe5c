// One JSON object, whatever is in it.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { jsonPieces } from './json.ts';

const text = (value: object) => [...jsonPieces('acode.run/1', value)].join('');

it('is one line with the schema first', () => {
  expect(text({ a: 1, b: undefined, c: null, d: [], e: {} })).toBe(
    '{"schema":"acode.run/1","a":1,"c":null,"d":[],"e":{}}\n',
  );
});

it('has bytes as base64', () => {
  expect(JSON.parse(text({ bytes: Uint8Array.of(0, 255) }))).toMatchObject({ bytes: 'AP8=' });
});

it('says what JSON.stringify says', () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), value => {
      const { schema: _, ...rest } = value;
      expect(JSON.parse(text(rest))).toEqual(JSON.parse(JSON.stringify({ schema: 'acode.run/1', ...rest })));
    }),
  );
});

it('keeps a long text whole, also where a character stands on a cut', () => {
  const long = `x${'🙂'.repeat(1024 ** 2)}`;
  expect([...jsonPieces('s', { long })].length).toBeGreaterThan(3);
  expect(JSON.parse(text({ long }))).toHaveProperty('long', long);
});
