// What a model is shown of a long text fits, keeps both ends and says what is missing.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { excerptOf, sharesOf } from './excerpt.ts';

describe('an excerpt', () => {
  it('is the text itself where that fits', () => {
    expect(excerptOf('abc', 3)).toEqual({ text: 'abc', omitted: 0 });
  });

  it('keeps head and tail, and counts what it leaves out', () => {
    expect(excerptOf('0123456789', 4)).toEqual({ text: '01\n[… 6 characters left out …]\n89', omitted: 6 });
  });

  it('accounts for every character of any text, and breaks none', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), fc.integer({ min: 0, max: 100 }), (text, most) => {
        const { text: shown, omitted } = excerptOf(text, most);
        if (omitted === 0) return shown === text && text.length <= most;
        const [head = '', tail = ''] = shown.split(`\n[… ${omitted} characters left out …]\n`);
        expect(text.startsWith(head) && text.endsWith(tail)).toBe(true);
        expect(head.length + tail.length + omitted).toBe(text.length);
        expect(head.length + tail.length).toBeLessThanOrEqual(most);
        return [head, tail].every(part => Buffer.from(part).toString() === part);
      }),
    );
  });
});

describe('two streams', () => {
  it.each([
    [10, 10, 100, [10, 10]],
    [10, 1000, 100, [10, 90]],
    [1000, 10, 100, [90, 10]],
    [1000, 1000, 100, [50, 50]],
  ] as const)('of %i and %i share %i characters', (first, second, most, shares) => {
    expect(sharesOf(first, second, most)).toEqual(shares);
  });
});
