// A time span in seconds.

import { InvalidArgumentError } from '@commander-js/extra-typings';

const LONGEST = 365 * 24 * 3600;

/** Milliseconds of a number of seconds such as `30` or `0.5`. */
export function seconds(text: string): number {
  const value = /^\d+(?:\.\d+)?$|^\.\d+$/.test(text) ? Number(text) : NaN;
  const milliseconds = Math.round(value * 1000);
  if (!(milliseconds >= 1) || value > LONGEST)
    throw new InvalidArgumentError('Expected seconds above zero, such as 30 or 0.5.');
  return milliseconds;
}
