// Archives of forks: the changes of all layers as one tar with the whiteouts of OCI image layers, written and read. An archive that
// is read comes from anywhere: an entry that is not plainly valid is refused, and no link of it is ever followed.

import {
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  openSync,
  readSync,
  symlinkSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import type { Stats } from 'node:fs';
import * as z from 'zod';
import { codeOf } from '../../contract/system-error.ts';
import { ByteReader, MalformedTar, headerBlock, readTar, tarEnd, tarPadding } from '../archive/tar-read.ts';
import type { TarItem } from '../archive/tar-read.ts';
import { bytes, fromText } from '../directory-look.ts';
import { HeldDirectories, LayerStack, kindOf, modeOf, pathIn, shown, sliced, split } from './layers.ts';
import type { ForkLayers, LayerEntry, MergedDirectory } from './layers.ts';
import { UnreadableLayersError, makeMarks, paxRecord } from './marks.ts';
import type { MarkOptions, NewMark } from './marks.ts';

// Tools that read OCI layers skip names that begin like this one.
const MANIFEST = '.wh..wh.acode-fork.json';
const OPAQUE = '.wh..wh..opq';
const WHITEOUT = '.wh.';
const USTAR = 'ustar\x0000';
const MAX_FIELD = 100;
const CHUNK = 256 * 1024;
const SECTOR = 512;
const MAX_HOLE_BYTES = 1024 ** 3;
const MAX_MANIFEST = 64 * 1024;
const MAX_PATH = 4095;
const MAX_NAME = 255;
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

const manifestSchema = z.strictObject({
  version: z.literal(1),
  fork: z.string().max(40),
  diffId: z.string().max(64),
  commands: z.int().nonnegative(),
  exportedAt: z.string().max(40),
});

/** What an archive says of the fork that it was made of. */
export type ForkManifest = z.infer<typeof manifestSchema>;

/** Why something of a fork is not in its archive. */
export type OmittedFrom = 'special' | 'name' | 'unreadable' | 'sparse';

/** How an archive is written. */
export interface ExportOptions extends MarkOptions {
  readonly manifest: ForkManifest;
  /** Takes each path that the archive lacks. */
  readonly omitted: (path: string, reason: OmittedFrom) => void;
}

/** Raised for an archive that is not one of a fork, or that has an entry which is not allowed. */
export class ForkArchiveError extends Error {
  override readonly name = 'ForkArchiveError';
  /** The entry, for a person; null where it is about the archive. */
  readonly entry: string | null;

  constructor(reason: string, entry: string | null = null) {
    super(reason);
    this.entry = entry;
  }
}

/** The archive of a fork’s layers, in pieces. Masked paths are not in it. */
export async function* exportLayers(
  layers: ForkLayers,
  options: ExportOptions,
): AsyncGenerator<Buffer, void, undefined> {
  using stack = await LayerStack.open(layers, { ...options, everyDirectory: true });
  const manifest = Buffer.from(JSON.stringify(options.manifest));
  yield* headerOf({ path: MANIFEST, type: '0', mode: 0o600, size: manifest.length, seconds: 0 });
  yield Buffer.concat([manifest, tarPadding(manifest.length)]);
  const writing = new Exporting(stack, options.omitted);
  for await (const piece of sliced(writing.directory(stack.root), options.signal)) yield piece;
  yield tarEnd();
}

class Exporting {
  readonly #stack: LayerStack;
  readonly #omitted: ExportOptions['omitted'];
  #holes = MAX_HOLE_BYTES;

  constructor(stack: LayerStack, omitted: ExportOptions['omitted']) {
    this.#stack = stack;
    this.#omitted = omitted;
  }

  *directory(merged: MergedDirectory): Generator<Buffer | null> {
    const names = this.#stack.names(merged);
    if (typeof names === 'string') {
      this.#omit(merged.path, 'unreadable');
      return;
    }
    for (const name of names) {
      yield null;
      if (!this.#stack.isMasked(pathIn(merged.path, name))) yield* this.#entry(merged, name);
    }
  }

  *#entry(merged: MergedDirectory, name: string): Generator<Buffer | null> {
    const path = pathIn(merged.path, name);
    const entry = this.#stack.entry(merged, name);
    // It would be taken for a whiteout.
    if (name.startsWith(WHITEOUT)) this.#omit(path, 'name');
    else if (entry.is === 'directory') yield* this.#folder(merged, entry);
    else if (entry.is === 'entry') yield* this.#other(path, entry);
    else if (entry.is === 'whiteout' && merged.showsWorkspace)
      yield* headerOf({ path: pathIn(merged.path, WHITEOUT + name), type: '0', mode: 0o600, size: 0, seconds: 0 });
  }

  *#folder(
    parent: MergedDirectory,
    { stats, directory }: Extract<LayerEntry, { is: 'directory' }>,
  ): Generator<Buffer | null> {
    yield* headerOf({ path: `${directory.path}/`, type: '5', ...fieldsOf(stats), size: 0 });
    if (parent.showsWorkspace && !directory.showsWorkspace)
      yield* headerOf({ path: pathIn(directory.path, OPAQUE), type: '0', mode: 0o600, size: 0, seconds: 0 });
    yield* this.directory(directory);
  }

  *#other(path: string, { stats, layer }: Extract<LayerEntry, { is: 'entry' }>): Generator<Buffer | null> {
    const { directory, name } = split(path);
    const folder = pathIn(this.#stack.upper(layer), directory);
    const kind = kindOf(stats);
    if (kind === 'file') yield* this.#file(path, folder, stats);
    else if (kind === 'fifo') yield* headerOf({ path, type: '6', ...fieldsOf(stats), size: 0 });
    else if (kind === 'link') {
      const target = this.#stack.files.readlink(folder, name);
      if (target === null) this.#omit(path, 'unreadable');
      else yield* headerOf({ path, type: '2', ...fieldsOf(stats), size: 0, target });
    } else this.#omit(path, 'special');
  }

  *#file(path: string, folder: string, stats: Stats): Generator<Buffer | null> {
    const hole = Math.max(0, stats.size - stats.blocks * SECTOR);
    if (hole > this.#holes) {
      this.#omit(path, 'sparse');
      return;
    }
    this.#holes -= hole;
    const file = this.#stack.files.openFile(folder, split(path).name);
    if (file === null) {
      this.#omit(path, 'unreadable');
      return;
    }
    try {
      yield* headerOf({ path, type: '0', ...fieldsOf(stats), size: stats.size });
      for (let at = 0; at < stats.size;) {
        const piece = Buffer.allocUnsafe(Math.min(CHUNK, stats.size - at));
        const read = readSync(file, piece, 0, piece.length, at);
        if (read === 0) throw new UnreadableLayersError(`${JSON.stringify(shown(path).text)} changed meanwhile`);
        yield piece.subarray(0, read);
        at += read;
      }
      yield tarPadding(stats.size);
    } finally {
      closeSync(file);
    }
  }

  #omit(path: string, reason: OmittedFrom): void {
    this.#omitted(shown(path).text, reason);
  }
}

interface EntryHeader {
  /** A byte string. */
  readonly path: string;
  readonly type: string;
  readonly mode: number;
  readonly size: number;
  readonly seconds: number;
  /** A byte string. */
  readonly target?: string;
}

function fieldsOf(stats: Stats): { readonly mode: number; readonly seconds: number } {
  return { mode: modeOf(stats), seconds: Math.max(0, Math.floor(stats.mtimeMs / 1000)) };
}

function* headerOf({ path, type, mode, size, seconds, target = '' }: EntryHeader): Generator<Buffer> {
  if (path.length > MAX_FIELD || target.length > MAX_FIELD) {
    const records = paxRecord('path', path) + (target === '' ? '' : paxRecord('linkpath', target));
    const content = bytes(records);
    const name = Buffer.from('pax');
    yield headerBlock({ name, mode: 0o600, size: content.length, seconds: 0, type: 'x', magic: USTAR });
    yield Buffer.concat([content, tarPadding(content.length)]);
  }
  const own = { name: bytes(path), mode, size, seconds, type, magic: USTAR };
  yield headerBlock(target === '' ? own : { ...own, target: bytes(target) });
}

/** Limits of an archive that is read. */
interface ImportLimits {
  readonly entries: number;
  readonly bytes: number;
}

const LIMITS: ImportLimits = { entries: 1_000_000, bytes: 16 * 1024 ** 3 };

/** Where an archive is unpacked. */
export interface ImportOptions extends MarkOptions {
  /** Directory of the new layer, empty and acode’s own. */
  readonly target: string;
  /** The workspace that the layer is to lie over. */
  readonly workspace: string;
  readonly limits?: ImportLimits;
}

/** Unpacks an archive as a layer. Rejects with {@link ForkArchiveError} at the first entry that is not allowed. */
export async function importLayer(source: AsyncIterable<Buffer>, options: ImportOptions): Promise<ForkManifest> {
  const { entries } = options.limits ?? LIMITS;
  using importing = new Importing(options);
  let manifest: ForkManifest | null = null;
  try {
    for await (const item of readTar(new ByteReader(source), 2 * entries + 2)) {
      options.signal.throwIfAborted();
      if (manifest) await importing.add(item);
      else manifest = await manifestOf(item);
    }
  } catch (error) {
    if (error instanceof MalformedTar) throw new ForkArchiveError(error.message);
    throw error;
  }
  if (!manifest) throw new ForkArchiveError('it is empty');
  await importing.finish();
  return manifest;
}

async function manifestOf(item: TarItem): Promise<ForkManifest> {
  const none = new ForkArchiveError('it does not begin with the manifest of `acode fork export`');
  if (item.name !== MANIFEST || item.kind !== 'file' || item.size > MAX_MANIFEST) throw none;
  const pieces: Buffer[] = [];
  for await (const piece of item.content()) pieces.push(piece);
  try {
    return manifestSchema.parse(JSON.parse(Buffer.concat(pieces).toString('utf8')));
  } catch {
    throw none;
  }
}

class Importing implements Disposable {
  readonly #target: string;
  readonly #workspace: string;
  readonly #options: ImportOptions;
  readonly #limits: ImportLimits;
  // What each entry is: a name is used once, and only a directory has entries.
  readonly #kinds = new Map<string, 'directory' | 'other'>([['', 'directory']]);
  readonly #directories: { readonly path: string; readonly mode: number; readonly seconds: number }[] = [];
  readonly #marks: NewMark[] = [];
  readonly #files = new HeldDirectories();
  #bytes = 0;

  constructor(options: ImportOptions) {
    this.#options = options;
    this.#limits = options.limits ?? LIMITS;
    this.#target = fromText(options.target);
    this.#workspace = fromText(options.workspace);
  }

  async add(item: TarItem): Promise<void> {
    const refuse = (reason: string): never => {
      throw new ForkArchiveError(reason, shown(item.name).text);
    };
    const path = item.kind === 'directory' ? item.name.replace(/\/$/, '') : item.name;
    const fault = faultOf(path);
    if (fault !== null) refuse(fault);
    const { directory, name } = split(path);
    if (this.#kinds.get(directory) !== 'directory') refuse('the directory that it is in is not an entry before it');
    if (this.#kinds.size > this.#limits.entries) refuse(`it is beyond ${this.#limits.entries} entries`);
    if (name.startsWith(WHITEOUT)) this.#mark(item, directory, name, refuse);
    else {
      this.#take(path, item.kind === 'directory' ? 'directory' : 'other', refuse);
      await this.#make(item, path, refuse);
    }
  }

  // Marks need a program, and modes and times of directories would change with what is put into them: both come last.
  async finish(): Promise<void> {
    if (this.#marks.length > 0) await makeMarks(this.#options.target, this.#marks, this.#options);
    for (const { path, mode, seconds } of this.#directories.reverse()) {
      const own = bytes(pathIn(this.#target, path));
      utimesSync(own, seconds, seconds);
      chmodSync(own, mode);
    }
  }

  [Symbol.dispose](): void {
    this.#files[Symbol.dispose]();
  }

  #take(path: string, kind: 'directory' | 'other', refuse: (reason: string) => never): void {
    if (this.#kinds.has(path)) refuse('there is an entry of this name before it');
    this.#kinds.set(path, kind);
  }

  #mark(item: TarItem, directory: string, name: string, refuse: (reason: string) => never): void {
    if (item.kind !== 'file' || item.size > 0) refuse('it has the name of a whiteout, and is not an empty file');
    if (name === OPAQUE) {
      this.#take(pathIn(directory, OPAQUE), 'other', refuse);
      if (directory === '') refuse('it would hide the whole workspace');
      this.#marks.push({ path: directory, kind: 'opaque', mode: 0o700 });
      return;
    }
    const hidden = name.slice(WHITEOUT.length);
    if (hidden.startsWith(WHITEOUT) || faultOf(hidden) !== null) refuse('it is a whiteout of no valid name');
    this.#take(pathIn(directory, hidden), 'other', refuse);
    // Over nothing, the kernel would show it as a name that leads nowhere.
    const isMerged = this.#files.lstat(pathIn(this.#workspace, directory), '.')?.isDirectory();
    if (isMerged) this.#marks.push({ path: pathIn(directory, hidden), kind: 'whiteout', mode: 0 });
  }

  async #make(item: TarItem, path: string, refuse: (reason: string) => never): Promise<void> {
    const own = bytes(pathIn(this.#target, path));
    const mode = item.mode & 0o7777;
    const seconds = Math.max(0, item.modifiedSeconds);
    try {
      if (item.kind === 'directory') {
        mkdirSync(own, { mode: 0o700 });
        this.#directories.push({ path, mode, seconds });
      } else if (item.kind === 'symbolic link') symlinkSync(bytes(item.target), own);
      else if (item.kind === 'FIFO') this.#marks.push({ path, kind: 'fifo', mode });
      else if (item.kind === 'file') {
        await this.#write(item, own, refuse);
        utimesSync(own, seconds, seconds);
        chmodSync(own, mode);
      } else refuse(`it is a ${item.kind}`);
    } catch (error) {
      // On a file system that takes upper and lower case for the same, another entry may have the name.
      if (codeOf(error) === 'EEXIST') refuse('this file system has an entry before it under the same name');
      throw error;
    }
  }

  async #write(item: TarItem, own: Buffer, refuse: (reason: string) => never): Promise<void> {
    this.#bytes += item.size;
    if (this.#bytes > this.#limits.bytes) refuse(`with it, the archive has more than ${this.#limits.bytes} bytes`);
    const file = openSync(own, NEW_FILE, 0o600);
    try {
      for await (const piece of item.content()) for (let at = 0; at < piece.length;) at += writeSync(file, piece, at);
    } finally {
      closeSync(file);
    }
  }
}

// Why a path is not one below a directory; null where it is.
function faultOf(path: string): string | null {
  if (path.startsWith('/')) return 'its path is absolute';
  if (path.length > MAX_PATH || path.includes('\0')) return 'its path is too long, or not one';
  const names = path.split('/');
  if (names.some(name => name === '' || name === '.' || name === '..'))
    return 'its path has `.`, `..` or nothing between slashes';
  return names.some(name => name.length > MAX_NAME) ? 'a name in its path is too long' : null;
}
