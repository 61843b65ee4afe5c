// How long something may stay: a time span with its unit.

import { InvalidArgumentError } from '@commander-js/extra-typings';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The longest time span that anything is given, in milliseconds. */
export const MAX_DURATION_MS = 365 * 86_400_000;

/** Milliseconds of a time span such as `90s`, `30m`, `2h` or `1h30m`. */
export function duration(text: string): number {
  const milliseconds = spanOf(text);
  // A bare number could be seconds or minutes, and the difference is an hour of somebody’s sandbox.
  if (!(milliseconds >= 1000 && milliseconds <= MAX_DURATION_MS))
    throw new InvalidArgumentError('Expected a time with its unit, such as 30m, 2h or 1h30m.');
  return Math.round(milliseconds);
}

/** Milliseconds of what is written with units; NaN for anything else. */
export function spanOf(text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)([smhd])/g)];
  if (text === '' || parts.map(([part]) => part).join('') !== text) return NaN;
  return parts.reduce((sum, [, count, unit = '']) => sum + Number(count) * (UNITS[unit] ?? NaN), 0);
}
