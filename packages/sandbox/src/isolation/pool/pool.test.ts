// The pool on a clock that only tests move, over a backend that only counts: who gets what, once, and what goes.

import { describe, expect, it } from 'vitest';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { WaitingSandbox } from '../backend.ts';
import { Pool } from './pool.ts';
import type { PreparedSandbox, SandboxTemplate } from './pool-kind.ts';

const DAY_MS = 24 * 3600 * 1000;

class TestClock implements Clock {
  #now = 1_000_000;
  readonly #timers = new Set<{ at: number; action: () => void }>();

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#now + ms, action };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Lets time pass, and everything happen that happens meanwhile. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      await settled();
      const next = [...this.#timers].filter(({ at }) => at <= end).sort((one, other) => one.at - other.at)[0];
      if (!next) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.action();
    }
    this.#now = end;
    await settled();
  }
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

class FakeSandbox implements WaitingSandbox {
  readonly specHash = 'h';
  readonly ports = [];
  readonly id: string;
  readonly keeping: NonNullable<WaitingSandbox['keeping']>;
  removed = 0;
  executed = 0;
  lose: () => void = () => undefined;
  changed: Error | null = null;

  constructor(id: string) {
    this.id = id;
    this.keeping = {
      lost: new Promise<void>(resolve => (this.lose = resolve)),
      rest: () => null,
      recheck: async () => {
        if (this.changed) throw this.changed;
      },
    };
  }

  async verify(): Promise<void> {}

  openForwarder = async (): Promise<never> => {
    throw new Error(`the forwarder of ${this.id}`);
  };

  async execute(): Promise<never> {
    this.executed += 1;
    throw new Error('a fake runs nothing');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.removed += 1;
  }
}

function template(
  key = 'a',
  of: { image?: string; inode?: number; memoryMb?: number; source?: string } = {},
): SandboxTemplate {
  const spec = {
    image: { reference: 'busybox', id: of.image ?? 'i' },
    mounts: [{ source: of.source ?? '/w', readOnly: false, identity: { device: 1, inode: of.inode ?? 1 } }],
    limits: { memoryBytes: (of.memoryMb ?? 1) * 1024 ** 2 },
    identity: { labels: {} },
  };
  return { key, spec: spec as unknown as SandboxSpec, profile: 'exec' };
}

interface BenchOptions {
  readonly min?: number;
  readonly max?: number;
  readonly fails?: () => boolean;
  readonly unfit?: boolean;
  readonly expiresInMs?: number;
  /** What each waits for before it is there. */
  readonly gate?: Promise<void>;
}

function bench(of: BenchOptions = {}) {
  const clock = new TestClock();
  const closing = new AbortController();
  const made: FakeSandbox[] = [];
  const discarded: string[] = [];
  const kept: Promise<unknown>[] = [];
  let failed = 0;
  const make = async ({ spec }: SandboxTemplate): Promise<PreparedSandbox> => {
    if (of.fails?.() === true) throw new Error('no engine');
    await of.gate;
    const sandbox = new FakeSandbox(`s${made.length}`);
    if (of.unfit === true) Object.defineProperty(sandbox, 'keeping', { value: undefined });
    made.push(sandbox);
    const expires = new Date(clock.now() + (of.expiresInMs ?? 25 * 3600 * 1000)).toISOString();
    const identity = { ...spec.identity, labels: { 'acode.expires': expires } };
    return { sandbox, spec: { ...spec, identity }, sinceMs: clock.now(), requestHash: 'r' };
  };
  const pool = new Pool({
    limits: { min: of.min ?? 1, max: of.max ?? 4, idleMs: 60_000, memoryBytes: 1024 ** 3 },
    clock,
    closing: closing.signal,
    keep: work => void kept.push(work),
    make,
    observer: {
      waiting: () => undefined,
      discarded: ({ sandbox }, why) => void discarded.push(`${sandbox.id} ${why}`),
      removed: () => undefined,
      failed: () => (failed += 1),
    },
  });
  const wanted = { lifeMs: 1000, signal: new AbortController().signal };
  return { clock, closing, made, discarded, kept, pool, wanted, failures: () => failed };
}

describe('a pool', () => {
  it('has one ready for the first command, and gives it out once', async () => {
    const { pool, clock, made, wanted } = bench();
    pool.expect(template());
    await clock.pass(10);
    expect(pool.ready(template())).toBe(1);
    expect(pool.holds('s0')).toBe(true);
    const taken = await pool.take(template(), wanted);
    expect(taken?.sandbox.id).toBe('s0');
    expect(pool.holds('s0')).toBe(false);
    expect(await pool.take(template(), wanted)).toBeNull();
    await clock.pass(100);
    expect(made).toHaveLength(3);
    expect(pool.waiting).toBe(2);
  });

  it('gives out one that can still start the forwarder of its allow-list', async () => {
    const { pool, clock, wanted } = bench();
    pool.expect(template());
    await clock.pass(10);
    const taken = await pool.take(template(), wanted);
    await expect(taken?.sandbox.openForwarder?.(wanted.signal)).rejects.toThrow('the forwarder of s0');
  });

  it('gives no two callers the same, however many ask at once', async () => {
    const { pool, clock, wanted } = bench({ min: 4 });
    pool.expect(template());
    await clock.pass(10);
    const taken = await Promise.all(Array.from({ length: 10 }, () => pool.take(template(), wanted)));
    const ids = taken.flatMap(one => (one ? [one.sandbox.id] : []));
    expect(ids).toHaveLength(4);
    expect(new Set(ids).size).toBe(4);
  });

  it('never gives out one of another plan', async () => {
    const { pool, clock, wanted } = bench();
    pool.expect(template('a'));
    await clock.pass(10);
    expect(await pool.take(template('b'), wanted)).toBeNull();
    expect(await pool.take(template('a'), wanted)).not.toBeNull();
  });

  it('keeps those warm that were asked for while the one that was expected was being planned', async () => {
    const { pool, clock, wanted } = bench({ min: 2, max: 2 });
    expect(await pool.take(template('asked'), wanted)).toBeNull();
    await clock.pass(1);
    pool.expect(template('expected'));
    await clock.pass(100);
    expect([pool.ready(template('asked')), pool.ready(template('expected'))]).toEqual([2, 0]);
  });

  it('removes one whose mounts changed while it waited, and takes the next', async () => {
    const { pool, clock, made, wanted, discarded } = bench({ min: 2 });
    pool.expect(template());
    await clock.pass(10);
    const last = made.at(-1);
    if (last) last.changed = new AcodeError('ACODE-SBX-010', { violation: 'MountMismatch', detail: 'swapped' });
    const taken = await pool.take(template(), wanted);
    expect(taken?.sandbox.id).toBe('s0');
    expect(discarded).toEqual(['s1 changed']);
    expect(last).toMatchObject({ removed: 1, executed: 0 });
  });

  it('removes one that ended while it waited, and makes another', async () => {
    const { pool, clock, made, discarded } = bench();
    pool.expect(template());
    await clock.pass(10);
    made[0]?.lose();
    await clock.pass(100);
    expect(discarded).toEqual(['s0 lost']);
    expect(made[0]?.removed).toBe(1);
    expect(pool.holds('s1')).toBe(true);
  });

  it('does not give out one that would expire before the command has to end', async () => {
    const { pool, clock, wanted, discarded } = bench({ expiresInMs: DAY_MS });
    pool.expect(template());
    await clock.pass(10);
    expect(await pool.take(template(), { ...wanted, lifeMs: DAY_MS + 1 })).toBeNull();
    expect(discarded).toEqual(['s0 expires soon']);
    await clock.pass(100);
    expect(await pool.take(template(), { ...wanted, lifeMs: DAY_MS - 1000 })).not.toBeNull();
  });

  it.each([
    ['the image by that name is another', { image: 'other' }],
    ['the directory at that path is another', { inode: 2 }],
  ])('removes at once what no plan can ask for any more: %s', async (_, of) => {
    const { pool, clock, made, wanted, discarded } = bench();
    pool.expect(template('a'));
    await clock.pass(10);
    expect(await pool.take(template('b', of), wanted)).toBeNull();
    expect(discarded).toEqual(['s0 outdated']);
    expect(made[0]?.removed).toBe(1);
  });

  it('keeps those of a plan that differs in something else', async () => {
    const { pool, clock, wanted, discarded } = bench();
    pool.expect(template('a'));
    await clock.pass(10);
    await pool.take(template('b', { memoryMb: 2 }), wanted);
    expect(discarded).toEqual([]);
  });

  it('lets go of all but the least when nobody asks any more', async () => {
    const { pool, clock, wanted } = bench({ min: 1, max: 4 });
    pool.expect(template());
    await clock.pass(10);
    await Promise.all(Array.from({ length: 4 }, () => pool.take(template(), wanted)));
    await clock.pass(1000);
    expect(pool.waiting).toBe(4);
    await clock.pass(130_000);
    expect(pool.waiting).toBe(1);
  });

  it('tries less and less often where none can be made, and callers never hear of it', async () => {
    let broken = true;
    const { pool, clock, made, wanted, failures } = bench({ fails: () => broken });
    pool.expect(template());
    await clock.pass(10_000);
    expect(failures()).toBeGreaterThan(2);
    expect(failures()).toBeLessThan(8);
    expect(await pool.take(template(), wanted)).toBeNull();
    broken = false;
    await clock.pass(60_000);
    expect(made.length).toBeGreaterThan(0);
  });

  it('waits while callers have theirs made', async () => {
    const { pool, clock, made, wanted } = bench({ min: 2 });
    let done: () => void = () => undefined;
    const cold = Array.from({ length: 4 }, () =>
      pool.during(template().spec, wanted.signal, () => new Promise<void>(resolve => (done = resolve))),
    );
    const first = done;
    pool.expect(template());
    await clock.pass(1000);
    expect(made).toHaveLength(0);
    first();
    await cold.at(-1);
    await clock.pass(100);
    expect(made.length).toBeGreaterThan(0);
  });

  it('has what could exchange a caller’s mounts removed before theirs is made, and not made again beside it', async () => {
    const { pool, clock, made, wanted, discarded } = bench({ min: 2 });
    pool.expect(template('a'));
    await clock.pass(10);
    const inside = template('b', { source: '/w/inside' });
    await pool.take(inside, wanted);
    let seen: readonly number[] = [];
    await pool.during(inside.spec, wanted.signal, async () => {
      seen = made.map(({ removed }) => removed);
      await clock.pass(1000);
    });
    expect(seen).toEqual([1, 1]);
    expect(discarded).toEqual(['s0 room', 's1 room']);
    expect(pool.ready(template('a'))).toBe(0);
  });

  it('leaves those alone that have nothing above it', async () => {
    const { pool, clock, discarded, wanted } = bench({ min: 2 });
    pool.expect(template('a', { source: '/w/inside' }));
    await clock.pass(10);
    await pool.during(template('b').spec, wanted.signal, async () => undefined);
    await pool.during(template('c', { source: '/other' }).spec, wanted.signal, async () => undefined);
    expect(discarded).toEqual([]);
  });

  it('makes none that would be refused because of one that waits', async () => {
    const { pool, clock, made, wanted } = bench();
    pool.expect(template('a'));
    await clock.pass(10);
    await pool.take(template('b', { source: '/w/inside' }), wanted);
    await clock.pass(1000);
    expect(made).toHaveLength(1);
  });

  it('finds out that nothing waits in an image without a shell, and does not try again', async () => {
    const { pool, clock, made, wanted } = bench({ unfit: true });
    pool.expect(template());
    await clock.pass(1000);
    expect(made).toHaveLength(1);
    expect(made[0]?.removed).toBe(1);
    expect(pool.ready(template())).toBeNull();
    expect(await pool.take(template(), wanted)).toBeNull();
    await clock.pass(1000);
    expect(made).toHaveLength(1);
  });

  it('removes what is ready only after the session was closed', async () => {
    let open: () => void = () => undefined;
    const { pool, clock, closing, made, kept } = bench({ gate: new Promise(resolve => (open = resolve)) });
    pool.expect(template());
    await clock.pass(10);
    closing.abort(new Error('closing'));
    expect(made).toHaveLength(0);
    open();
    await Promise.all(kept);
    await settled();
    expect(made.map(({ removed }) => removed)).toEqual([1]);
    expect(pool.waiting).toBe(0);
  });

  it('has nothing left when the session closes but what was given out', async () => {
    const { pool, clock, closing, made, kept, wanted } = bench({ min: 3 });
    pool.expect(template());
    await clock.pass(10);
    const taken = await pool.take(template(), wanted);
    await clock.pass(25);
    closing.abort(new Error('closing'));
    await Promise.all(kept);
    await clock.pass(100_000);
    const out = made.filter(({ id }) => id !== taken?.sandbox.id);
    expect(out.map(({ removed }) => removed)).toEqual(out.map(() => 1));
    expect(made.find(({ id }) => id === taken?.sandbox.id)?.removed).toBe(0);
    expect(pool.waiting).toBe(0);
    expect(await pool.take(template(), wanted)).toBeNull();
  });
});
