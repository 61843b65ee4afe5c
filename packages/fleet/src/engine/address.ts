// Addresses of servers: whether one is of this machine, and what must be encrypted.

import { isIP } from 'node:net';

/** Whether a host name or an address is this machine’s loopback. Names of others are not resolved. */
export function isLoopback(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, '').toLowerCase();
  if (name === 'localhost' || name === '::1') return true;
  return isIP(name) === 4 && name.startsWith('127.');
}

/** The host of an address such as `nats://one.example:4222` or `one.example:4222`; empty where it has none. */
export function hostOf(address: string): string {
  const full = address.includes('://') ? address : `nats://${address}`;
  return URL.canParse(full) ? new URL(full).hostname : '';
}
