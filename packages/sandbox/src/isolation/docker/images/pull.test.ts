// A pull with an engine that is a stand-in: what a registry repeats, and time, cannot be had otherwise.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../contract/ports.ts';
import type { PullRequest, PullRetry } from '../../backend.ts';
import type { PullOptions } from '../engine/images.ts';
import { EngineError } from '../engine/protocol.ts';
import {
  advance,
  noProgress,
  pullImage,
  type PullState,
  remedyFor,
  shownReason,
  understand,
  viewOf,
  withoutSecrets,
} from './pull.ts';

// A clock on which a second is a millisecond.
const hurried: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now() * 1000,
  after: (ms, action) => {
    const timer = setTimeout(action, ms / 1000);
    return () => clearTimeout(timer);
  },
};

const login = { username: 'someone', password: 'correct-horse-battery', serveraddress: 'reg.example:5000' };
const BASIC = Buffer.from(`${login.username}:${login.password}`).toString('base64');
const retry = { attempts: 1, baseMs: 1, factor: 1 };

function pull(answer: (options: PullOptions) => Promise<void>, more: Partial<PullRequest> = {}) {
  const from = {
    clock: hurried,
    retry,
    engine: { images: { pull: (_: string, options: PullOptions) => answer(options) } },
  };
  const request = {
    reference: 'reg.example:5000/a:1',
    shownAs: 'reg.example:5000/a:1',
    registry: 'reg.example:5000',
    login,
    deadlineMs: 300_000,
    ...more,
  };
  return pullImage(from, request, AbortSignal.timeout(30_000));
}

const fails = (engineMessage: string) => (): Promise<void> =>
  Promise.reject(new EngineError({ kind: 'status', operation: 'x', detail: engineMessage, engineMessage }));

// Until it is given up.
const hangs = ({ signal }: PullOptions): Promise<void> =>
  new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new Error('aborted'))));

function everythingOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return `${error.stack} ${JSON.stringify(error)} ${error.cause === undefined ? '' : everythingOf(error.cause)}`;
}

describe('a registry that repeats what it was told', () => {
  it('is quoted without the credentials, in the error and in what is said of another try', async () => {
    const said: string[] = [];
    const onRetry = ({ reason }: PullRetry): void => void said.push(reason);
    const words = `unexpected EOF after Authorization: Basic ${BASIC} (${login.password})`;
    const error: unknown = await pull(fails(words), { onRetry }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: 'ACODE-SBX-002', context: { kind: 'unreachable' } });
    expect(said).toEqual(['unexpected EOF after Authorization: Basic [redacted] ([redacted])']);
    expect(everythingOf(error)).toContain('Basic [redacted]');
    for (const secret of [BASIC, login.password]) expect(everythingOf(error)).not.toContain(secret);
  });

  it('is not quoted at length, in the error or in what is said of another try', async () => {
    const said: string[] = [];
    const onRetry = ({ reason }: PullRetry): void => void said.push(reason);
    const error: unknown = await pull(fails(`unexpected EOF ${'x'.repeat(500_000)}`), { onRetry }).catch(
      (thrown: unknown) => thrown,
    );
    expect(said).toHaveLength(1);
    expect(said[0]).toHaveLength(600);
    expect(error).toMatchObject({ context: { reason: said[0] } });
  });
});

describe('a registry that cannot be reached', () => {
  const DIAL =
    'Get "https://registry.example/v2/": dial tcp: lookup registry.example on 10.0.0.53:53: dial udp 10.0.0.53:53: connect: network is unreachable';

  it('is named with the cause in few words and the number of attempts; the engine’s words are the cause', async () => {
    const said: PullRetry[] = [];
    const error: unknown = await pull(fails(DIAL), { onRetry: retried => void said.push(retried) }).catch(
      (thrown: unknown) => thrown,
    );
    const unreached = { registry: 'reg.example:5000', fault: 'network is unreachable' };
    expect(said).toMatchObject([{ attempt: 1, mostAttempts: 2, unreached }]);
    expect(error).toMatchObject({
      message:
        'reg.example:5000/a:1 could not be pulled: this machine cannot reach reg.example:5000 (network is unreachable; tried 2 times).',
      context: { kind: 'unreachable', unreached: { ...unreached, attempts: 2 } },
      cause: { context: { reason: DIAL } },
    });
  });

  it.each([
    ['dial tcp: lookup nowhere.invalid: no such host', 'its name could not be resolved'],
    ['proxyconnect tcp: dial tcp 127.0.0.1:3128: connect: connection refused', 'through its proxy: connection refused'],
    ['net/http: request canceled while waiting for connection (Client.Timeout exceeded)', 'no answer in time'],
    ['dial tcp 10.0.0.1:443: connect: no route to host', 'no route to host'],
    // Not a connection that failed: quoted as it is.
    ['unexpected EOF', undefined],
    ['received unexpected HTTP status: 503 Service Unavailable', undefined],
  ])('%s is %s', (message, fault) => {
    expect(understand(said(message, 500)).fault).toBe(fault);
  });

  it('is not the matter once a layer arrived: that pull was interrupted', async () => {
    const retries: PullRetry[] = [];
    const broken = ({ onProgress }: PullOptions): Promise<void> => {
      onProgress?.({ status: 'Downloading', id: 'a', current: 1, total: 9 });
      return fails(DIAL)();
    };
    await expect(pull(broken, { onRetry: retried => void retries.push(retried) })).rejects.toThrow(DIAL);
    expect(retries).toHaveLength(1);
    expect(retries[0]?.unreached).toBeUndefined();
  });
});

describe('the deadline of a pull', () => {
  it('is for all its tries, and said as it was set', async () => {
    const began = performance.now();
    await expect(pull(hangs)).rejects.toThrow(/it was not done in 300 s \(given up after 3\d\d s\)/);
    expect(performance.now() - began).toBeGreaterThan(290);
  });

  it('is over sooner where others were waited for', async () => {
    const began = performance.now();
    await expect(pull(hangs, { leftMs: 20_000 })).rejects.toThrow(
      /it was not done in 300 s \(given up after 3\d\d s\)/,
    );
    expect(performance.now() - began).toBeLessThan(200);
    await expect(pull(hangs, { leftMs: 0 })).rejects.toMatchObject({ context: { kind: 'unreachable' } });
  });
});

// What engines and registries say when a pull fails, and what it means. The words are theirs, recorded.

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
  const account = { username: 'me34', password: 'correct horse "battery"', serveraddress: 'reg.example:5000' };
  const pair = `${account.username}:${account.password}`;
  const base64 = (text: string): string => Buffer.from(text).toString('base64');

  it.each([
    ['as it is', account.password],
    ['in the pair of basic authentication', base64(pair)],
    ['in that pair without its padding', base64(pair).replace(/=+$/, '')],
    ['in an address', encodeURIComponent(account.password)],
    ['in JSON', JSON.stringify({ password: account.password })],
    ['in what the engine is handed', Buffer.from(JSON.stringify(account)).toString('base64url')],
  ])('that is repeated %s is not in what is shown', (_, repeated) => {
    const shown = shownReason(`denied: you said ${repeated} and that is wrong`, account);
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

// What an engine’s reports come to, step by step: recorded from real pulls, with the time told.

const report = (status: string, id?: string, current?: number, total?: number) => ({ status, id, current, total });

function after(reports: readonly (readonly [atMs: number, ...Parameters<typeof report>])[]): PullState {
  return reports.reduce((state, [atMs, ...words]) => advance(state, report(...words), atMs), noProgress('node:20', 1));
}

describe('a pull', () => {
  it('without a report has no layers, no size and no speed', () => {
    expect(viewOf(noProgress('node:20', 2), 1000)).toEqual({
      reference: 'node:20',
      attempt: 2,
      layers: [],
      bytes: 0,
      totalBytes: null,
      bytesPerSecond: null,
      secondsLeft: null,
    });
  });

  it('has a size once that of every layer is known, and a time left from then on', () => {
    const first = after([
      [0, 'Pulling from library/node', '20'],
      [0, 'Pulling fs layer', 'a'],
      [0, 'Pulling fs layer', 'b'],
      [0, 'Already exists', 'c'],
      [0, 'Downloading', 'a', 0, 1000],
      [1000, 'Downloading', 'a', 500, 1000],
    ]);
    expect(viewOf(first, 1000)).toMatchObject({ bytes: 500, totalBytes: null, bytesPerSecond: 500, secondsLeft: null });
    const then = advance(first, report('Downloading', 'b', 500, 3000), 2000);
    expect(viewOf(then, 2000)).toMatchObject({ bytes: 1000, totalBytes: 4000, bytesPerSecond: 500, secondsLeft: 6 });
  });

  it('ends with every layer complete and every byte counted', () => {
    const state = after([
      [0, 'Pulling fs layer', 'a'],
      [10, 'Downloading', 'a', 10, 1000],
      [20, 'Verifying Checksum', 'a'],
      [21, 'Download complete', 'a'],
      [30, 'Extracting', 'a', 32, 1000],
      [40, 'Pull complete', 'a'],
      [41, `Digest: sha256:${'a'.repeat(64)}`],
      [42, 'Status: Downloaded newer image for node:20'],
    ]);
    expect(viewOf(state, 50)).toMatchObject({
      layers: [{ id: 'a', state: 'complete', bytes: 1000, totalBytes: 1000 }],
      bytes: 1000,
      totalBytes: 1000,
    });
    expect(state.digest).toBe(`sha256:${'a'.repeat(64)}`);
  });

  it('takes the bytes of extracting for what they are: none that are downloaded', () => {
    const state = after([
      [0, 'Downloading', 'a', 900, 1000],
      [10, 'Download complete', 'a'],
      [20, 'Extracting', 'a', 100, 1000],
    ]);
    expect(viewOf(state, 20)).toMatchObject({ bytes: 1000, layers: [{ state: 'extracting', bytes: 1000 }] });
  });

  it('shows a layer that broke off, and its speed is of the last seconds only', () => {
    const state = after([
      [0, 'Downloading', 'a', 0, 10_000],
      [1000, 'Downloading', 'a', 5000, 10_000],
      [1100, 'Retrying in 5 seconds', 'a'],
    ]);
    expect(viewOf(state, 1100).layers[0]).toMatchObject({ state: 'retrying', bytes: 5000, totalBytes: 10_000 });
    expect(viewOf(state, 9000)).toMatchObject({ bytesPerSecond: null, secondsLeft: null });
  });

  it('that begins anew has no speed below nothing', () => {
    const state = after([
      [0, 'Downloading', 'a', 5000, 10_000],
      [1000, 'Downloading', 'a', 100, 10_000],
    ]);
    expect(viewOf(state, 1000).bytesPerSecond).toBeNull();
  });

  it('keeps its figures sound whatever is reported', () => {
    const words = fc.constantFrom(
      'Pulling fs layer',
      'Waiting',
      'Downloading',
      'Verifying Checksum',
      'Download complete',
      'Extracting',
      'Pull complete',
      'Already exists',
      'Retrying in 3 seconds',
      'something new',
    );
    const line = fc.tuple(
      words,
      fc.constantFrom('a', 'b', 'c', undefined),
      fc.option(fc.integer(), { nil: undefined }),
      fc.option(fc.integer(), { nil: undefined }),
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 60 }), lines => {
        const state = after(lines.map((one, at) => [at * 50, ...one] as const));
        const view = viewOf(state, lines.length * 50);
        expect(view.bytes).toBeGreaterThanOrEqual(0);
        for (const figure of [view.totalBytes, view.bytesPerSecond, view.secondsLeft])
          expect(figure === null || (Number.isFinite(figure) && figure >= 0)).toBe(true);
        expect(state.samples.length).toBeLessThanOrEqual(110);
      }),
    );
  });

  it('does not grow without end where an engine names layers without end', () => {
    let state = noProgress('x', 1);
    for (let n = 0; n < 2000; n += 1) state = advance(state, report('Downloading', String(n), 1, 1), n);
    expect(state.layers.size).toBe(512);
  });
});
