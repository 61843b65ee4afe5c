// Changes of a run, by times that are as coarse as the file system keeps them.

import { expect, it } from 'vitest';
import { FileTimes, setBackMs } from './directory-look.ts';

const SINCE = 1_700_000_005_400;
const UNTIL = 1_700_000_007_200;
const SECOND = 1_700_000_000_000;

it.each<[what: string, ctimeMs: number, exact: boolean, coarse: boolean]>([
  ['well before', SECOND + 1000, false, false],
  ['just before, by a clock that lags', SINCE - 15.5, true, true],
  ['before, to the fraction', SINCE - 30.5, false, true],
  ['in the second it began in, by a file system that keeps seconds', SECOND + 5000, true, true],
  ['in the second before that', SECOND + 4000, false, true],
  ['within', SECOND + 6000.25, true, true],
  ['in the second it ended in', SECOND + 7000, true, true],
  ['just after, by a finer clock', UNTIL + 0.7, true, true],
  ['after', UNTIL + 50.5, false, true],
  ['well after', UNTIL + 5000, false, false],
])('%s', (_, ctimeMs, exact, coarse) => {
  const window = { sinceMs: SINCE, untilMs: UNTIL };
  expect(new FileTimes(window, true).isChanged({ ctimeMs })).toBe(exact);
  expect(new FileTimes(window, false).isChanged({ ctimeMs })).toBe(coarse);
});

it.each<[what: string, ctimeMs: number, exact: boolean]>([
  ['before it', SINCE + 200.5, true],
  ['as it began, by a finer clock', SINCE + 300.7, true],
  ['within it', SINCE + 700.5, false],
  ['as it ended, by a clock that lags', SINCE + 1490.5, true],
  ['in a second that it does not cover, by a file system that keeps seconds', SECOND + 6000, true],
])('of the time in which nothing of the sandbox ran, %s', (_, ctimeMs, exact) => {
  const window = { sinceMs: SINCE, untilMs: UNTIL, rests: [{ fromMs: SINCE + 300, toMs: SINCE + 1500 }] };
  expect(new FileTimes(window, true).isChanged({ ctimeMs })).toBe(exact);
  // Where times are coarse, it counts for nothing.
  expect(new FileTimes(window, false).isChanged({ ctimeMs })).toBe(true);
});

it('what was made in the window is known only where the time of making is kept', () => {
  const times = new FileTimes({ sinceMs: SINCE, untilMs: UNTIL }, true);
  expect(times.isMade({ birthtimeMs: SINCE + 10, ctimeMs: SINCE + 900 })).toBe(true);
  expect(times.isMade({ birthtimeMs: SINCE + 10, ctimeMs: SINCE + 10 })).toBe(false);
  expect(times.isMade({ birthtimeMs: SINCE - 9000, ctimeMs: SINCE + 900 })).toBe(false);
});

it.each<[what: string, before: number, now: number, tookMs: number, back: number]>([
  ['not set', 1000, 1000, 5000, 0],
  ['corrected a little', 1000, 940, 5000, 0],
  ['corrected all along a long run', 1000, 0, 3_600_000, 0],
  ['set back', 100_000, 40_000, 5000, 60_000],
  ['set forward, or asleep', 1000, 90_000, 5000, 0],
  ['of a sandbox whose caller does not wait', 100_000, 40_000, Infinity, 60_000],
])('a clock that was %s', (_, before, now, tookMs, back) => {
  expect(setBackMs(before, now, tookMs)).toBe(back);
});
