// A port of the sandbox to be reached from this machine.

import type { PortRequest } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

const MAX_PORT = 65_535;

/** The ports so far and one more, written `[hostport:]port[/udp]`. */
export function port(text: string, before: readonly PortRequest[] = []): PortRequest[] {
  const [, outside, inside, protocol] = /^(?:(\d{1,5}):)?(\d{1,5})(?:\/(tcp|udp))?$/.exec(text) ?? [];
  const numbers = [inside, ...(outside === undefined ? [] : [outside])].map(Number);
  if (!numbers.every(number => number >= 1 && number <= MAX_PORT)) throw new InvalidArgumentError(expected(text));
  return [
    ...before,
    {
      container: Number(inside),
      ...(outside === undefined ? {} : { host: Number(outside) }),
      ...(protocol === 'udp' ? { protocol } : {}),
    },
  ];
}

function expected(text: string): string {
  const form = 'Expected a port, or hostport:port, from 1 to 65535, such as 3000, 8080:3000 or 5353/udp.';
  // Three parts are how other tools choose an address; here there is no choice.
  return text.split(':').length > 2 ? `${form} Ports are published on 127.0.0.1 only.` : form;
}
