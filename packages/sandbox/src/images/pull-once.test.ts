// One pull for all callers: what waiting costs of its deadline, and a throwing listener that affects no other. The store is a
// stand-in, so that a pull takes exactly as long as the test sets.

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { PullProgress } from '../contract/images.ts';
import type { LogFields } from '../contract/ports.ts';
import type { ImageFacts } from '../contract/spec.ts';
import type { ImageStore, PullRequest } from '../isolation/backend.ts';
import { PulledImages, SharedWork } from './pulls.ts';
import type { PullOutcome } from './pulls.ts';
import { pullShared } from './pull-once.ts';
import type { PullingHost } from './pull-once.ts';
import { Locks } from '../lifecycle/lock.ts';
import { Bus, Telemetry } from '../records/telemetry.ts';
import { systemClock } from '../lifecycle/clock.ts';

const REFERENCE = 'reg.example:5000/a:1';
const TIMEOUT_MS = 15_000;
const uid = process.getuid?.() ?? 0;

let top = '';
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'pull-once-'));
  for (const name of ['home', 'workspace']) mkdirSync(join(top, name));
  // No configuration of the user who runs the tests.
  vi.stubEnv('DOCKER_CONFIG', join(top, 'home'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true, force: true });
});

const facts: ImageFacts = {
  reference: REFERENCE,
  id: `sha256:${'1'.repeat(64)}`,
  digest: `sha256:${'2'.repeat(64)}`,
  environment: [],
  volumes: [],
  repositoryDigests: [],
};

const figures: PullProgress = {
  reference: REFERENCE,
  layers: [],
  bytes: 1,
  totalBytes: null,
  bytesPerSecond: null,
  secondsLeft: null,
  attempt: 1,
};

function stored(pull: (request: PullRequest) => Promise<void>): ImageStore {
  let there = false;
  return {
    engineId: () => Promise.resolve('engine'),
    find: () => Promise.resolve(there ? facts : null),
    pull: async request => {
      await pull(request);
      there = true;
    },
    list: () => Promise.resolve([]),
    diskBytes: () => Promise.resolve(null),
    remove: () => Promise.resolve(),
  };
}

/** A host as another process would be one: of the same user, with nothing in memory that is shared. */
class OneHost {
  readonly lines: { level: string; message: string; fields: LogFields }[] = [];
  readonly index: PulledImages;
  readonly #host: PullingHost;

  constructor() {
    const write =
      (level: string) =>
      (fields: LogFields, message: string): void =>
        void this.lines.push({ level, message, fields });
    const logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
    const locks = new Locks({ directory: join(top, 'run'), uid, clock: systemClock });
    this.index = new PulledImages(join(top, 'state'), uid, locks);
    this.#host = {
      audit: { append: () => Promise.resolve({ seq: 1, hash: '' }) },
      bus: new Bus(() => undefined),
      closing: new AbortController().signal,
      directories: { home: join(top, 'home') },
      keep: work => void work.catch(() => undefined),
      pulls: {
        locks,
        index: this.index,
        shared: new SharedWork<PullProgress, PullOutcome>(),
      },
      session: { id: 'test' },
      settings: { pullTimeoutMs: TIMEOUT_MS },
      telemetry: new Telemetry({ clock: systemClock, logger, session: 'test' }),
      uid,
      workspace: join(top, 'workspace'),
      workspaceNamed: true,
    };
  }

  pull(store: ImageStore, onProgress?: (progress: PullProgress) => void): Promise<PullOutcome> {
    const wanted = { correlationId: 'c', onProgress };
    const pull = { host: this.#host, store, reference: REFERENCE, reason: 'it is trusted', wanted };
    return pullShared(pull, AbortSignal.timeout(20_000));
  }

  said(message: string): boolean {
    return this.lines.some(line => line.message === message);
  }
}

describe('a pull for which another process was waited', () => {
  it('has what is left of its deadline, and says that it waits', async () => {
    let fail: (() => void) | null = null;
    const first = new OneHost();
    const failing = first.pull(stored(() => new Promise((_, reject) => (fail = () => reject(new Error('gone'))))));
    failing.catch(() => undefined);
    await expect.poll(() => fail).not.toBeNull();
    const asked: PullRequest[] = [];
    const second = new OneHost();
    const began = performance.now();
    const pulling = second.pull(stored(async request => void asked.push(request)));
    await expect.poll(() => second.said('waiting for another process that is pulling the image')).toBe(true);
    expect(asked).toEqual([]);
    await new Promise<void>(resolve => void setTimeout(resolve, 500));
    const waited = performance.now() - began;
    end(fail);
    await expect(failing).rejects.toThrow('gone');
    await expect(pulling).resolves.toMatchObject({ changed: true });
    expect(asked).toMatchObject([{ deadlineMs: TIMEOUT_MS }]);
    expect(asked[0]?.leftMs).toBeLessThanOrEqual(TIMEOUT_MS - waited);
    expect(asked[0]?.leftMs).toBeGreaterThan(0);
    // The control: a caller that does not wait has all of it.
    expect(first.said('waiting for another process that is pulling the image')).toBe(false);
  });
});

it('another try is announced with the reason and how long it is waited for', async () => {
  const host = new OneHost();
  const retry = { attempt: 1, mostAttempts: 4, reason: 'connection refused', pauseMs: 1500 };
  await host.pull(stored(async ({ onRetry }) => onRetry?.(retry)));
  expect(host.said(`the pull of ${REFERENCE} was interrupted; acode retries in 1.5 s (attempt 2 of 4)`)).toBe(true);
});

it('a registry that cannot be reached is one warning, however often it is tried', async () => {
  const host = new OneHost();
  const unreached = { registry: 'docker.io', fault: 'network is unreachable' };
  const retry = { mostAttempts: 4, reason: 'dial tcp: network is unreachable', pauseMs: 1500, unreached };
  await host.pull(stored(async ({ onRetry }) => [1, 2, 3].forEach(attempt => onRetry?.({ ...retry, attempt }))));
  expect(host.lines.filter(({ level }) => level === 'warn').map(({ message }) => message)).toEqual([
    `docker.io cannot be reached to pull ${REFERENCE} (network is unreachable); acode tries 3 more times`,
  ]);
  // The control: the further attempts are in the log.
  expect(
    host.said(`docker.io cannot be reached to pull ${REFERENCE} (network is unreachable); acode tries once more`),
  ).toBe(true);
});

describe('a tag that a pull gave to an image that acode did not pull', () => {
  const already = { tags: ['theirs:1'], digests: [], sizeBytes: 1, createdAt: '', containers: 0 };

  it('is acode’s, and the image is not', async () => {
    const host = new OneHost();
    const store = stored(() => Promise.resolve());
    await host.pull({ ...store, list: () => Promise.resolve([{ ...already, id: facts.id }]) });
    await expect(host.index.on('engine')).resolves.toMatchObject([{ brought: false, named: true }]);
  });

  it('is not acode’s where it was there before', async () => {
    const host = new OneHost();
    const store = stored(() => Promise.resolve());
    await host.pull({
      ...store,
      find: () => Promise.resolve(facts),
      list: () => Promise.resolve([{ ...already, id: facts.id }]),
    });
    await expect(host.index.on('engine')).resolves.toMatchObject([{ brought: false, named: false }]);
  });
});

describe('an image that the engine says it pulled', () => {
  it('and does not have is an error, and is not noted down as pulled', async () => {
    const host = new OneHost();
    const store = stored(() => Promise.resolve());
    await expect(host.pull({ ...store, find: () => Promise.resolve(null) })).rejects.toMatchObject({
      code: 'ACODE-SBX-002',
      message: expect.stringContaining('does not have it') as string,
    });
    await expect(host.index.on('engine')).resolves.toEqual([]);
    // The control: one that it has is noted down.
    await host.pull(store);
    await expect(host.index.on('engine')).resolves.toMatchObject([{ reference: REFERENCE, id: facts.id }]);
  });
});

describe('a listener to the progress of a pull', () => {
  it('that throws ends neither the pull nor the figures of the others, and is logged', async () => {
    const host = new OneHost();
    const heard: number[] = [];
    const store = stored(async ({ onProgress }) => {
      await new Promise<void>(resolve => void setTimeout(resolve, 20));
      onProgress?.(figures);
      onProgress?.({ ...figures, bytes: 2 });
    });
    const throwing = host.pull(store, () => {
      throw new Error('a listener of the caller’s');
    });
    const listening = host.pull(store, ({ bytes }) => void heard.push(bytes));
    await expect(Promise.all([throwing, listening])).resolves.toHaveLength(2);
    expect(heard).toEqual([1, 2]);
    expect(host.lines).toContainEqual(
      expect.objectContaining({
        level: 'error',
        message: 'a listener to the progress of a pull failed',
        fields: expect.objectContaining({ reason: 'Error: a listener of the caller’s' }) as unknown,
      }),
    );
  });
});

function end(action: (() => void) | null): void {
  action?.();
}
