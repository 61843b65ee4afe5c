// SOCKS 5 as a client of the proxy speaks it: no authentication, CONNECT, names only.

/** What the first bytes of a client say. */
export type SocksStep<Value> =
  | { readonly kind: 'more' }
  | { readonly kind: 'refused'; readonly reply: Buffer; readonly why: SocksFault }
  | { readonly kind: 'read'; readonly value: Value; readonly length: number };

/** What is wrong with a message: not SOCKS 5, another command than CONNECT, or an address in place of a name. */
export type SocksFault = 'malformed' | 'command' | 'address';

/** The destination that a client asks for. The name is not checked. */
export interface SocksTarget {
  readonly name: string;
  readonly port: number;
}

const VERSION = 5;
const CONNECT = 1;
const NAME = 3;
const NO_AUTHENTICATION = 0;
const HEADER = 5;

const MORE = { kind: 'more' } as const;
const NO_METHOD = Buffer.from([VERSION, 0xff]);

/** The answer to a greeting that offers no authentication. */
export const SOCKS_GREETING = Buffer.from([VERSION, NO_AUTHENTICATION]);

/** Answers to a request, by what happened. The bound address is not told: it is an address of the host. */
export const SOCKS_REPLY = {
  connected: reply(0),
  refused: reply(2),
  unreachable: reply(4),
  command: reply(7),
  address: reply(8),
} as const;

/** The largest message: a header, a name of 255 bytes and a port; a greeting of 255 methods is as long. */
export const MAX_SOCKS_BYTES = 262;

function reply(code: number): Buffer {
  return Buffer.from([VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]);
}

/** Reads the greeting: the methods of authentication that the client offers. */
export function readSocksGreeting(bytes: Buffer): SocksStep<true> {
  if (bytes.length > 0 && bytes[0] !== VERSION) return refused(NO_METHOD, 'malformed');
  if (bytes.length < 2) return MORE;
  const end = 2 + (bytes[1] ?? 0);
  if (bytes.length < end) return MORE;
  return bytes.subarray(2, end).includes(NO_AUTHENTICATION)
    ? { kind: 'read', value: true, length: end }
    : refused(NO_METHOD, 'malformed');
}

/** Reads the request. */
export function readSocksRequest(bytes: Buffer): SocksStep<SocksTarget> {
  if (bytes.length < HEADER) return MORE;
  const [version, command, reserved, kind, length = 0] = bytes;
  if (version !== VERSION || reserved !== 0) return refused(reply(1), 'malformed');
  if (command !== CONNECT) return refused(SOCKS_REPLY.command, 'command');
  if (kind !== NAME) return refused(SOCKS_REPLY.address, 'address');
  const end = HEADER + length + 2;
  if (bytes.length < end) return MORE;
  // Every byte of the name is kept, NUL too: what is checked is what was sent.
  const name = bytes.toString('latin1', HEADER, HEADER + length);
  return { kind: 'read', value: { name, port: bytes.readUInt16BE(end - 2) }, length: end };
}

function refused(answer: Buffer, why: SocksFault): { kind: 'refused'; reply: Buffer; why: SocksFault } {
  return { kind: 'refused', reply: answer, why };
}
