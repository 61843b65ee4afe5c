// ClientHello reader: the server name that a TLS client asks for, read before a byte is passed on.
//
// With Encrypted Client Hello the outer name is the one that is read and judged: it is what the network sees, and what decides
// which server answers if the inner one cannot be decrypted.

/** What the first bytes of a connection say. */
export type ClientHello =
  | { readonly kind: 'more' }
  | { readonly kind: 'hello'; readonly serverName: string | null }
  | { readonly kind: 'refused'; readonly why: 'not-tls' | 'malformed' | 'too-large' };

/** The longest ClientHello that is read. One with post-quantum keys and Encrypted Client Hello has about 3 KiB. */
export const MAX_HELLO_BYTES = 32 * 1024;

const MAX_RECORD_BYTES = 16 * 1024;
const MAX_RECORDS = 64;
const RECORD_HEADER = 5;
const MESSAGE_HEADER = 4;
const HANDSHAKE = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const RANDOM_BYTES = 32;
const MAX_SESSION_ID = 32;

const MORE: ClientHello = { kind: 'more' };
const NOT_TLS: ClientHello = { kind: 'refused', why: 'not-tls' };
const MALFORMED: ClientHello = { kind: 'refused', why: 'malformed' };
const TOO_LARGE: ClientHello = { kind: 'refused', why: 'too-large' };

/** Reads a ClientHello from the first bytes of a connection, in one record or split over several. */
export function readClientHello(bytes: Buffer): ClientHello {
  const fragments: Buffer[] = [];
  let [at, gathered] = [0, 0];
  while (fragments.length < MAX_RECORDS) {
    const record = readRecord(bytes, at);
    if (!Buffer.isBuffer(record)) return record;
    fragments.push(record);
    gathered += record.length;
    at += RECORD_HEADER + record.length;
    const message = messageOf(fragments, gathered);
    if (message.kind !== 'more') return message;
  }
  return TOO_LARGE;
}

function readRecord(bytes: Buffer, at: number): Buffer | ClientHello {
  // Judged byte by byte as they arrive: a client that speaks something else is not waited for.
  if (at < bytes.length && bytes[at] !== HANDSHAKE) return at === 0 ? NOT_TLS : MALFORMED;
  if (at + 1 < bytes.length && bytes[at + 1] !== 3) return NOT_TLS;
  if (bytes.length < at + RECORD_HEADER) return MORE;
  const length = bytes.readUInt16BE(at + 3);
  if (length === 0 || length > MAX_RECORD_BYTES) return MALFORMED;
  const end = at + RECORD_HEADER + length;
  return bytes.length < end ? MORE : bytes.subarray(at + RECORD_HEADER, end);
}

function messageOf(fragments: readonly Buffer[], gathered: number): ClientHello {
  if (fragments[0]?.[0] !== CLIENT_HELLO) return MALFORMED;
  if (gathered < MESSAGE_HEADER) return MORE;
  const whole = fragments.length === 1 ? fragments[0] : Buffer.concat(fragments);
  const length = whole.readUIntBE(1, 3);
  if (length + MESSAGE_HEADER > MAX_HELLO_BYTES) return TOO_LARGE;
  if (gathered < length + MESSAGE_HEADER) return MORE;
  // A second message in the same record would be read by the server and not by us.
  if (gathered > length + MESSAGE_HEADER) return MALFORMED;
  const body = new Fields(whole.subarray(MESSAGE_HEADER));
  const serverName = nameIn(body);
  return body.isValid ? { kind: 'hello', serverName } : MALFORMED;
}

function nameIn(body: Fields): string | null {
  body.take(2 + RANDOM_BYTES);
  body.require(body.vector(1).length <= MAX_SESSION_ID);
  const suites = body.vector(2);
  body.require(suites.length >= 2 && suites.length % 2 === 0);
  body.require(body.vector(1).length > 0);
  if (body.left === 0) return null;
  const extensions = new Fields(body.vector(2));
  body.require(body.left === 0);
  const seen = new Set<number>();
  let name: string | null = null;
  while (extensions.left > 0 && extensions.isValid) {
    const type = extensions.number(2);
    const content = extensions.vector(2);
    // Of two names the server might take the other one.
    extensions.require(!seen.has(type));
    seen.add(type);
    if (type === SERVER_NAME) name = serverNameIn(content, body);
  }
  body.require(extensions.isValid);
  return name;
}

function serverNameIn(content: Buffer, body: Fields): string {
  const fields = new Fields(content);
  const list = new Fields(fields.vector(2));
  list.require(list.number(1) === 0);
  const name = list.vector(2).toString('latin1');
  body.require(fields.isValid && fields.left === 0 && list.isValid && list.left === 0);
  body.require(/^[\x21-\x7e]+$/.test(name));
  return name;
}

/** Fields of a message, one after another. What goes beyond the end makes the whole invalid. */
class Fields {
  isValid = true;
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  require(isTrue: boolean): void {
    this.isValid &&= isTrue;
  }

  take(length: number): Buffer {
    this.require(length <= this.left);
    if (!this.isValid) return Buffer.alloc(0);
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  number(width: number): number {
    const bytes = this.take(width);
    return bytes.length === width ? bytes.readUIntBE(0, width) : 0;
  }

  vector(width: number): Buffer {
    return this.take(this.number(width));
  }
}
