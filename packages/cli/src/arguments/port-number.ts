// A port of this host.

import { InvalidArgumentError } from '@commander-js/extra-typings';

const LAST = 65_535;

/** The number. */
export function portNumber(text: string): number {
  const value = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (!(value >= 1 && value <= LAST)) throw new InvalidArgumentError(`Expected a port from 1 to ${LAST}.`);
  return value;
}
