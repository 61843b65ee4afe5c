// A time span in days, or none at all.

import { InvalidArgumentError } from '@commander-js/extra-typings';

const MAX_DAYS = 36_500;

/** The number of days; 0 is none. */
export function days(text: string): number {
  const value = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : NaN;
  if (!(value >= 0 && value <= MAX_DAYS)) throw new InvalidArgumentError('Expected days, such as 30 or 0.');
  return value;
}
