// The blocks that archives are made of, in whatever form: what a header has in every one of them, the filling and the end.

const BLOCK = 512;
const MAX_FIELD = 100;
const NUL = '\0';

/** The largest number that a header has digits for. */
export const MAX_OCTAL = 8 ** 11 - 1;

/** What stands in a header. Owner and group are root’s: whoever unpacks it decides. */
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
