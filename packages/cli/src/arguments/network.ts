// The network a sandbox is on.

import type { PolicyInput } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

/** `none`, `bridge`, or a network by name. The library decides which of them are to be had. */
export function network(text: string): NonNullable<PolicyInput['network']> {
  if (text === 'none' || text === 'bridge') return text;
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(text))
    throw new InvalidArgumentError('Expected none, bridge or the name of a network.');
  return { name: text };
}
