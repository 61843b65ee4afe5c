// The programs of the network probes: a canary that listens, and a client that tries to reach it in every way.

import type { SystemCall } from '../program.ts';

const UNIX = 1;
const IPV4 = 2;
const IPV6 = 10;
const STREAM = 1;
const DATAGRAM = 2;
/** Where every host reaches itself. */
export const LOOPBACK = '127.0.0.1';
// Nothing listens there: a refusal comes from the host’s own network stack, and so shows that it was reached.
const CLOSED_PORT = 1;
/** What the canary says to whoever calls. */
export const CANARY = 'canary';
// How many callers the canary answers before it ends.
const CALLERS = 8;

/** Where the canary listens: on every address of a private network, or on the loopback of this host. */
export interface Post {
  readonly address: string;
  readonly port: number;
  readonly abstract: Buffer;
}

/** The steps of {@link clientOf} whose answers count: TCP, what it read, UDP, IPv6, the gateway, the abstract socket. */
export const STEPS = [1, 2, 4, 6, 8, 10];

/** Tries to reach the canary in every way. `routed` is an address to ask for a route to. */
export function clientOf({ port, abstract }: Post, address: string, routed: string): SystemCall[] {
  const gateway = address.replace(/\d+$/, '1');
  return [
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 0 }, ipv4(address, port), 16] },
    { call: 'read', args: [{ resultOf: 0 }, new Uint8Array(16), 16] },
    { call: 'socket', args: [IPV4, DATAGRAM, 0] },
    // Asks only for a route: nothing is sent.
    { call: 'connect', args: [{ resultOf: 3 }, ipv4(routed, 53), 16] },
    { call: 'socket', args: [IPV6, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 5 }, ipv6(address, port), 28] },
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 7 }, ipv4(gateway, CLOSED_PORT), 16] },
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 9 }, abstract, abstract.length] },
  ];
}

/** The canary itself. */
export function server({ address, port }: Post): SystemCall[] {
  const callers = Array.from({ length: CALLERS }, (_, index): SystemCall[] => [
    { call: 'accept', args: [{ resultOf: 0 }, 0, 0] },
    { call: 'write', args: [{ resultOf: 3 + index * 2 }, CANARY, CANARY.length] },
  ]);
  return [
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, ipv4(address, port), 16] },
    { call: 'listen', args: [{ resultOf: 0 }, CALLERS] },
    ...callers.flat(),
  ];
}

/** Listens on an abstract socket. */
export function abstractListener({ abstract }: Post): SystemCall[] {
  return [
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, abstract, abstract.length] },
    { call: 'listen', args: [{ resultOf: 0 }, 4] },
    // For its friend, for whoever else gets there, and then until it is removed.
    ...Array.from({ length: CALLERS }, (): SystemCall => ({ call: 'accept', args: [{ resultOf: 0 }, 0, 0] })),
  ];
}

/** Calls the abstract socket. */
export function abstractClient({ abstract }: Post): SystemCall[] {
  return [
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 0 }, abstract, abstract.length] },
  ];
}

function ipv4(address: string, port: number): Buffer {
  return Buffer.from([IPV4, 0, port >> 8, port & 255, ...address.split('.').map(Number), 0, 0, 0, 0, 0, 0, 0, 0]);
}

// The IPv4 address by the other family: what stops one must stop both.
function ipv6(address: string, port: number): Buffer {
  const head = Buffer.from([IPV6, 0, port >> 8, port & 255, 0, 0, 0, 0]);
  const mapped = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, ...address.split('.').map(Number)]);
  return Buffer.concat([head, mapped, Buffer.alloc(4)]);
}

/** The address of an abstract socket with this name. */
export function abstractAddress(name: string): Buffer {
  return Buffer.concat([Buffer.from([UNIX, 0, 0]), Buffer.from(name)]);
}
