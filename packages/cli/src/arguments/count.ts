// A whole number of things, at least one.

import { InvalidArgumentError } from '@commander-js/extra-typings';

/** The number. */
export function count(text: string): number {
  const value = /^\d+$/.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('Expected a whole number from 1 on.');
  return value;
}
