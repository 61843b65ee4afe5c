// What engines and registries say when a pull fails, and what it means. The words are theirs, recorded.

import { describe, expect, it } from 'vitest';
import { EngineError } from './engine/error.ts';
import { remedyFor, understand, withoutSecrets } from './pull-failure.ts';

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

  it('tells who has no credentials to log in, and who has some to renew them', () => {
    expect(remedyFor('unauthorised', 'ghcr.io', false)).toContain('Log in once with `docker login ghcr.io`');
    expect(remedyFor('unauthorised', 'ghcr.io', true)).toContain('did not take the credentials');
  });
});

describe('a secret', () => {
  it('is taken out of what is shown, as it is and in base64', () => {
    const secret = 'hunter2-hunter2';
    const text = `a ${secret} b ${Buffer.from(secret).toString('base64')} c`;
    expect(withoutSecrets(text, [secret])).toBe('a [redacted] b [redacted] c');
    expect(withoutSecrets('unchanged', [''])).toBe('unchanged');
  });
});
