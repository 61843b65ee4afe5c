// No secret that has a known shape or a telling name survives redaction; ordinary text does.

import { describe, expect, it } from 'vitest';
import { redact, redactArguments, redactFields } from './redact.ts';

describe('redact', () => {
  it.each([
    ['a GitHub token', `echo ghp_${'a'.repeat(36)}`, 'ghp_a'],
    ['a model key', `sk-ant-api03-${'x'.repeat(40)}`, 'xxxx'],
    ['an AWS key id', 'AKIAIOSFODNN7EXAMPLE', 'AKIA'],
    ['an assignment', 'API_TOKEN=abc123 make', 'abc123'],
    ['a flag with =', 'curl --password=hunter2', 'hunter2'],
    ['a flag with a space', 'mysql --password hunter2', 'hunter2'],
    ['JSON', '{"client_secret": "hunter2"}', 'hunter2'],
    ['a bearer header', 'Authorization: Bearer abcdef123456', 'abcdef'],
    ['user info in a URL', 'git clone https://me:hunter2@example.org/x', 'hunter2'],
    ['a private key', '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----', 'MIIE'],
    ['a JSON web token', `eyJhbGciOiJI.${'b'.repeat(20)}.sig`, 'bbbb'],
  ])('hides %s', (_, text, secret) => {
    expect(redact(text)).not.toContain(secret);
    expect(redact(text)).toContain('[redacted]');
  });

  it.each(['npm test -- --watch=false', 'echo token', 'git clone https://example.org/x', 'cat secrets.md', 'sk-1'])(
    'keeps %s',
    text => {
      expect(redact(text)).toBe(text);
    },
  );
});

describe('redaction of long text', () => {
  it.each([
    ['letters', 'x'],
    ['dashes', '-'],
    ['slashes and colons', 'a:/'],
    ['spaces', ' '],
    ['equals', '='],
    ['token=', 'token='],
    ['token', 'token'],
    ['dots', 'a.'],
    ['almost a web token', 'eyJaaaaaaaa-'],
    ['almost a key', '-----BEGIN PRIVATE KEY-----'],
    ['almost an address', 'a://b:'],
    ['bearers', 'bearer '],
  ])('takes time in proportion to its length: %s', (_, unit) => {
    const before = performance.now();
    redact(unit.repeat(200_000));
    expect(performance.now() - before).toBeLessThan(2000);
  });
});

describe('what is too long to be read', () => {
  it('is cut, and says how long it was', () => {
    expect(redact('x'.repeat(5000))).toMatch(/^x{4096}… \(5000 characters\)$/);
    expect(redactArguments(Array.from({ length: 100 }, () => 'x')).at(-1)).toBe('… (100 words)');
  });
});

describe('redactArguments', () => {
  it('hides the argument after a secret flag', () => {
    expect(redactArguments(['tool', '--api-key', 'hunter2', '--verbose', 'x'])).toEqual([
      'tool',
      '--api-key',
      '[redacted]',
      '--verbose',
      'x',
    ]);
  });
});

describe('redactFields', () => {
  it('goes through objects and lists, by key and by shape', () => {
    const error = new Error('kept');
    expect(
      redactFields({
        password: 'p',
        nested: [{ url: 'x://u:pw@h' }],
        argv: ['--token', 't'],
        count: 1,
        none: null,
        error,
      }),
    ).toEqual({
      password: '[redacted]',
      nested: [{ url: 'x://u:[redacted]@h' }],
      argv: ['--token', '[redacted]'],
      count: 1,
      none: null,
      error,
    });
  });
});
