// A time span in seconds, or with its unit.

import { InvalidArgumentError } from '@commander-js/extra-typings';
import { MAX_DURATION_MS, spanOf } from './duration.ts';

/** Milliseconds of a number of seconds such as `30` or `0.5`, or of a time span such as `5m`. */
export function seconds(text: string): number {
  const plain = /^\d+(?:\.\d+)?$|^\.\d+$/.test(text);
  const milliseconds = Math.round(plain ? Number(text) * 1000 : spanOf(text));
  if (!(milliseconds >= 1 && milliseconds <= MAX_DURATION_MS))
    throw new InvalidArgumentError(
      'Expected seconds above zero, such as 30 or 0.5, or a time with its unit, such as 5m.',
    );
  return milliseconds;
}
