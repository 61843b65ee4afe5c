// The order of levels is the order of strength.

import { describe, expect, it } from 'vitest';
import { isAtLeast } from './levels.ts';

describe('isAtLeast', () => {
  it.each([
    ['gvisor', 'docker', true],
    ['docker', 'docker', true],
    ['bubblewrap', 'docker', false],
    ['none', 'ulimit', false],
  ] as const)('%s against %s: %s', (level, floor, expected) => {
    expect(isAtLeast(level, floor)).toBe(expected);
  });
});
