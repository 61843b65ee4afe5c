// How dangerous the caller believes a command to be.

import { RISKS } from '@acode/sandbox';
import type { Risk } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

/** One of low, medium, high, critical, in any case. */
export function risk(text: string): Risk {
  const found = RISKS.find(name => name === text.toLowerCase());
  if (!found) throw new InvalidArgumentError(`Expected one of ${RISKS.join(', ')}.`);
  return found;
}
