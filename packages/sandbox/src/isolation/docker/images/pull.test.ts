// A pull with an engine that is a stand-in: what a registry repeats, and time, cannot be had otherwise.

import { describe, expect, it } from 'vitest';
import type { Clock } from '../../../contract/ports.ts';
import type { PullRequest, PullRetry } from '../../backend.ts';
import { EngineError } from '../engine/error.ts';
import type { PullOptions } from '../engine/images.ts';
import { pullImage } from './pull.ts';

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
