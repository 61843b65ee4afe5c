// A size: a number of megabytes, or one with a unit.

import { InvalidArgumentError } from '@commander-js/extra-typings';
import { parseBytes } from '@acode/sandbox';

/** Bytes of `512` (MB), `512m` or `1.5g`. */
export function size(text: string): number {
  const bytes = parseBytes(text);
  if (bytes === null) throw new InvalidArgumentError('Expected a size: 512 (MB), 512m or 1.5g.');
  return bytes;
}

/** The same, for what must not be nothing. */
export function someSize(text: string): number {
  const bytes = size(text);
  if (bytes === 0) throw new InvalidArgumentError('Expected a size above zero: 512 (MB), 512m or 1.5g.');
  return bytes;
}
