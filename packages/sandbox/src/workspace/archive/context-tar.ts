// Writes a context as a tar stream: times and owners are always the same, so that the same files are the same bytes.

import { MAX_OCTAL, headerBlock, tarPadding } from './tar-read.ts';

/** One entry of an archive. */
export interface TarEntry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'link';
  readonly mode: number;
  /** Of a file. */
  readonly size: number;
  /** Where a link leads. */
  readonly target?: string;
}

const MAX_FIELD = 100;
const POSIX = 'ustar\u000000';
const KINDS = { file: '0', link: '2', directory: '5', extended: 'x' } as const;

/** The blocks before an entry’s content. */
export function tarHeader(entry: TarEntry): Buffer {
  const name = entry.kind === 'directory' ? `${entry.path}/` : entry.path;
  const { target = '' } = entry;
  const extended = [...record('path', name), ...record('linkpath', target)];
  const header = block({ ...entry, name: clipped(name), target: clipped(target), type: KINDS[entry.kind] });
  if (extended.length === 0) return header;
  const content = Buffer.from(extended.join(''), 'utf8');
  const before = block({ name: 'extended', mode: 0o644, size: content.length, target: '', type: KINDS.extended });
  return Buffer.concat([before, content, tarPadding(content.length), header]);
}

interface Block {
  readonly name: string;
  readonly mode: number;
  readonly size: number;
  readonly target: string;
  readonly type: string;
}

function block({ name, mode, size, target, type }: Block): Buffer {
  // Anything larger is beyond every limit of a context.
  if (size > MAX_OCTAL) throw new RangeError('a file is too large for an archive');
  const [own, leads] = [Buffer.from(name, 'utf8'), Buffer.from(target, 'utf8')];
  return headerBlock({ name: own, mode, size, seconds: 0, type, target: leads, magic: POSIX });
}

function fits(text: string): boolean {
  // Only what is ASCII means the same to every reader of the short form.
  return /^[\u0020-\u007e]*$/.test(text) && text.length <= MAX_FIELD;
}

function clipped(text: string): string {
  return fits(text) ? text : 'extended';
}

// `LENGTH key=value\n`, where the length counts its own digits too.
function record(key: string, value: string): string[] {
  if (fits(value)) return [];
  const rest = ` ${key}=${value}\n`;
  const bytes = Buffer.byteLength(rest);
  let length = bytes + String(bytes).length;
  if (bytes + String(length).length !== length) length = bytes + String(length).length;
  return [`${length}${rest}`];
}
