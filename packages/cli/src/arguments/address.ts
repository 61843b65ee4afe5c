// The address of a name server.

import { InvalidArgumentError } from '@commander-js/extra-typings';

const MAX_PART = 255;

/** The addresses so far and one more: IPv4 or IPv6. */
export function address(text: string, before: readonly string[] = []): string[] {
  if (!isIpv4(text) && !isIpv6(text))
    throw new InvalidArgumentError('Expected the IP address of a name server, such as 1.1.1.1; names cannot be used.');
  return [...before, text];
}

function isIpv4(text: string): boolean {
  return /^\d{1,3}(?:\.\d{1,3}){3}$/.test(text) && text.split('.').every(part => Number(part) <= MAX_PART);
}

// `node:net` would tell too; the command has no other use for something that can open connections.
function isIpv6(text: string): boolean {
  return /^[0-9A-Fa-f:.]+$/.test(text) && text.includes(':') && URL.canParse(`http://[${text}]/`);
}
