// Shows that percentiles, proportions and limits say what was measured, and say so where nothing was.

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { percentile, ratio, referenceOf, summarise } from './figures.mjs';
import type { Measured, Row } from './figures.mjs';
import { CHECKED, LIMITS, judge } from './limits.mjs';
import { NAMES } from './names.mjs';

const DOCKER = { name: 'docker28', level: 'docker', onEngine: true, isHeld: true };
const GVISOR = { name: 'docker20 gvisor', level: 'gvisor', onEngine: true, isHeld: true };
const PODMAN = { name: 'podman', level: 'docker', onEngine: true, isHeld: false };
const LOCAL = { name: 'bubblewrap', level: 'bubblewrap', onEngine: false, isHeld: false };

function row(name: string, values: readonly number[], more: Partial<Measured> = {}): Measured {
  const key = { group: 'sequential.result', place: DOCKER.name, name, unit: 'ms' };
  return { ...key, better: 'less', ...summarise(values), ...more };
}

function verdict(rows: readonly Row[], id: string, place = DOCKER, tolerant = false) {
  return judge(LIMITS, rows, [place], { tolerant }).find(one => one.id === id);
}

describe('percentile', () => {
  const hundred = Array.from({ length: 100 }, (_, at) => at + 1);

  it.each([0.5, 0.95, 0.99, 1, 0.07, 0.29])('of the numbers to a hundred at %d is that many', share => {
    expect(percentile(hundred, share)).toBe(Math.round(share * 100));
  });

  it.each([
    [[4, 5], 0, 4],
    [[7], 0.99, 7],
    [[3, 1, 2], 0.5, 2],
    [[10, 9], 0.5, 9],
  ])('of %j at %d is %d', (values, share, expected) => {
    expect(percentile(values, share)).toBe(expected);
  });

  it('is a value that was measured, with at least its share of all values not above it', () => {
    const values = fc.array(fc.double({ noNaN: true, noDefaultInfinity: true }), { minLength: 1 });
    fc.assert(
      fc.property(values, fc.double({ min: 0, max: 1, noNaN: true }), (all, share) => {
        const found = percentile(all, share);
        expect(all).toContain(found);
        expect(all.filter(value => value <= found).length).toBeGreaterThanOrEqual(share * all.length - 1e-9);
      }),
    );
  });

  it('of nothing is no number, and changes nothing of what it is given', () => {
    const values = [3, 1, 2];
    percentile(values, 0.5);
    expect(values).toEqual([3, 1, 2]);
    expect(percentile([], 0.5)).toBeNaN();
  });

  it('is what so many reached, where more is better', () => {
    expect(summarise(hundred, 'more')).toEqual({ n: 100, p50: 50, p95: 6, p99: 2 });
  });
});

describe('ratio', () => {
  it('is of the same percentile of the reference of the same group and place', () => {
    const bare = row(NAMES.bareEngine, [100, 200], { reference: true });
    const elsewhere = { ...bare, place: 'docker20', p50: 1 };
    const cold = row(NAMES.cold, [80, 210]);
    const reference = referenceOf([elsewhere, bare, cold], cold);
    expect(reference).toBe(bare);
    expect(ratio(cold, reference, 'p50')).toBe(0.8);
    expect(ratio(cold, reference, 'p95')).toBe(1.05);
  });

  it('is none where one of them was not measured', () => {
    const cold = row(NAMES.cold, [80]);
    expect(ratio(cold, undefined, 'p50')).toBeNull();
    expect(ratio(cold, row(NAMES.bareEngine, []), 'p50')).toBeNull();
    expect(ratio(cold, row(NAMES.bareEngine, [0]), 'p50')).toBeNull();
  });
});

describe('judge', () => {
  const bare = row(NAMES.bareEngine, [100], { reference: true });

  it.each([
    [96, 'met'],
    [97, 'met'],
    [98, 'not met'],
  ])('holds a cold result of %d beside 100 to 0.97: %s', (ms, expected) => {
    expect(verdict([bare, row(NAMES.cold, [ms])], 'cold.p50')?.verdict).toBe(expected);
  });

  it('is as tolerant as a limit says, and no more', () => {
    const at = (ms: number) => verdict([bare, row(NAMES.cold, [ms])], 'cold.p50', DOCKER, true)?.verdict;
    expect([at(104), at(106)]).toEqual(['met', 'not met']);
  });

  it('holds figures themselves where a limit is no proportion', () => {
    const at = (ms: number) => verdict([bare, row(NAMES.warm, [ms])], 'warm.p50')?.verdict;
    expect([at(5), at(5.1)]).toEqual(['met', 'not met']);
  });

  it('holds what should be more to its least', () => {
    const group = 'throughput.8';
    const at = (perSecond: number, errors = 0) => {
      const warm = row(NAMES.warm, [perSecond], { group, errors });
      return verdict([{ ...bare, group, p50: 10 }, warm], 'throughput');
    };
    expect(at(9.5)?.verdict).toBe('met');
    expect(at(9.4)?.verdict).toBe('not met');
    expect(at(20, 1)).toMatchObject({ verdict: 'not met', why: '1 errors' });
  });

  it('never takes what was not measured for met, and says why', () => {
    const missing = { group: 'sequential.result', place: DOCKER.name, name: NAMES.warm, unavailable: 'no pool' };
    expect(verdict([bare, missing], 'warm.ratio')).toMatchObject({ verdict: 'not measured', why: 'no pool' });
    expect(verdict([], 'cold.p50')).toMatchObject({ verdict: 'not measured', measured: null });
    expect(verdict([row(NAMES.cold, [1])], 'cold.p50')).toMatchObject({ verdict: 'not measured' });
  });

  it('sets no limit for Podman nor for a level without an engine, and another for gVisor', () => {
    expect(judge(LIMITS, [], [PODMAN, LOCAL])).toEqual([]);
    expect(judge(LIMITS, [], [GVISOR]).map(({ id }) => id)).toEqual(['warm.ratio.gvisor']);
  });

  it('checks the cold and the warm proportion on every change, and nothing else', () => {
    expect(CHECKED.map(({ id }) => id)).toEqual(['cold.p50', 'warm.ratio', 'warm.ratio.gvisor']);
  });

  it('reads every limit as a number with a unit', () => {
    for (const { bound, unit } of LIMITS) {
      expect(Object.values(bound)[0]).toBeGreaterThan(0);
      expect(['×', 'ms', 'MB']).toContain(unit);
    }
  });
});
