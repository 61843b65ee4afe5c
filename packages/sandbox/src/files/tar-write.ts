// Writes archives for the tar of an image: long names in GNU’s form, which busybox reads too, and not in that of POSIX, which it does not.
// Pure.

/** One entry. The name is in latin1, byte for byte. */
export interface TarEntry {
  readonly name: string;
  readonly kind: 'file' | 'directory';
  readonly mode: number;
  /** Of a file. */
  readonly size: number;
  readonly modifiedMs: number;
}

const BLOCK = 512;
const LONGEST_NAME = 100;
const LARGEST_OCTAL = 8 ** 11 - 1;
const NUL = '\0';

/** The blocks before an entry’s content. */
export function tarHeader({ name, kind, mode, size, modifiedMs }: TarEntry): Buffer {
  const full = kind === 'directory' ? `${name}/` : name;
  const seconds = Math.min(Math.max(0, Math.floor(modifiedMs / 1000)), LARGEST_OCTAL);
  const own = block({ name: full, mode, size, seconds, type: kind === 'directory' ? '5' : '0' });
  if (full.length <= LONGEST_NAME) return own;
  const content = Buffer.from(full + NUL, 'latin1');
  const before = block({ name: '././@LongLink', mode: 0, size: content.length, seconds: 0, type: 'L' });
  return Buffer.concat([before, content, tarPadding(content.length), own]);
}

/** What fills up the last block of a content. */
export function tarPadding(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** The end of an archive. */
export function tarEnd(): Buffer {
  return Buffer.alloc(2 * BLOCK);
}

interface Block {
  readonly name: string;
  readonly mode: number;
  readonly size: number;
  readonly seconds: number;
  readonly type: string;
}

function block({ name, mode, size, seconds, type }: Block): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name.slice(0, LONGEST_NAME), 0, 'latin1');
  header.write(octal(mode, 8), 100, 'latin1');
  // Whoever unpacks it owns it.
  header.write(octal(0, 8), 108, 'latin1');
  header.write(octal(0, 8), 116, 'latin1');
  if (size > LARGEST_OCTAL) writeLarge(header, size);
  else header.write(octal(size, 12), 124, 'latin1');
  header.write(octal(seconds, 12), 136, 'latin1');
  header.write(' '.repeat(8), 148, 'latin1');
  header.write(type, 156, 'latin1');
  header.write(`ustar  ${NUL}`, 257, 'latin1');
  let sum = 0;
  for (const byte of header) sum += byte;
  header.write(`${sum.toString(8).padStart(6, '0')}${NUL} `, 148, 'latin1');
  return header;
}

function octal(value: number, width: number): string {
  return value.toString(8).padStart(width - 1, '0') + NUL;
}

function writeLarge(header: Buffer, size: number): void {
  header.writeBigUInt64BE(BigInt(size), 128);
  header[124] = 0x80;
}
