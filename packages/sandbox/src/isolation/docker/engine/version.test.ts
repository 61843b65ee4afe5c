// Shows which API version is used with which engine.
import { describe, expect, it } from 'vitest';
import { type ApiVersion, atLeast, negotiate } from './version.ts';

describe('negotiate', () => {
  it.each([
    ['1.41', '1.41'],
    ['1.44', '1.44'],
    ['1.51', '1.51'],
    ['1.52', '1.51'],
    ['1.100', '1.51'],
    ['2.0', '1.51'],
  ])('with an engine that offers %s uses %s', (offered, used) => {
    expect(negotiate(offered, 'ping')).toBe(used);
  });

  it.each(['1.40', '1.9', '0.99', undefined, '', 'latest', '1', '1.41.0', ['1.41'], '99999999999.1'])(
    'refuses %j',
    offered => {
      expect(() => negotiate(offered, 'ping')).toThrow(
        expect.objectContaining({ kind: 'protocol', operation: 'ping' }),
      );
    },
  );
});

describe('atLeast', () => {
  it.each<[ApiVersion, ApiVersion, boolean]>([
    ['1.44', '1.44', true],
    ['1.43', '1.44', false],
    ['1.100', '1.44', true],
    ['2.0', '1.44', true],
    ['1.44', '2.0', false],
  ])('%s at least %s: %s', (version, minimum, expected) => {
    expect(atLeast(version, minimum)).toBe(expected);
  });
});
