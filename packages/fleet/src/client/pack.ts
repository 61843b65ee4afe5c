// Packing of a workspace: an archive as `acode fork import` takes it, compressed. Repositories of git and what is excluded stay out.

import { constants } from 'node:fs';
import { lstat, open, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { FLEET_ERRORS } from '../errors.ts';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';

const packed = promisify(gzip);
const BLOCK = 512;
const MAX_FIELD = 100;
const MAX_BYTES = 256 * 1024 ** 2;
const MANIFEST = '.wh..wh.acode-fork.json';
const EXCLUDED: readonly string[] = ['.git', 'node_modules', '.env'];

/** What is left out of a packed workspace. */
export interface PackOptions {
  /** Names that are left out wherever they are; `.git`, `node_modules` and `.env` by default. */
  readonly exclude?: readonly string[];
}

/**
 * Packs a directory as the workspace of a task. Links are packed as links, and none is followed; sockets, devices and names that the
 * archive cannot have are left out.
 *
 * @example
 * const workspace = await packWorkspace('.', { exclude: ['.git', 'node_modules', 'dist'] });
 */
export async function packWorkspace(directory: string, { exclude = EXCLUDED }: PackOptions = {}): Promise<Uint8Array> {
  const about = { version: 1, fork: 'workspace', diffId: '', commands: 0, exportedAt: new Date().toISOString() };
  const pieces = entry({ path: MANIFEST, type: '0', mode: 0o600, content: Buffer.from(JSON.stringify(about)) });
  let bytes = 0;
  for await (const more of walk(directory, '', new Set(exclude))) {
    for (const piece of more) bytes += piece.length;
    assertBytes(bytes, MAX_BYTES);
    pieces.push(...more);
  }
  pieces.push(Buffer.alloc(2 * BLOCK));
  const archive = await packed(Buffer.concat(pieces));
  assertBytes(archive.length, MAX_BLOB_BYTES);
  return archive;
}

function assertBytes(bytes: number, maxBytes: number): void {
  if (bytes > maxBytes) throw FLEET_ERRORS.create('ACODE-FLT-007', { what: 'The workspace', bytes, maxBytes });
}

async function* walk(
  root: string,
  inside: string,
  excluded: ReadonlySet<string>,
): AsyncGenerator<Uint8Array[], void, undefined> {
  for (const name of (await readdir(join(root, inside))).sort()) {
    if (excluded.has(name) || name.startsWith('.wh.')) continue;
    const path = inside === '' ? name : `${inside}/${name}`;
    const stats = await lstat(join(root, path));
    const about = { path, mode: stats.mode & 0o777, seconds: Math.max(0, Math.floor(stats.mtimeMs / 1000)) };
    if (stats.isDirectory()) {
      yield entry({ ...about, path: `${path}/`, type: '5' });
      yield* walk(root, path, excluded);
    } else if (stats.isSymbolicLink()) yield entry({ ...about, type: '2', target: await readlink(join(root, path)) });
    else if (stats.isFile()) yield entry({ ...about, type: '0', content: await contentOf(join(root, path)) });
  }
}

// Exchanged for a link meanwhile, it is not followed.
async function contentOf(path: string): Promise<Buffer> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    assertBytes((await file.stat()).size, MAX_BYTES);
    return await file.readFile();
  } finally {
    await file.close();
  }
}

interface Entry {
  readonly path: string;
  readonly type: '0' | '2' | '5' | 'x';
  readonly mode: number;
  readonly seconds?: number;
  readonly content?: Uint8Array;
  readonly target?: string;
}

function entry({ path, type, mode, seconds = 0, content = new Uint8Array(), target = '' }: Entry): Uint8Array[] {
  const isLong = Buffer.byteLength(path) > MAX_FIELD || Buffer.byteLength(target) > MAX_FIELD;
  const records = record('path', path) + (target === '' ? '' : record('linkpath', target));
  const extended = isLong ? entry({ path: 'pax', type: 'x', mode: 0o600, content: Buffer.from(records) }) : [];
  const header = headerOf({ path, type, mode, seconds, size: content.length, target });
  return [...extended, header, content, Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK)];
}

// Its length counts itself.
function record(name: string, value: string): string {
  const rest = Buffer.byteLength(` ${name}=${value}\n`);
  const length = rest + String(rest + String(rest).length).length;
  return `${length} ${name}=${value}\n`;
}

function headerOf(of: {
  readonly path: string;
  readonly type: string;
  readonly mode: number;
  readonly seconds: number;
  readonly size: number;
  readonly target: string;
}): Buffer {
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number): void => {
    block.write(`${value.toString(8).padStart(width - 1, '0')}\0`, at, 'latin1');
  };
  Buffer.from(of.path).copy(block, 0, 0, MAX_FIELD);
  octal(of.mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(of.size, 124, 12);
  octal(of.seconds, 136, 12);
  block.write(' '.repeat(8), 148, 'latin1');
  block.write(of.type, 156, 'latin1');
  Buffer.from(of.target).copy(block, 157, 0, MAX_FIELD);
  block.write('ustar\x0000', 257, 'latin1');
  let sum = 0;
  for (const byte of block) sum += byte;
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}
