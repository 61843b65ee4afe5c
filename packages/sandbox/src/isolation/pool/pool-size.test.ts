// The size of a pool: what is made, what goes, and when, on a clock that only tests move.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  MAX_WAIT_MS,
  MAX_AT_ONCE,
  MAX_PER_SECOND,
  decidePool,
  demandOf,
  pauseAfter,
  type KindState,
  type PoolState,
} from './pool-size.ts';

const MB = 1024 ** 2;
const limits = { min: 1, max: 8, idleMs: 60_000, memoryBytes: 4096 * MB };

function kind(of: Partial<KindState> = {}): KindState {
  return {
    key: 'a',
    memoryBytes: 512 * MB,
    waiting: [],
    making: 0,
    requests: [],
    lastAsked: 0,
    leadMs: 100,
    failures: 0,
    failedAt: 0,
    unfit: false,
    ...of,
  };
}

function state(kinds: readonly KindState[], of: Partial<PoolState> = {}): PoolState {
  return { now: 100_000, limits, cold: 0, begun: [], kinds, ...of };
}

const ids = (count: number, since: number, prefix = 'w'): { id: string; since: number }[] =>
  Array.from({ length: count }, (_, at) => ({ id: `${prefix}${at}`, since }));

describe('demandOf', () => {
  it.each([
    ['nobody asked', [], 0],
    ['one at a time, far apart', [1000, 2000, 3000], 1],
    ['three while one is made', [1000, 1050, 1100, 5000], 3],
    ['exactly one making apart', [1000, 1100], 2],
    ['a little more than that', [1000, 1101], 1],
  ])('counts what comes while one sandbox is made: %s', (_, requests, most) => {
    expect(demandOf(requests, 100, 6000, 60_000)).toBe(most);
  });

  it('forgets what was longer ago than a sandbox may be idle', () => {
    expect(demandOf([1, 2, 3, 90_000], 100, 100_000, 60_000)).toBe(1);
    expect(demandOf([50_001, 50_002, 90_000], 100, 100_000, 60_000)).toBe(2);
  });
});

describe('decidePool', () => {
  it('makes the least of the kind that was spoken of last, and none of the others', () => {
    const decision = decidePool(state([kind({ key: 'old', lastAsked: 1 }), kind({ key: 'new', lastAsked: 2 })]));
    expect(decision.make).toEqual(['new']);
  });

  it('makes as many as were asked for while one is made', () => {
    const requests = [99_900, 99_950, 99_990];
    expect(decidePool(state([kind({ requests, lastAsked: 99_990 })])).make).toHaveLength(3);
    const some = kind({ requests, lastAsked: 99_990, waiting: ids(1, 99_999), making: 1 });
    expect(decidePool(state([some])).make).toHaveLength(1);
  });

  it('never makes more at once than the engine is good for, and callers come first', () => {
    const busy = kind({ requests: Array.from({ length: 50 }, (_, at) => 99_900 + at), lastAsked: 99_950 });
    expect(decidePool(state([busy])).make).toHaveLength(MAX_AT_ONCE);
    expect(decidePool(state([busy], { cold: MAX_AT_ONCE - 1 })).make).toHaveLength(1);
    expect(decidePool(state([busy], { cold: MAX_AT_ONCE })).make).toEqual([]);
  });

  it('begins only so many in a second, and comes back when the second is over', () => {
    const begun = Array.from({ length: MAX_PER_SECOND }, (_, at) => 99_500 + at);
    const decision = decidePool(state([kind({ lastAsked: 1 })], { begun }));
    expect(decision.make).toEqual([]);
    expect(decision.againMs).toBe(500);
    expect(decidePool(state([kind({ lastAsked: 1 })], { begun, now: 100_501 })).make).toEqual(['a']);
  });

  it('leaves the engine alone after a failure, longer each time, and tries with one', () => {
    expect([1, 2, 3, 20].map(pauseAfter)).toEqual([500, 1000, 2000, 60_000]);
    const requests = [99_900, 99_901, 99_902];
    const failed = kind({ requests, lastAsked: 99_902, failures: 2, failedAt: 99_500 });
    expect(decidePool(state([failed]))).toMatchObject({ make: [], againMs: 500 });
    expect(decidePool(state([failed], { now: 100_501 })).make).toEqual(['a']);
  });

  it('lets those go that nobody asked for, down to the least', () => {
    const idle = kind({ waiting: ids(3, 30_000), lastAsked: 30_000 });
    const decision = decidePool(state([idle]));
    expect(decision.remove).toEqual([
      { key: 'a', id: 'w0', why: 'idle' },
      { key: 'a', id: 'w1', why: 'idle' },
    ]);
    expect(decision.make).toEqual([]);
    expect(decidePool(state([idle], { now: 89_999 })).remove).toEqual([]);
  });

  it('lets all of a kind go that is not the last one', () => {
    const other = kind({ key: 'b', lastAsked: 99_999, waiting: ids(1, 99_999, 'b') });
    const decision = decidePool(state([kind({ waiting: ids(2, 30_000), lastAsked: 30_000 }), other]));
    expect(decision.remove.map(({ id }) => id)).toEqual(['w0', 'w1']);
  });

  it('makes anew what has waited very long, also where it is wanted', () => {
    const now = MAX_WAIT_MS + 5;
    const decision = decidePool(state([kind({ waiting: ids(1, 5), lastAsked: now })], { now }));
    expect(decision.remove).toEqual([{ key: 'a', id: 'w0', why: 'old' }]);
    expect(decision.make).toEqual(['a']);
  });

  it('counts the memory that those that wait could use, and never goes beyond', () => {
    const requests = [99_990, 99_991, 99_992, 99_993];
    const large = kind({ requests, lastAsked: 99_993, memoryBytes: 1500 * MB });
    expect(decidePool(state([large])).make).toHaveLength(2);
    expect(decidePool(state([{ ...large, memoryBytes: 5000 * MB }])).make).toEqual([]);
  });

  it('gives the place of what nobody wants to what somebody asks for', () => {
    const full = { ...limits, max: 2 };
    const old = kind({ key: 'old', waiting: ids(2, 99_000), lastAsked: 1 });
    const asked = kind({ key: 'new', requests: [99_999], lastAsked: 99_999 });
    const decision = decidePool(state([old, asked], { limits: full }));
    expect(decision).toMatchObject({ make: ['new'], remove: [{ key: 'old', id: 'w0', why: 'room' }] });
  });

  it('makes none of a kind that cannot wait', () => {
    expect(decidePool(state([kind({ unfit: true, requests: [99_999], lastAsked: 99_999 })])).make).toEqual([]);
  });

  it('thinks again when the next one may go, and never where there is nothing', () => {
    expect(decidePool(state([kind({ waiting: ids(1, 90_000), lastAsked: 90_000 })])).againMs).toBe(50_000);
    expect(decidePool(state([])).againMs).toBeNull();
  });

  it('holds every limit whatever was asked for', () => {
    const times = fc
      .array(fc.integer({ min: 0, max: 100_000 }), { maxLength: 40 })
      .map(all => all.sort((a, b) => a - b));
    const anyKind = fc.record({
      memoryBytes: fc.integer({ min: 1, max: 2048 }).map(size => size * MB),
      count: fc.integer({ min: 0, max: 4 }),
      making: fc.integer({ min: 0, max: 3 }),
      requests: times,
      since: fc.integer({ min: 0, max: 100_000 }),
    });
    fc.assert(
      fc.property(fc.array(anyKind, { maxLength: 5 }), fc.integer({ min: 0, max: 6 }), (all, cold) => {
        const kinds = all.map(({ count, since, requests, ...rest }, at) =>
          kind({
            ...rest,
            key: `k${at}`,
            requests,
            waiting: ids(count, since, `k${at}-`),
            lastAsked: requests.at(-1) ?? 0,
          }),
        );
        const { make, remove, againMs } = decidePool(state(kinds, { cold }));
        const there = kinds.reduce((sum, { waiting, making }) => sum + waiting.length + making, 0);
        const making = kinds.reduce((sum, one) => sum + one.making, 0);
        if (make.length > 0) {
          expect(there - remove.length + make.length).toBeLessThanOrEqual(limits.max);
          expect(making + make.length + cold).toBeLessThanOrEqual(MAX_AT_ONCE);
        }
        expect(new Set(remove.map(({ id }) => id)).size).toBe(remove.length);
        if (againMs !== null) expect(againMs).toBeGreaterThan(0);
      }),
    );
  });
});
