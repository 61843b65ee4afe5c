// A share of the machine’s processors.

import { InvalidArgumentError } from '@commander-js/extra-typings';

/** The number of CPUs, such as `1` or `0.5`. */
export function cpus(text: string): number {
  const value = /^\d+(?:\.\d+)?$|^\.\d+$/.test(text) ? Number(text) : NaN;
  if (!(value > 0)) throw new InvalidArgumentError('Expected a number of CPUs above zero, such as 1 or 0.5.');
  return value;
}
