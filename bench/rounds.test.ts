// Shows that everybody has a turn in each round, in changing order, and that one who fails does not stop the others.

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { interleave, orderOf } from './rounds.mjs';
import { many, warmShare } from './suites/latency.mjs';
import { rateOf, sustained } from './suites/throughput.mjs';

const signal = AbortSignal.timeout(600_000);

function contender(name: string, log: string[], turn: () => unknown = () => name) {
  return {
    name,
    settled: async () => void log.push(`${name} settled`),
    turn: async () => {
      log.push(name);
      return turn();
    },
  };
}

describe('orderOf', () => {
  it('has everybody once, and everybody first as often', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.string(), { minLength: 1, maxLength: 8 }), fc.nat(1000), (all, from) => {
        const orders = all.map((_, round) => orderOf(all, from + round));
        for (const order of orders) expect(order.toSorted()).toEqual(all.toSorted());
        expect(new Set(orders.map(([first]) => first))).toEqual(new Set(all));
      }),
    );
    expect(orderOf([], 3)).toEqual([]);
  });
});

describe('interleave', () => {
  it('takes turns in changing order, and does not count the first round', async () => {
    const log: string[] = [];
    const all = [contender('a', log), contender('b', log), contender('c', log)];
    const turns = await interleave(all, { rounds: 2, signal, turnMs: 1000 });
    expect(log.filter(entry => entry.length === 1).join('')).toBe('abcbcacab');
    expect([...turns].map(([name, { values }]) => [name, values.length])).toEqual([
      ['a', 2],
      ['b', 2],
      ['c', 2],
    ]);
  });

  it('lets nobody begin before what everybody left is done', async () => {
    const log: string[] = [];
    let pending = 0;
    const all = ['a', 'b'].map(name => ({
      name,
      settled: async () => {
        await new Promise(resolve => setTimeout(resolve, 2));
        pending = 0;
      },
      turn: async () => {
        log.push(String(pending));
        pending += 1;
      },
    }));
    await interleave(all, { rounds: 3, signal, turnMs: 1000, warmUp: false });
    expect(log).toEqual(['0', '0', '0', '0', '0', '0']);
  });

  it('goes on without one who fails again and again, and says why', async () => {
    const log: string[] = [];
    const fails = contender('bad', log, () => {
      throw new Error('it broke\nin detail');
    });
    const turns = await interleave([fails, contender('good', log)], { rounds: 5, signal, turnMs: 1000 });
    expect(turns.get('bad')).toEqual({ values: [], errors: ['it broke', 'it broke', 'it broke'] });
    expect(turns.get('good')?.values).toHaveLength(5);
  });

  it('begins no round when its time is over, but for the least of them', async () => {
    let time = 0;
    const now = () => (time += 10);
    const course = { rounds: 100, signal, turnMs: 1000, untilMs: 50, leastRounds: 0, now };
    const few = await interleave([contender('a', [])], course);
    expect(few.get('a')?.values.length).toBeLessThan(6);
    const least = await interleave([contender('a', [])], { ...course, leastRounds: 7 });
    expect(least.get('a')?.values).toHaveLength(7);
  });

  it('ends when it is interrupted', async () => {
    const stop = new AbortController();
    const stops = contender('a', [], () => stop.abort(new Error('SIGINT')));
    await expect(interleave([stops], { rounds: 5, signal: stop.signal, turnMs: 1000 })).rejects.toThrow('SIGINT');
  });

  it('gives a turn a signal that ends it in time', async () => {
    const hangs = {
      name: 'hangs',
      settled: async () => undefined,
      turn: (until: AbortSignal) =>
        new Promise((_, reject) => until.addEventListener('abort', () => reject(new Error('too long')))),
    };
    const turns = await interleave([hangs], { rounds: 1, signal, turnMs: 20, warmUp: false });
    expect(turns.get('hangs')?.errors).toEqual(['too long']);
  });
});

describe('many at once', () => {
  it('keeps those that came through apart from those that failed', async () => {
    let begun = 0;
    const result = await many(5, 0, async () => {
      begun += 1;
      if (begun === 2) throw new Error('no place');
      return { firstByteMs: 1, resultMs: begun };
    });
    expect(result.samples).toHaveLength(4);
    expect(result.errors).toEqual(['no place']);
  });

  it('begins them before the ones before have ended', async () => {
    let underWay = 0;
    let most = 0;
    await many(10, 0, async () => {
      most = Math.max(most, (underWay += 1));
      await new Promise(resolve => setTimeout(resolve, 5));
      underWay -= 1;
      return { firstByteMs: 1, resultMs: 1 };
    });
    expect(most).toBe(10);
  });

  it('says which share of them was warm, and nothing of who has no pool', () => {
    const of = (warm: boolean | undefined) => ({
      firstByteMs: 1,
      resultMs: 1,
      ...(warm === undefined ? {} : { warm }),
    });
    expect(warmShare([of(true), of(true), of(false), of(true)])).toEqual({ warm: 0.75 });
    expect(warmShare([of(undefined)])).toEqual({});
  });
});

describe('throughput', () => {
  it.each([
    [[0, 100, 200, 300], 10],
    [[300, 0, 200, 100], 10],
    [[0, 1000], 1],
  ])('of ends at %j is %d in a second', (times, expected) => {
    expect(rateOf(times)).toBe(expected);
  });

  it('of fewer than two ends is not known', () => {
    expect(rateOf([5])).toBeNaN();
  });

  it('keeps as many under way as asked for, lets whoever is behind catch up, and counts after the lead', async () => {
    let time = 0;
    let underWay = 0;
    let most = 0;
    const caughtUp: number[] = [];
    const candidate = {
      caughtUp: async (behind: number) => void caughtUp.push(behind),
      echo: async () => {
        most = Math.max(most, (underWay += 1));
        await new Promise(resolve => setImmediate(resolve));
        underWay -= 1;
        // One ends every two milliseconds; in the lead each had a sandbox that waited.
        time += 2;
        return { firstByteMs: 1, resultMs: 4, warm: time < 20 };
      },
    };
    const result = await sustained(candidate, 4, { leadMs: 20, windowMs: 60, signal, now: () => time });
    expect(result).toEqual({ perSecond: 500, warm: 0, errors: [] });
    expect(most).toBe(4);
    expect(new Set(caughtUp)).toEqual(new Set([4]));
  });

  it('ends early where nothing comes through', async () => {
    const broken = {
      caughtUp: async () => undefined,
      echo: async () => {
        throw new Error('refused');
      },
    };
    const { errors, perSecond } = await sustained(broken, 2, { leadMs: 0, windowMs: 60_000, signal });
    expect(errors.length).toBeGreaterThanOrEqual(10);
    expect(perSecond).toBeNaN();
  });
});
