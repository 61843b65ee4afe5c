// Writes archives for the tar of an image: long names in GNU’s form, which busybox reads too, and not in that of POSIX, which it does not.
// Pure.

import { MAX_OCTAL, headerBlock, tarPadding } from './blocks.ts';

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
const NUL = '\0';
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
