// A port of the sandbox and the port of this machine that is to lead there.

import { InvalidArgumentError } from '@commander-js/extra-typings';

/** Which port leads where. */
export interface Forwarding {
  readonly containerPort: number;
  /** Absent: any free one. */
  readonly hostPort?: number;
}

const MAX_PORT = 65_535;

/** A forwarding, written `[hostport:]port`. */
export function forwarding(text: string): Forwarding {
  const [, outside, inside] = /^(?:(\d{1,5}):)?(\d{1,5})$/.exec(text) ?? [];
  const numbers = [inside, ...(outside === undefined ? [] : [outside])].map(Number);
  if (!numbers.every(number => number >= 1 && number <= MAX_PORT))
    throw new InvalidArgumentError('Expected a port, or hostport:port, from 1 to 65535, such as 3000 or 8080:3000.');
  return { containerPort: Number(inside), ...(outside === undefined ? {} : { hostPort: Number(outside) }) };
}
