// Writes a context as a tar stream: times and owners are always the same, so that the same files are the same bytes.

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

const BLOCK = 512;
const LONGEST_FIELD = 100;
// Fits in the field for it; anything larger is beyond every limit of a context.
const LARGEST = 8 ** 11 - 1;
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
  readonly target: string;
  readonly type: string;
}

function block({ name, mode, size, target, type }: Block): Buffer {
  if (size > LARGEST) throw new RangeError('a file is too large for an archive');
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, LONGEST_FIELD, 'utf8');
  header.write(octal(mode, 8), 100, 'latin1');
  // Root’s: nobody in a sandbox can change it, and everybody can read it.
  header.write(octal(0, 8), 108, 'latin1');
  header.write(octal(0, 8), 116, 'latin1');
  header.write(octal(size, 12), 124, 'latin1');
  header.write(octal(0, 12), 136, 'latin1');
  header.write(' '.repeat(8), 148, 'latin1');
  header.write(type, 156, 'latin1');
  header.write(target, 157, LONGEST_FIELD, 'utf8');
  header.write('ustar\u000000', 257, 'latin1');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return header;
}

function octal(value: number, width: number): string {
  return `${value.toString(8).padStart(width - 1, '0')}\0`;
}

function fits(text: string): boolean {
  // Only what is ASCII means the same to every reader of the short form.
  return /^[\u0020-\u007e]*$/.test(text) && text.length <= LONGEST_FIELD;
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
