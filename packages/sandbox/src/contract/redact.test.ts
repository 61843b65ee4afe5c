// No secret that has a known shape or a telling name survives redaction; ordinary text does.

import fc from 'fast-check';
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
    ['JSON with a quote in it', String.raw`{"client_secret": "a\"hunter2"}`, 'hunter2'],
    ['a quoted value of several words', 'export DB_PASS="two hunter2 words"; make', 'hunter2'],
    ['a flag with a quoted value', "tool --passphrase 'two hunter2 words' x", 'hunter2'],
    ['a short name', 'MYSQL_PWD=hunter2 mysql', 'hunter2'],
    ['a header without a scheme', 'curl -H "Authorization: hunter2" x', 'hunter2'],
    ['a header with another scheme', "curl -H 'Proxy-Authorization: Token token_is=hunter2'", 'hunter2'],
    ['a cookie', 'curl -H "Cookie: session=hunter2; a=b" x', 'hunter2'],
    ['the password of curl', 'curl -u me:hunter2 https://example.org', 'hunter2'],
    ['a token as the user of a URL', `git clone https://${'hunter2'.repeat(4)}@example.org/x`, 'hunter2'],
    ['a bearer header', 'Authorization: Bearer abcdef123456', 'abcdef'],
    ['user info in a URL', 'git clone https://me:hunter2@example.org/x', 'hunter2'],
    ['a private key', '-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----', 'MIIE'],
    ['a JSON web token', `eyJhbGciOiJI.${'b'.repeat(20)}.sig`, 'bbbb'],
  ])('hides %s', (_, text, secret) => {
    expect(redact(text)).not.toContain(secret);
    expect(redact(text)).toContain('[redacted]');
  });

  it.each([
    'npm test -- --watch=false',
    'echo token',
    'git clone https://example.org/x',
    'git clone ssh://git@example.org/x',
    'cat secrets.md',
    'sk-1',
    'PWD=/home/me compass=north bypass=1',
    'docker run --user 1000:1000 -u 0:0 x',
    'the cookie jar',
  ])('keeps %s', text => {
    expect(redact(text)).toBe(text);
  });
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
    ['passes', 'pass'],
    ['headers', 'authorization: '],
    ['cookies', 'cookie:a'],
    ['flags for users', '-u a:'],
    ['quotes', 'token="'],
    ['quotes and backslashes', 'token="\\'],
    ['spaces after names', 'token          '],
    ['users of addresses', 'a://bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb'],
  ])('takes time in proportion to its length: %s', (_, unit) => {
    // With the square of its length, this would take longer than a test may.
    expect(redact(unit.repeat(200_000)).length).toBeLessThan(5000);
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

describe('a word that is an assignment as a whole', () => {
  it.each([
    ['--password=two hunter2 words', '--password=[redacted]'],
    ['API_TOKEN=hunter2;hunter2&hunter2', 'API_TOKEN=[redacted]'],
    ['-Dpassword=hunter2', '-Dpassword=[redacted]'],
  ])('loses its whole value: %s', (word, shown) => {
    expect(redactArguments(['tool', word])).toEqual(['tool', shown]);
  });

  it('and the pair after --user loses its second half, unless it is two numbers', () => {
    expect(redactArguments(['curl', '-u', 'me:hunter2 x'])).toEqual(['curl', '-u', 'me:[redacted]']);
    expect(redactArguments(['docker', '--user', '1000:1000'])).toEqual(['docker', '--user', '1000:1000']);
  });
});

describe('redactFields', () => {
  it('walks objects and lists, by key and by shape', () => {
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

  // What is searched thoroughly, because something at its beginning is suspect, comes to the same.
  it('leaves nothing out of a text that seems to have no secret', () => {
    const piece = fc.constantFrom(
      ...['ghp_', 'github_pat_', 'glpat-', 'sk-', 'rk-', 'AKIA', 'ASIA', 'xoxb-', 'npm_', 'eyJ', '.', '-----BEGIN '],
      ...[
        'RSA PRIVATE KEY-----',
        'Cookie: ',
        'authorization:',
        'Bearer ',
        'basic ',
        'a://',
        ':',
        '@',
        '-u ',
        '--user=',
      ],
      ...[
        '--proxy-user ',
        'PASSWD',
        'db_pass',
        '_pwd',
        'Secret',
        'tOken',
        'api-key',
        'credential',
        '=',
        ' ',
        '"',
        "'",
        '--',
      ],
      ...['x', '7', 'A'.repeat(40), 'b0'.repeat(20), '\n', 'compass', 'word', '-', '_', ','],
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), pieces => {
        const text = pieces.join('');
        expect(redact(`://\n${text}`)).toBe(`://\n${redact(text)}`);
      }),
      { numRuns: 20_000 },
    );
  });
});
