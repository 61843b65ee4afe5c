// What engines and registries say when a pull fails, and what it means. The words are theirs, recorded.

import { describe, expect, it } from 'vitest';
import { EngineError } from '../engine/error.ts';
import { remedyFor, shownReason, understand, withoutSecrets } from './pull-failure.ts';

const said = (engineMessage: string, status?: number) =>
  new EngineError({
    kind: 'status',
    operation: 'POST /images/create',
    detail: 'x',
    engineMessage,
    ...(status === undefined ? {} : { status }),
  });

describe('a failed pull', () => {
  it.each([
    ['Get "http://127.0.0.1:5000/v2/": dial tcp 127.0.0.1:5000: connect: connection refused', 500, 'unreachable'],
    ['error pulling image configuration: download failed after attempts=6: unexpected EOF', undefined, 'unreachable'],
    [
      'Get "https://x/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded)',
      500,
      'unreachable',
    ],
    ['dial tcp: lookup nowhere.invalid: no such host', 500, 'unreachable'],
    ['received unexpected HTTP status: 503 Service Unavailable', 500, 'unreachable'],
    ['read tcp 127.0.0.1:1->127.0.0.1:2: read: connection reset by peer', undefined, 'unreachable'],
    ['Get "http://127.0.0.1:5000/v2/x/manifests/1": no basic auth credentials', 500, 'unauthorised'],
    ['unauthorized: authentication required', 500, 'unauthorised'],
    [
      "pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied",
      404,
      'unauthorised',
    ],
    ['manifest for 127.0.0.1:5000/x:9 not found: manifest unknown: manifest unknown', 404, 'absent'],
    ['repository 127.0.0.1:5000/none not found: name unknown: repository name not known to registry', 404, 'absent'],
    ['filesystem layer verification failed for digest sha256:abc', undefined, 'damaged'],
    ['writing blob: storing blob to file "x": Digest did not match, expected sha256:a, got sha256:b', 500, 'damaged'],
    ['Download config.json digest sha256:a does not match expected sha256:b', 500, 'damaged'],
    ['Source image rejected: Manifest does not match provided manifest digest sha256:a', 500, 'damaged'],
    ['write /var/lib/docker/tmp/x: no space left on device', undefined, 'other'],
    ['toomanyrequests: You have reached your pull rate limit', 500, 'other'],
  ] as const)('%s', (message, status, kind) => {
    expect(understand(said(message, status)).kind).toBe(kind);
  });

  it.each([
    ['timeout', 'unreachable'],
    ['disconnected', 'unreachable'],
    ['protocol', 'other'],
  ] as const)('of the connection to the engine: %s is %s', (kind, meaning) => {
    expect(understand(new EngineError({ kind, operation: 'x', detail: 'it went quiet' })).kind).toBe(meaning);
  });

  it.each(['access ', 'requested access ', 'digest ', 'does not match the ', 'status code: '])(
    'is understood at once, however often a registry says “%s”',
    words => {
      const began = performance.now();
      expect(understand(said(words.repeat(300_000 / words.length))).kind).toBe('other');
      expect(performance.now() - began).toBeLessThan(500);
    },
  );

  const ASKED = { registry: 'ghcr.io', hadLogin: false, byDigest: false };
  it('tells who named a digest to look at that, and who named a tag at the tag', () => {
    expect(remedyFor('absent', { ...ASKED, byDigest: true })).toMatch(/name and the digest.*an image’s id/);
    expect(remedyFor('absent', ASKED)).toContain('name and the tag');
  });

  it('tells who has no credentials to log in, and who has some to renew them', () => {
    expect(remedyFor('unauthorised', { ...ASKED, hadLogin: false })).toContain(
      'Log in once with `docker login ghcr.io`',
    );
    expect(remedyFor('unauthorised', { ...ASKED, hadLogin: true })).toContain('did not take the credentials');
  });
});

describe('a secret', () => {
  it('is taken out of what is shown, as it is and in base64', () => {
    const secret = 'hunter2-hunter2';
    const text = `a ${secret} b ${Buffer.from(secret).toString('base64')} c`;
    expect(withoutSecrets(text, [secret])).toBe('a [redacted] b [redacted] c');
    expect(withoutSecrets('unchanged', [''])).toBe('unchanged');
  });

  // A name whose length does not happen to put the password at a boundary of base64.
  const login = { username: 'me34', password: 'correct horse "battery"', serveraddress: 'reg.example:5000' };
  const pair = `${login.username}:${login.password}`;
  const base64 = (text: string): string => Buffer.from(text).toString('base64');

  it.each([
    ['as it is', login.password],
    ['in the pair of basic authentication', base64(pair)],
    ['in that pair without its padding', base64(pair).replace(/=+$/, '')],
    ['in an address', encodeURIComponent(login.password)],
    ['in JSON', JSON.stringify({ password: login.password })],
    ['in what the engine is handed', Buffer.from(JSON.stringify(login)).toString('base64url')],
  ])('that is repeated %s is not in what is shown', (_, repeated) => {
    const shown = shownReason(`denied: you said ${repeated} and that is wrong`, login);
    expect(shown).toMatch(/^denied: you said .*\[redacted\].* and that is wrong$/);
    for (const secret of ['battery', base64(pair).slice(0, 16), base64(pair).slice(16, 30)])
      expect(shown).not.toContain(secret);
  });

  it('is taken out before a long text is cut: half of one would stay', () => {
    const token = 'x'.repeat(64) + 'y'.repeat(64);
    const reason = `${'.'.repeat(600 - 32)}${token}`;
    expect(shownReason(reason, { identitytoken: token, serveraddress: 'r' })).not.toContain('x');
    // However many of them there are before it.
    expect(shownReason(token.repeat(100), { identitytoken: token, serveraddress: 'r' })).not.toContain('x');
    expect(shownReason('z'.repeat(10_000), null)).toHaveLength(600);
  });
});
