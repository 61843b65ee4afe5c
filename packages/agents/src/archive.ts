// Archive of an npm package: unpacks the files that are wanted, and nothing else. Regular files only; no name leads out.

import { createReadStream } from 'node:fs';
import { mkdir, open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { createGunzip } from 'node:zlib';

const BLOCK = 512;
// Beside it, the largest program of a preset is 371 MB.
const MAX_BYTES = 2 * 1024 ** 3;
const MAX_LONG_NAME = 64 * 1024;

/** Which files of an archive are wanted: what is at or below `from`, and where it goes. */
export interface Wanted {
  readonly from: string;
  readonly to: string;
}

/** Unpacks wanted files of a `.tgz` into a directory; returns how many. Throws where the archive is not a whole one. */
export async function unpack(
  archive: string,
  into: string,
  wanted: readonly Wanted[],
  signal: AbortSignal,
): Promise<number> {
  const input = createReadStream(archive).pipe(createGunzip());
  const reader = new Reader(input);
  let files = 0;
  let bytes = 0;
  let longName: string | null = null;
  try {
    for (;;) {
      signal.throwIfAborted();
      const header = await reader.take(BLOCK);
      if (header === null) throw new Error('the archive ends within a file');
      if (header.every(byte => byte === 0)) return files;
      const entry = entryOf(header);
      if (entry.kind === 'name') {
        longName = nameIn(await reader.text(entry.size));
        continue;
      }
      bytes += entry.size;
      if (bytes > MAX_BYTES) throw new Error('the archive is too large');
      const path = placeOf(longName ?? entry.name, wanted);
      longName = null;
      if (entry.kind !== 'file' || path === null) {
        await reader.skip(entry.size);
        continue;
      }
      const target = join(into, path);
      await mkdir(dirname(target), { recursive: true });
      await using file = await open(target, 'wx', entry.isExecutable ? 0o755 : 0o644);
      await reader.copy(entry.size, file);
      files += 1;
    }
  } finally {
    input.destroy();
  }
}

interface Entry {
  readonly kind: 'file' | 'name' | 'other';
  readonly name: string;
  readonly size: number;
  readonly isExecutable: boolean;
}

function entryOf(header: Buffer): Entry {
  const text = (from: number, to: number): string => header.toString('utf8', from, to).replace(/\0.*$/s, '');
  const size = Number.parseInt(text(124, 136).trim() || '0', 8);
  if (!Number.isSafeInteger(size) || size < 0) throw new Error('the archive has a file of no known size');
  const prefix = text(257, 262) === 'ustar' ? text(345, 500) : '';
  const type = text(156, 157);
  return {
    // `x` is the extended header of the next entry, which has a name that is too long for its own.
    kind: type === 'x' ? 'name' : type === '' || type === '0' ? 'file' : 'other',
    name: prefix === '' ? text(0, 100) : `${prefix}/${text(0, 100)}`,
    size,
    isExecutable: (Number.parseInt(text(100, 108).trim(), 8) & 0o111) !== 0,
  };
}

// Records of an extended header: `30 path=package/a/long/name\n`.
function nameIn(text: string): string | null {
  return /(?:^|\n)\d+ path=([^\n]*)\n/.exec(text)?.[1] ?? null;
}

// Where an entry goes; null where it is not wanted. All entries of a package of npm are below one directory.
function placeOf(name: string, wanted: readonly Wanted[]): string | null {
  const inside = name.slice(name.indexOf('/') + 1);
  if (name.startsWith('/') || inside.split('/').some(part => part === '..' || part === '.' || part === '')) return null;
  for (const { from, to } of wanted) {
    if (inside === from) return to;
    if (inside.startsWith(`${from}/`)) return `${to}${inside.slice(from.length)}`;
  }
  return null;
}

// Reads a stream by numbers of bytes.
class Reader {
  readonly #chunks: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);

  constructor(stream: AsyncIterable<Buffer>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** So many bytes; null at the end. */
  async take(count: number): Promise<Buffer | null> {
    while (this.#left.length < count) {
      const next = await this.#next();
      if (next === null) return null;
      this.#left = Buffer.concat([this.#left, next]);
    }
    const taken = this.#left.subarray(0, count);
    this.#left = this.#left.subarray(count);
    return taken;
  }

  async text(size: number): Promise<string> {
    if (size > MAX_LONG_NAME) throw new Error('the archive has a name that is too long');
    const found = await this.take(padded(size));
    if (found === null) throw new Error('the archive ends within a name');
    return found.toString('utf8', 0, size);
  }

  async skip(size: number): Promise<void> {
    await this.#each(padded(size), async () => undefined);
  }

  async copy(size: number, file: FileHandle): Promise<void> {
    await this.#each(size, bytes => file.writeFile(bytes));
    await this.#each(padded(size) - size, async () => undefined);
  }

  async #each(size: number, use: (bytes: Buffer) => Promise<void>): Promise<void> {
    let wanted = size;
    while (wanted > 0) {
      if (this.#left.length === 0) {
        const next = await this.#next();
        if (next === null) throw new Error('the archive ends within a file');
        this.#left = next;
      }
      const part = this.#left.subarray(0, wanted);
      this.#left = this.#left.subarray(part.length);
      wanted -= part.length;
      await use(part);
    }
  }

  async #next(): Promise<Buffer | null> {
    const next = await this.#chunks.next();
    return next.done === true ? null : next.value;
  }
}

function padded(size: number): number {
  return Math.ceil(size / BLOCK) * BLOCK;
}
