// Warm pool: which commands can use a pre-started sandbox, and how many sandboxes the pool holds.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Planned } from './host.ts';
import { openPool, poolLimits, warmthOf, whyCold } from './warm.ts';
import type { PoolHost } from './warm.ts';

const plain = {
  level: 'docker',
  ports: [],
  caches: [],
  network: { kind: 'none' },
  mounts: [],
} as unknown as SandboxSpec;

describe('whyCold', () => {
  it('lets every command have one that asks for nothing of its own', () => {
    expect(whyCold(plain, {})).toBeNull();
    expect(whyCold({ ...plain, network: { kind: 'bridge' } }, {})).toBeNull();
    expect(whyCold({ ...plain, level: 'bubblewrap' }, {})).toBeNull();
    expect(whyCold({ ...plain, level: 'gvisor' }, {})).toBeNull();
  });

  it.each<[string, Partial<SandboxSpec>, object, RegExp]>([
    ['without walls', { level: 'ulimit' }, {}, /level ulimit/],
    ['without anything', { level: 'none' }, {}, /level none/],
    ['with ports', { ports: [{ container: 80 }] }, {}, /ports/],
    ['with a network by name', { network: { kind: 'named', name: 'mine' } }, {}, /network mine/],
    ['with a task', {}, { taskId: 'build' }, /names its task/],
    ['with a session', {}, { sessionId: 'mine' }, /names its task or session/],
  ])('says why one %s has to have its own', (_, of, request, reason) => {
    expect(whyCold({ ...plain, ...of }, request)).toMatch(reason);
  });

  it('says so of one that mounts a part of what it can write, and not of the protected parts', () => {
    const identity = { device: 1, inode: 1 };
    const whole = { purpose: 'workspace', source: '/w', target: '/workspace', readOnly: false, identity } as const;
    const git = { ...whole, purpose: 'protected', source: '/w/.git', readOnly: true } as const;
    const part = { ...git, purpose: 'additional', source: '/w/a/b' } as const;
    expect(whyCold({ ...plain, mounts: [whole, git] }, {})).toBeNull();
    expect(whyCold({ ...plain, mounts: [whole, git, part] }, {})).toMatch(/mounts a part/);
  });

  it('says so of one with caches', () => {
    const cache = { tool: 'npm', volume: 'v', target: '/c', environment: {}, fill: false };
    expect(whyCold({ ...plain, caches: [cache] } as SandboxSpec, {})).toMatch(/caches/);
  });
});

describe('warmthOf', () => {
  it('says what would keep a command from one before it says that none is kept', () => {
    const planned = (spec: SandboxSpec): Planned => ({ spec }) as unknown as Planned;
    expect(warmthOf({ pool: null }, planned(plain), {}).why).toContain('AcodeOptions.pool');
    expect(warmthOf({ pool: null }, planned({ ...plain, ports: [{ container: 80 }] }), {}).why).toContain('ports');
  });
});

describe('a warm sandbox', () => {
  it('is made only when there is a record of it', async () => {
    const spec = {
      ...plain,
      hash: 'h',
      image: { reference: 'image:1', digest: 'sha256:1', id: 'sha256:1' },
      user: { uid: 1, gid: 1 },
      limits: { memoryBytes: 1 },
    } as unknown as SandboxSpec;
    const attempt = async (append: () => Promise<unknown>): Promise<{ happened: string[]; logged: string[] }> => {
      const happened: string[] = [];
      const logged: string[] = [];
      const prepare = (): never => {
        happened.push('made');
        throw new Error('no engine');
      };
      const closing = new AbortController();
      const host = {
        audit: { append: () => append().then(() => void happened.push('recorded')) },
        backend: async () => ({ prepare, describe: () => ({}) }),
        claim: async () => undefined,
        closing: closing.signal,
        keep: () => undefined,
        session: { id: 's', identify: () => ({ sandboxId: 'i', name: 'n', correlationId: 'c', labels: {} }) },
        telemetry: {
          clock: {
            now: () => Date.now(),
            monotonic: () => performance.now(),
            after: (ms: number, action: () => void) => {
              const timer = setTimeout(action, ms);
              return () => clearTimeout(timer);
            },
          },
          log: (_: string, message: string, { reason }: { reason: string }) => logged.push(`${message}: ${reason}`),
          gauge: () => undefined,
        },
      } as unknown as PoolHost;
      openPool({ pool: { min: 1, max: 1 } }, host)?.expect({ key: 'k', spec, profile: 'dev' });
      await expect.poll(() => logged).not.toEqual([]);
      closing.abort();
      return { happened, logged };
    };
    expect(await attempt(async () => undefined)).toMatchObject({ happened: ['recorded', 'made'] });
    const refused = await attempt(() => Promise.reject(new Error('disk full')));
    expect(refused).toEqual({ happened: [], logged: [expect.stringContaining('disk full')] });
  });
});

describe('poolLimits', () => {
  it('is off unless asked for', () => {
    expect(poolLimits({})).toBeNull();
    expect(poolLimits({ pool: false })).toBeNull();
  });

  it('fills in what is left out', () => {
    expect(poolLimits({ pool: {} })).toMatchObject({ min: 1, max: 4, idleMs: 300_000 });
    expect(poolLimits({ pool: { min: 8 } })).toMatchObject({ min: 8, max: 8 });
    expect(poolLimits({ pool: { min: 0, max: 16, idleMs: 1000 } })).toMatchObject({ min: 0, max: 16, idleMs: 1000 });
    expect(poolLimits({ pool: {} })?.memoryBytes).toBeGreaterThan(0);
  });

  it.each([
    [{ min: -1 }, 'pool.min'],
    [{ min: 5, max: 4 }, 'pool.min'],
    [{ max: 0 }, 'pool.max'],
    [{ max: 65 }, 'pool.max'],
    [{ max: 1.5 }, 'pool.max'],
    [{ idleMs: 999 }, 'pool.idleMs'],
    [{ idleMs: Number.NaN }, 'pool.idleMs'],
  ])('refuses %j', (pool, field) => {
    expect(() => poolLimits({ pool })).toThrow(field);
  });
});
