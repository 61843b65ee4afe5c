// Paths in others, held against what node itself says of the way between them.

import { isAbsolute, relative } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isWithin } from './file-identity.ts';

const segment = fc.constantFrom('a', 'ab', 'b', '.', '..', '', '.a', '..a', 'a.', ' ', '…');
const path = fc
  .tuple(fc.constantFrom('/', '', '//', './'), fc.array(segment, { maxLength: 4 }), fc.constantFrom('', '/'))
  .map(([first, segments, last]) => first + segments.join('/') + last)
  .filter(text => text !== '');

describe('a path in another', () => {
  it('is one by its segments, and not by how its name begins', () => {
    expect(isWithin('/a/b', '/a')).toBe(true);
    expect(isWithin('/a', '/a')).toBe(true);
    expect(isWithin('/ab', '/a')).toBe(false);
    expect(isWithin('/a', '/a/b')).toBe(false);
    expect(isWithin('/a/../b', '/a')).toBe(false);
    expect(isWithin('/a/..b', '/a')).toBe(true);
    expect(isWithin('/anything', '/')).toBe(true);
  });

  it('is what the way from the one to the other says, however both are written', () => {
    fc.assert(
      fc.property(path, path, (one, other) => {
        const way = relative(other, one);
        expect(isWithin(one, other)).toBe(way === '' || (!/^\.\.(?:\/|$)/.test(way) && !isAbsolute(way)));
      }),
      { numRuns: 3000 },
    );
  });
});
