// Reads an archive from an untrusted source, a stream of bytes in pieces of a wanted length: everything that is not plainly valid is
// refused. It writes nothing: its reader decides about each entry.

/** Takes bytes in the order in which they come, holding no more than the last chunk. */
export class ByteReader {
  readonly #source: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At least one byte and at most so many; null at the end. */
  async some(most: number): Promise<Buffer | null> {
    while (this.#held.length === 0) {
      const step = await this.#source.next();
      if (step.done) return null;
      this.#held = step.value;
    }
    const piece = this.#held.subarray(0, most);
    this.#held = this.#held.subarray(piece.length);
    return piece;
  }

  /** Exactly so many bytes, or fewer where the stream ends before. */
  async exactly(length: number): Promise<Buffer> {
    const pieces: Buffer[] = [];
    for (let left = length; left > 0;) {
      const piece = await this.some(left);
      if (!piece) break;
      pieces.push(piece);
      left -= piece.length;
    }
    const [only] = pieces;
    return only && pieces.length === 1 ? only : Buffer.concat(pieces);
  }

  /** A line without its end; null where there is none within so many bytes. */
  async line(longest: number): Promise<string | null> {
    let line = '';
    while (line.length < longest) {
      const byte = await this.some(1);
      if (!byte) return null;
      if (byte[0] === 0x0a) return line;
      line += byte.toString('latin1');
    }
    return null;
  }
}

/** What an entry is. Only files and directories have a place on a host. */
export type TarKind =
  'file' | 'directory' | 'symbolic link' | 'hard link' | 'device' | 'FIFO' | 'entry of another kind';

/** One entry. What is left of its content when the next is asked for is skipped. */
export interface TarItem {
  /** In latin1, byte for byte. */
  readonly name: string;
  readonly kind: TarKind;
  readonly mode: number;
  readonly size: number;
  readonly modifiedSeconds: number;
  /** Where a link leads, in latin1; empty for what is not one. */
  readonly target: string;
  content(): AsyncGenerator<Buffer, void, undefined>;
}

/** Raised for an archive that is not what an archive should be; the message says why. */
export class MalformedTar extends Error {
  override readonly name = 'MalformedTar';
  /** Whether it only ends too early, as after a failure of whoever wrote it. */
  readonly isTruncated: boolean;

  constructor(message: string, isTruncated = false) {
    super(message);
    this.isTruncated = isTruncated;
  }
}

const BLOCK = 512;
const MAX_METADATA = 1024 ** 2;
// After its end an archive is filled up to the size of a record; more is no filling.
const MAX_FILLING = 1024 ** 2;
const KINDS: Readonly<Record<string, TarKind>> = {
  '0': 'file',
  '\0': 'file',
  '7': 'file',
  '1': 'hard link',
  '2': 'symbolic link',
  '3': 'device',
  '4': 'device',
  '5': 'directory',
  '6': 'FIFO',
};

interface Header {
  readonly name: string;
  readonly type: string;
  readonly mode: number;
  readonly size: number;
  readonly modifiedSeconds: number;
  readonly target: string;
}

// What entries before another say of it.
interface Announced {
  name?: string;
  target?: string;
  size?: number;
  sparse?: boolean;
}

/** The entries of an archive, in order. `mostHeaders` bounds what may stand before the end, of whatever kind. */
export async function* readTar(bytes: ByteReader, mostHeaders: number): AsyncGenerator<TarItem, void, undefined> {
  let announced: Announced = {};
  for (let count = 0; ; count++) {
    const header = await nextHeader(bytes);
    if (!header) return;
    if (count >= mostHeaders) throw new MalformedTar('it has too many headers');
    if ('LKxg'.includes(header.type)) {
      announced = { ...announced, ...(await readAnnounced(bytes, header)) };
      continue;
    }
    yield* entry(bytes, header, announced);
    announced = {};
  }
}

async function* entry(
  bytes: ByteReader,
  header: Header,
  announced: Announced,
): AsyncGenerator<TarItem, void, undefined> {
  const name = announced.name ?? header.name;
  const size = announced.size ?? header.size;
  const kind = announced.sparse ? 'entry of another kind' : kindOf(header.type, name);
  if (size > 0 && kind !== 'file' && kind !== 'entry of another kind')
    throw new MalformedTar(`a ${kind} is said to have content`);
  const body = new Body(bytes, size);
  const { mode, modifiedSeconds } = header;
  const target = kind.endsWith('link') ? (announced.target ?? header.target) : '';
  yield { name, kind, mode, size, modifiedSeconds, target, content: () => body.chunks() };
  await body.skip();
}

// The oldest archives have no type for directories.
function kindOf(type: string, name: string): TarKind {
  const kind = KINDS[type] ?? 'entry of another kind';
  return kind === 'file' && name.endsWith('/') ? 'directory' : kind;
}

class Body {
  readonly #bytes: ByteReader;
  #left: number;
  #padding: number;

  constructor(bytes: ByteReader, size: number) {
    this.#bytes = bytes;
    this.#left = size;
    this.#padding = (BLOCK - (size % BLOCK)) % BLOCK;
  }

  async *chunks(): AsyncGenerator<Buffer, void, undefined> {
    while (this.#left > 0) {
      const chunk = await this.#bytes.some(this.#left);
      if (!chunk) throw truncated();
      this.#left -= chunk.length;
      yield chunk;
    }
  }

  async skip(): Promise<void> {
    const rest = this.chunks();
    while (!(await rest.next()).done);
    const padding = await this.#bytes.exactly(this.#padding);
    if (padding.length < this.#padding) throw truncated();
    this.#padding = 0;
  }
}

async function nextHeader(bytes: ByteReader): Promise<Header | null> {
  const block = await bytes.exactly(BLOCK);
  if (block.length < BLOCK) throw truncated();
  if (!isEmpty(block)) return parseHeader(block);
  const second = await bytes.exactly(BLOCK);
  if (second.length < BLOCK || !isEmpty(second)) throw truncated();
  for (let filling = 0; ;) {
    const more = await bytes.some(BLOCK);
    if (!more) return null;
    filling += more.length;
    if (filling > MAX_FILLING) throw new MalformedTar('it continues after its end');
  }
}

function isEmpty(block: Buffer): boolean {
  return block.every(byte => byte === 0);
}

function truncated(): MalformedTar {
  return new MalformedTar('it ends in the middle', true);
}

function parseHeader(block: Buffer): Header {
  let sum = 8 * 0x20;
  for (let at = 0; at < BLOCK; at++) if (at < 148 || at >= 156) sum += block[at] ?? 0;
  if (sum !== number(block, 148, 8)) throw new MalformedTar('a header is invalid, or the one before has a wrong size');
  const name = text(block, 0, 100);
  const prefix = block.toString('latin1', 257, 263) === 'ustar\0' ? text(block, 345, 155) : '';
  return {
    name: prefix === '' ? name : `${prefix}/${name}`,
    type: block.toString('latin1', 156, 157),
    mode: number(block, 100, 8),
    size: number(block, 124, 12),
    modifiedSeconds: number(block, 136, 12),
    target: text(block, 157, 100),
  };
}

function text(block: Buffer, from: number, length: number): string {
  const field = block.subarray(from, from + length);
  const end = field.indexOf(0);
  return field.toString('latin1', 0, end === -1 ? length : end);
}

function number(block: Buffer, from: number, length: number): number {
  const first = block[from] ?? 0;
  if (first & 0x80) return large(block.subarray(from, from + length), first);
  const digits = text(block, from, length).trim();
  if (!/^[0-7]*$/.test(digits)) throw new MalformedTar('a header has an invalid number');
  return digits === '' ? 0 : Number.parseInt(digits, 8);
}

// Larger numbers than octal digits have room for, or negative ones.
function large(field: Buffer, first: number): number {
  const value = BigInt(`0x${field.toString('hex')}`) - (BigInt(first) << BigInt((field.length - 1) * 8));
  const whole = value + (BigInt(first & 0x7f) << BigInt((field.length - 1) * 8));
  if (whole > BigInt(Number.MAX_SAFE_INTEGER)) throw new MalformedTar('a header has a number beyond all bounds');
  return Number(whole);
}

async function readAnnounced(bytes: ByteReader, { type, size }: Header): Promise<Announced> {
  if (size > MAX_METADATA) throw new MalformedTar('the metadata of an entry is too long');
  const body = new Body(bytes, size);
  const pieces: Buffer[] = [];
  for await (const chunk of body.chunks()) pieces.push(chunk);
  await body.skip();
  const content = Buffer.concat(pieces);
  if (type === 'L') return { name: content.toString('latin1').replace(/\0[^]*$/, '') };
  if (type === 'K') return { target: content.toString('latin1').replace(/\0[^]*$/, '') };
  return type === 'x' ? readRecords(content) : {};
}

// `LENGTH key=value\n`, one after the other.
function readRecords(content: Buffer): Announced {
  const announced: Announced = {};
  for (let at = 0; at < content.length;) {
    const head = /^(\d{1,7}) /.exec(content.toString('latin1', at, at + 8));
    const end = at + Number(head?.[1] ?? 0);
    if (!head || end <= at + head[0].length || end > content.length || content[end - 1] !== 0x0a)
      throw new MalformedTar('the metadata of an entry cannot be read');
    apply(announced, content.toString('latin1', at + head[0].length, end - 1));
    at = end;
  }
  return announced;
}

function apply(announced: Announced, record: string): void {
  const equals = record.indexOf('=');
  const [key, value] = [record.slice(0, equals), record.slice(equals + 1)];
  if (key === 'path') announced.name = value;
  else if (key === 'linkpath') announced.target = value;
  else if (key === 'size') announced.size = decimal(value);
  else if (key.startsWith('GNU.sparse.')) announced.sparse = true;
}

function decimal(value: string): number {
  const size = Number(value);
  if (!/^\d+$/.test(value) || !Number.isSafeInteger(size)) throw new MalformedTar('it has an invalid size');
  return size;
}

const MAX_FIELD = 100;
const NUL = '\0';

/** The largest number that a header has digits for. */
export const MAX_OCTAL = 8 ** 11 - 1;

/** Fields of a header. Owner and group are root’s: the program that unpacks it decides. */
export interface HeaderFields {
  readonly name: Uint8Array;
  readonly mode: number;
  readonly size: number;
  readonly seconds: number;
  readonly type: string;
  /** Where a link leads. */
  readonly target?: Uint8Array;
  /** Which form the archive is of. */
  readonly magic: string;
}

/** One header. Names and targets are cut where the field ends. */
export function headerBlock({ name, mode, size, seconds, type, target, magic }: HeaderFields): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.set(name.subarray(0, MAX_FIELD), 0);
  header.write(octal(mode, 8), 100, 'latin1');
  header.write(octal(0, 8), 108, 'latin1');
  header.write(octal(0, 8), 116, 'latin1');
  if (size > MAX_OCTAL) writeLarge(header, size);
  else header.write(octal(size, 12), 124, 'latin1');
  header.write(octal(seconds, 12), 136, 'latin1');
  header.write(' '.repeat(8), 148, 'latin1');
  header.write(type, 156, 'latin1');
  if (target) header.set(target.subarray(0, MAX_FIELD), 157);
  header.write(magic, 257, 'latin1');
  let sum = 0;
  for (const byte of header) sum += byte;
  header.write(`${sum.toString(8).padStart(6, '0')}${NUL} `, 148, 'latin1');
  return header;
}

/** What fills up the last block of a content. */
export function tarPadding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** The end of an archive. */
export function tarEnd(): Buffer {
  return Buffer.alloc(2 * BLOCK);
}

/** The same bytes in portions of at least a size: thousands of small pieces would each be sent on their own. */
export async function* gathered(
  source: AsyncIterable<Buffer>,
  portion: number,
): AsyncGenerator<Buffer, void, undefined> {
  let held: Buffer[] = [];
  let length = 0;
  for await (const piece of source) {
    held.push(piece);
    length += piece.length;
    if (length < portion) continue;
    yield Buffer.concat(held, length);
    held = [];
    length = 0;
  }
  if (length > 0) yield Buffer.concat(held, length);
}

function octal(value: number, width: number): string {
  return value.toString(8).padStart(width - 1, '0') + NUL;
}

function writeLarge(header: Buffer, size: number): void {
  header.writeBigUInt64BE(BigInt(size), 128);
  header[124] = 0x80;
}

/** One entry. The name is in latin1, byte for byte. */
export interface TarEntry {
  readonly name: string;
  readonly kind: 'file' | 'directory';
  readonly mode: number;
  /** Of a file. */
  readonly size: number;
  readonly modifiedMs: number;
}

const MAX_NAME = 100;
const GNU = `ustar  ${NUL}`;

/** The blocks before an entry’s content. */
export function tarHeader({ name, kind, mode, size, modifiedMs }: TarEntry): Buffer {
  const full = kind === 'directory' ? `${name}/` : name;
  const seconds = Math.min(Math.max(0, Math.floor(modifiedMs / 1000)), MAX_OCTAL);
  const bytes = Buffer.from(full, 'latin1');
  const type = kind === 'directory' ? '5' : '0';
  const own = headerBlock({ name: bytes, mode, size, seconds, type, magic: GNU });
  if (full.length <= MAX_NAME) return own;
  const content = Buffer.concat([bytes, Buffer.from(NUL)]);
  const announced = { name: Buffer.from('././@LongLink'), mode: 0, seconds: 0, type: 'L', magic: GNU };
  const before = headerBlock({ ...announced, size: content.length });
  return Buffer.concat([before, content, tarPadding(content.length), own]);
}
