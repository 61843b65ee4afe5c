// Base of a fork: what the workspace had at each path before the fork first changed it. The overlay keeps none, and the workspace
// is live; without a base, a later edit of the user’s could not be told from what the fork began with.
//
// `index` has a line for each path, in the order in which they were recorded; copies of files lie beside it, by number.

import {
  closeSync,
  constants,
  copyFileSync,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  readFileSync,
  readSync,
  writeSync,
} from 'node:fs';
import type { Stats } from 'node:fs';
import { rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import type { ForkEntryKind } from '../../contract/fork.ts';
import { bytes, FileTimes, hasReliableTimes } from '../directory-look.ts';
import { hasCopy, linkCopy, removeCopy, sharedSchema, storeShared, storedBytes, writeAll } from './base-copies.ts';
import type { BaseCopy } from './base-copies.ts';
import { kindOf, modeOf, pathIn, sliced, split } from './layers.ts';
import type { LayerStack } from './layers.ts';

/** Limits of what is kept as base of one fork. Beyond them, a change of the workspace makes the base unknown. */
export interface BaseLimits {
  readonly records: number;
  readonly fileBytes: number;
  readonly totalBytes: number;
  /** For whole copies of files that could not be merged: they serve a later command that makes the file mergeable again. */
  readonly unmergeableBytes: number;
}

const LIMITS: BaseLimits = {
  records: 100_000,
  fileBytes: 8 * 1024 ** 2,
  totalBytes: 256 * 1024 ** 2,
  unmergeableBytes: 512 * 1024,
};
const INDEX = 'index';
const MAX_INDEX_BYTES = 512 * 1024 ** 2;
const CHUNK = 256 * 1024;
const APPENDED = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;
const NEW_FILE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

const recordSchema = z.strictObject({
  /** Byte string, relative to the workspace. */
  path: z.string(),
  /** Number of the layer that first changed it. */
  layer: z.int(),
  /** When that layer was begun, in milliseconds. */
  since: z.number(),
  kind: z.enum(['absent', 'unknown', 'file', 'directory', 'link', 'fifo', 'socket', 'device']),
  mode: z.int().optional(),
  size: z.number().optional(),
  link: z.string().optional(),
  /** Which object it was, and its change time. */
  identity: z.string().optional(),
  /** Number of the copy of its content. */
  copy: z.int().optional(),
  /** What of the copy is that of the fork’s own file; absent for a whole copy. */
  shared: sharedSchema.optional(),
  /** Of a file that needs no copy, since it cannot be merged. */
  sha256: z.string().optional(),
  /** The fork removed everything below; what is there has no records of its own. */
  deep: z.literal(true).optional(),
});
const lineSchema = z.union([
  recordSchema,
  z.strictObject({ begun: z.int(), since: z.number() }),
  z.strictObject({ done: z.int(), complete: z.boolean() }),
]);

type BaseRecord = z.infer<typeof recordSchema>;

/** What the fork began with at a path. */
export interface BaseEntry {
  readonly kind: ForkEntryKind;
  readonly mode: number;
  readonly size: number;
  /** Target of a link, a byte string. */
  readonly link: string | null;
  /** Where its content is: in the workspace still, in a file of the base, in the workspace if it is unchanged by its digest, or nowhere. */
  readonly content: 'workspace' | { readonly copy: BaseCopy } | { readonly sha256: string } | 'nowhere';
  /** Whether the workspace may have had something else when the fork first changed it. */
  readonly isUnknown: boolean;
}

/** What is known of a directory’s entries that have no record. */
export type BaseBelow =
  /** There was no directory. */
  | { readonly was: 'absent' }
  /** They are as in the workspace; since a time where one is given. */
  | { readonly was: 'directory'; readonly since: number | null };

/** What the fork began with at a path, and below it. */
export interface BaseFinding {
  readonly entry: BaseEntry | null;
  readonly below: BaseBelow;
}

/** The entries of the workspace’s top directory. */
export const BASE_ROOT: BaseBelow = { was: 'directory', since: null };
const ABSENT: BaseBelow = { was: 'absent' };

/** The base of a fork, as it was recorded so far. */
export class ForkBase {
  readonly directory: string;
  readonly records = new Map<string, BaseRecord>();
  /** Layers that were recorded to their end. */
  readonly done = new Set<number>();
  copies = 0;
  bytes = 0;
  /** Bytes of whole copies. */
  wholeBytes = 0;
  #earliest: number | null = null;
  readonly #exact: boolean;
  readonly #times = new Map<number, FileTimes>();

  private constructor(directory: string, workspace: string) {
    this.directory = directory;
    this.#exact = hasReliableTimes(workspace);
  }

  /** Reads a base. What a process that was killed left of a last line is ignored. */
  static read(directory: string, workspace: string): ForkBase {
    const base = new ForkBase(directory, workspace);
    for (const line of linesOf(join(directory, INDEX))) base.#add(line);
    return base;
  }

  /** A fork’s base before its first command. */
  static none(workspace: string): ForkBase {
    return new ForkBase('', workspace);
  }

  /** What the fork began with at a path, given what the workspace has there now. */
  before(path: string, host: Stats | null, above: BaseBelow, linkOf: () => string | null): BaseFinding {
    const record = this.records.get(path);
    const since = above.was === 'directory' ? above.since : null;
    if (record?.kind === 'absent' || (!record && above.was === 'absent')) return { entry: null, below: ABSENT };
    if (!record) return this.#present(host, { since: since ?? this.#earliest, linkOf });
    if (record.kind === 'unknown') return this.#present(host, { since: -Infinity, linkOf });
    return this.#recorded(record, record.kind, { host, since });
  }

  #recorded(
    record: BaseRecord,
    kind: ForkEntryKind,
    { host, since }: { readonly host: Stats | null; readonly since: number | null },
  ): BaseFinding {
    const { mode = 0, size = 0, link = null } = record;
    const content = this.#contentOf(record, host);
    const isUnknown = kind === 'file' && content === 'nowhere';
    return {
      entry: { kind, mode, size, link, content, isUnknown },
      below: kind === 'directory' ? { was: 'directory', since: record.deep ? record.since : since } : ABSENT,
    };
  }

  #contentOf({ copy: number, size = 0, ...record }: BaseRecord, host: Stats | null): BaseEntry['content'] {
    const { shared, identity, sha256 } = record;
    if (number !== undefined) {
      const copy = { directory: this.directory, number, size, shared };
      if (hasCopy(copy)) return { copy };
    }
    if (host && identity === identityOf(host)) return 'workspace';
    return sha256 === undefined ? 'nowhere' : { sha256 };
  }

  #present(
    host: Stats | null,
    { since, linkOf }: { readonly since: number | null; readonly linkOf: () => string | null },
  ): BaseFinding {
    if (!host) return { entry: null, below: ABSENT };
    const kind = kindOf(host);
    const isUnknown =
      since !== null && (kind === 'directory' ? this.isMoved(host, since) : this.isTouched(host, since));
    const link = kind === 'link' ? linkOf() : null;
    return {
      entry: { kind, mode: modeOf(host), size: host.size, link, content: 'workspace', isUnknown },
      below: kind === 'directory' ? { was: 'directory', since: isUnknown ? -Infinity : since } : ABSENT,
    };
  }

  /** Whether an entry of the workspace was changed after a time. Only the kernel sets the time that is asked for. */
  isTouched(stats: Pick<Stats, 'ctimeMs'>, since: number): boolean {
    return this.#timesSince(since).isTouched(stats);
  }

  /**
   * Whether a directory was renamed, or given another mode, after a time: files in a directory that came from elsewhere have old
   * change times. Its entries changing is nothing of the kind; that sets the time of its content too.
   */
  isMoved({ ctimeMs, mtimeMs }: Pick<Stats, 'ctimeMs' | 'mtimeMs'>, since: number): boolean {
    return this.isTouched({ ctimeMs }, since) && (since === -Infinity || !this.isTouched({ ctimeMs: mtimeMs }, since));
  }

  #timesSince(since: number): FileTimes {
    const known = this.#times.get(since);
    if (known) return known;
    const times = new FileTimes({ sinceMs: since, untilMs: Infinity }, this.#exact);
    this.#times.set(since, times);
    return times;
  }

  /** Takes a line of the index in. */
  #add(line: z.infer<typeof lineSchema>): void {
    if ('begun' in line) this.#earliest = Math.min(this.#earliest ?? Infinity, line.since);
    else if ('done' in line) this.done.add(line.done);
    else this.take(line);
  }

  /** Takes a record in. */
  take(record: BaseRecord): void {
    this.records.set(record.path, record);
    if (record.copy === undefined) return;
    this.copies = Math.max(this.copies, record.copy);
    this.bytes += storedBytes(record.size ?? 0, record.shared);
    if (!record.shared) this.wholeBytes += record.size ?? 0;
  }
}

function linesOf(path: string): z.infer<typeof lineSchema>[] {
  const text = textOf(path);
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .flatMap(line => parsed(line) ?? []);
}

// A process that was killed leaves half a line, of a layer that is recorded again.
function parsed(line: string): z.infer<typeof lineSchema> | null {
  try {
    return lineSchema.parse(JSON.parse(line));
  } catch {
    return null;
  }
}

function textOf(path: string): string {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (!stats) return '';
  if (!stats.isFile() || stats.size > MAX_INDEX_BYTES) throw new Error(`${path} is not an index that acode wrote`);
  return readFileSync(path, 'utf8');
}

/** What a recording did. */
export interface BaseReport {
  readonly recorded: number;
  readonly copied: number;
  readonly unknown: number;
  /** Whether a limit was reached, so that some paths have no record. */
  readonly isComplete: boolean;
}

/** The layer to record. */
export interface RecordedLayer {
  /** Index of the layer in the stack. */
  readonly index: number;
  /** Its number, which its records carry. */
  readonly number: number;
  /** When it was begun, in milliseconds, before anything could write to it. */
  readonly startedMs: number;
  /** Directory of the base. */
  readonly directory: string;
  readonly signal: AbortSignal;
  /** Whether a sandbox goes on writing it, so that its files are not what they will be. */
  readonly isLive?: boolean;
  readonly limits?: BaseLimits;
}

/** Records the base of every path that a layer changed and no layer before it. Doing it again adds nothing. */
export async function recordBase(stack: LayerStack, layer: RecordedLayer): Promise<BaseReport> {
  const base = ForkBase.read(layer.directory, stack.workspace);
  using recording = new Recording(stack, base, layer);
  for await (const record of sliced(recording.walk('', { since: layer.startedMs, isMoved: false }), layer.signal))
    void record;
  recording.end();
  return recording.report;
}

/** Removes the records of the layers from a number on, so that the next layer to change a path records it anew. */
export async function forgetBase(directory: string, fromLayer: number): Promise<void> {
  const lines = linesOf(join(directory, INDEX));
  const isKept = (line: z.infer<typeof lineSchema>): boolean => layerOf(line) < fromLayer;
  const draft = join(directory, `${INDEX}.new`);
  await writeFile(
    draft,
    lines
      .filter(isKept)
      .map(line => `${JSON.stringify(line)}\n`)
      .join(''),
    { mode: 0o600 },
  );
  await rename(draft, join(directory, INDEX));
  for (const line of lines)
    if ('path' in line && line.copy !== undefined && !isKept(line)) removeCopy(directory, line.copy);
}

/**
 * Takes what is recorded of the layers before a number over to another base, which is empty. Copies are the same files: no base
 * writes one again.
 */
export async function copyBase(from: string, to: string, beforeLayer: number): Promise<void> {
  const lines = linesOf(join(from, INDEX)).filter(line => layerOf(line) < beforeLayer);
  for (const line of lines) if ('path' in line && line.copy !== undefined) linkCopy(from, to, line.copy);
  await writeFile(join(to, INDEX), lines.map(line => `${JSON.stringify(line)}\n`).join(''), { mode: 0o600 });
}

function layerOf(line: z.infer<typeof lineSchema>): number {
  return 'path' in line ? line.layer : 'done' in line ? line.done : line.begun;
}

/** A path whose change the workspace has, and what the fork has there. */
export interface SettledPath {
  /** Byte string, relative to the workspace. */
  readonly path: string;
  /** What the fork has; null where it removed it. */
  readonly after: {
    readonly kind: ForkEntryKind;
    readonly mode: number;
    readonly size: number;
    readonly link: string | null;
    /** The file of the layer, absolute. */
    readonly file: string | null;
  } | null;
}

/** What was applied, and from where. */
export interface SettledChanges {
  readonly workspace: string;
  readonly paths: readonly SettledPath[];
  readonly layer: number;
  readonly atMs: number;
  /** Whether a sandbox goes on writing the layer, so that what it has now must be copied. */
  readonly isLive: boolean;
}

/**
 * Makes what the fork has at some paths the base of them: their changes were applied, and a later diff does not list them again. The
 * content is the layer’s own file under a second name: no command writes a layer that is complete.
 */
export function settleBase(directory: string, { workspace, paths, layer, atMs, isLive }: SettledChanges): void {
  const base = ForkBase.read(directory, workspace);
  const lines = paths.map(settled => {
    const record = settledRecord(base, settled, { layer, since: atMs, workspace, isLive });
    base.take(record);
    return `${JSON.stringify(record)}\n`;
  });
  const index = openSync(join(directory, INDEX), APPENDED, 0o600);
  try {
    endLine(index);
    writeAll(index, Buffer.from(lines.join('')));
  } finally {
    closeSync(index);
  }
}

function settledRecord(
  base: ForkBase,
  { path, after }: SettledPath,
  {
    layer,
    since,
    workspace,
    isLive,
  }: Pick<BaseRecord, 'layer' | 'since'> & Pick<SettledChanges, 'workspace' | 'isLive'>,
): BaseRecord {
  const known = { path, layer: base.records.get(path)?.layer ?? layer, since };
  if (!after) return { ...known, kind: 'absent' };
  const { kind, mode, size, link, file } = after;
  const about = { ...known, kind, mode, ...(link === null ? {} : { link }) };
  if (file === null) return about;
  // What is too large to copy is known as long as the workspace’s own file, which was made of it, is not changed.
  if (isLive && size > LIMITS.fileBytes) {
    const host = lstatSync(bytes(pathIn(workspace, path)), { throwIfNoEntry: false });
    return { ...about, size, ...(host ? { identity: identityOf(host) } : {}) };
  }
  const copy = base.copies + 1;
  const to = join(base.directory, String(copy));
  if (isLive) copyFileSync(bytes(file), to, constants.COPYFILE_EXCL);
  else linkSync(bytes(file), to);
  return { ...about, size, copy };
}

interface Course {
  /** When the first layer that changed what is above was begun. */
  readonly since: number;
  /** Whether a directory above was moved since. */
  readonly isMoved: boolean;
}

// What a layer has at a path, and the workspace.
interface Met {
  readonly path: string;
  readonly host: Stats;
  readonly layerHasDirectory: boolean;
  readonly layerHasFile: boolean;
}

class Recording implements Disposable {
  readonly #stack: LayerStack;
  readonly #base: ForkBase;
  readonly #layer: RecordedLayer;
  readonly #limits: BaseLimits;
  readonly #index: number;
  #pending = '';
  #recorded = 0;
  #copied = 0;
  #unknown = 0;
  #isComplete = true;

  constructor(stack: LayerStack, base: ForkBase, layer: RecordedLayer) {
    this.#stack = stack;
    this.#base = base;
    this.#layer = layer;
    this.#limits = layer.limits ?? LIMITS;
    this.#index = openSync(join(layer.directory, INDEX), APPENDED, 0o600);
    endLine(this.#index);
    this.#line({ begun: layer.number, since: layer.startedMs });
  }

  get report(): BaseReport {
    const [recorded, copied, unknown, isComplete] = [this.#recorded, this.#copied, this.#unknown, this.#isComplete];
    return { recorded, copied, unknown, isComplete };
  }

  *walk(path: string, course: Course): Generator<null> {
    const { files } = this.#stack;
    const directory = pathIn(this.#stack.upper(this.#layer.index), path);
    const names = files.list(directory);
    if (typeof names === 'string') return;
    for (const name of names) {
      yield null;
      const own = pathIn(path, name);
      if (this.#stack.isMasked(own)) continue;
      const stats = files.lstat(directory, name);
      if (!stats) continue;
      const next = yield* this.#record(own, stats, course);
      if (next && stats.isDirectory()) yield* this.walk(own, next);
    }
  }

  // Records a path; null where nothing below it needs a record, because the workspace has nothing there.
  *#record(path: string, stats: Stats, course: Course): Generator<null, Course | null> {
    const known = this.#base.records.get(path);
    if (known) return nextCourse(known, course);
    const { directory, name } = split(path);
    const host = this.#stack.host(directory, name);
    if (!host) {
      this.#take({ path, kind: 'absent', since: course.since });
      return null;
    }
    const layerHasDirectory = stats.isDirectory();
    const met = { path, host, layerHasDirectory, layerHasFile: stats.isFile() };
    const isMoved = course.isMoved || (host.isDirectory() && this.#base.isMoved(host, course.since));
    if (host.isDirectory()) return this.#recordDirectory(met, { since: course.since, isMoved });
    yield* this.#recordEntry(met, { since: course.since, isMoved });
    return null;
  }

  #recordDirectory({ path, host, layerHasDirectory }: Met, course: Course): Course {
    const isHidden = !layerHasDirectory || this.#stack.isOpaque(this.#layer.index, path);
    const kind = course.isMoved ? 'unknown' : 'directory';
    const deep = isHidden && kind === 'directory' ? { deep: true as const } : {};
    this.#take({ path, kind, since: course.since, mode: modeOf(host), ...deep });
    return course;
  }

  *#recordEntry(met: Met, { since, isMoved }: Course): Generator<null> {
    const { path, host } = met;
    const isUnknown = isMoved || this.#base.isTouched(host, since);
    const known = isUnknown ? null : yield* this.#contentOf(met);
    if (known === null) this.#take({ path, kind: 'unknown', since });
    else this.#take({ path, kind: kindOf(host), since, mode: modeOf(host), identity: identityOf(host), ...known });
  }

  // What is recorded of an entry besides; null where it changed meanwhile.
  *#contentOf(met: Met): Generator<null, Pick<BaseRecord, 'link' | 'size' | 'copy' | 'shared' | 'sha256'> | null> {
    const { directory, name } = split(met.path);
    const { size } = met.host;
    if (met.host.isSymbolicLink()) {
      const link = this.#stack.files.readlink(pathIn(this.#stack.workspace, directory), name);
      return link === null ? null : { link };
    }
    if (!met.host.isFile()) return {};
    const copy = this.#needsCopy(met) ? yield* this.#copy(met, directory, name) : null;
    if (copy === 'changed') return null;
    return { size, ...copy };
  }

  // A removed file is compared by what it was, never merged: that needs no copy.
  #needsCopy({ host, layerHasFile, layerHasDirectory }: Met): boolean {
    return (layerHasFile || layerHasDirectory) && host.size <= this.#limits.fileBytes && this.#hasRoom(host.size);
  }

  #hasRoom(size: number): boolean {
    return this.#recorded < this.#limits.records && this.#base.bytes + size <= this.#limits.totalBytes;
  }

  // The copy; null where it cannot be read.
  *#copy(
    met: Met,
    directory: string,
    name: string,
  ): Generator<null, Pick<BaseRecord, 'copy' | 'shared' | 'sha256'> | 'changed' | null> {
    const { host } = met;
    const from = this.#stack.files.openFile(pathIn(this.#stack.workspace, directory), name);
    if (from === null) return null;
    const copy = this.#base.copies + 1;
    const top = this.#layer.directory;
    try {
      if (identityOf(fstatSync(from)) !== identityOf(host)) return 'changed';
      // One that an interrupted undo left may be a file of another fork’s base too.
      removeCopy(top, copy);
      const found = this.#withoutCopy(this.#shared(met, from, copy), host.size);
      if (found === null) yield* copyWhole(from, join(top, String(copy)), host.size);
      if (identityOf(fstatSync(from)) === identityOf(host)) return found?.sha256 ? found : { copy, ...found };
      removeCopy(top, copy);
      return 'changed';
    } finally {
      closeSync(from);
    }
  }

  // Null where a whole copy is made: also of what no merge could use yet, as long as there is room for it.
  #withoutCopy(found: ReturnType<typeof storeShared>, size: number): Pick<BaseRecord, 'shared' | 'sha256'> | null {
    const hasRoom = this.#base.wholeBytes + size <= this.#limits.unmergeableBytes;
    return found && 'sha256' in found && hasRoom ? null : found;
  }

  // A copy by what the layer’s own file lacks; null where that saves nothing, or where the file is not yet what it will be.
  #shared({ path, host, layerHasFile }: Met, from: number, number: number): ReturnType<typeof storeShared> {
    if (!layerHasFile || this.#layer.isLive === true) return null;
    const upper = this.#stack.upper(this.#layer.index);
    const { directory, name } = split(path);
    const file = this.#stack.files.openFile(pathIn(upper, directory), name);
    if (file === null) return null;
    try {
      if (fstatSync(file).size > this.#limits.fileBytes) return null;
      const content = Buffer.alloc(host.size);
      let done = 0;
      for (let read = -1; read !== 0 && done < content.length; done += read)
        read = readSync(from, content, done, content.length - done, done);
      const own = { file, path: bytes(pathIn(upper, path)) };
      return done === content.length ? storeShared({ directory: this.#layer.directory, number }, content, own) : null;
    } finally {
      closeSync(file);
    }
  }

  #take(record: Omit<BaseRecord, 'layer'>): void {
    if (this.#base.records.size >= this.#limits.records) {
      this.#isComplete = false;
      return;
    }
    const whole = { ...record, layer: this.#layer.number };
    this.#base.take(whole);
    this.#recorded += 1;
    if (whole.copy !== undefined) this.#copied += 1;
    if (whole.kind === 'unknown') this.#unknown += 1;
    this.#line(whole);
  }

  #line(line: z.infer<typeof lineSchema>): void {
    this.#pending += `${JSON.stringify(line)}\n`;
    if (this.#pending.length > CHUNK) this.#flush();
  }

  #flush(): void {
    writeAll(this.#index, Buffer.from(this.#pending));
    this.#pending = '';
  }

  end(): void {
    this.#line({ done: this.#layer.number, complete: this.#isComplete });
    this.#flush();
  }

  [Symbol.dispose](): void {
    closeSync(this.#index);
  }
}

function nextCourse(known: BaseRecord, course: Course): Course | null {
  if (known.kind === 'unknown') return { ...course, isMoved: true };
  if (known.kind !== 'directory') return null;
  return known.deep ? { ...course, since: Math.min(known.since, course.since) } : course;
}

// A process that was killed may have left half a line, which must not become the beginning of the next.
function endLine(index: number): void {
  if (fstatSync(index).size > 0) writeSync(index, '\n');
}

function* copyWhole(from: number, path: string, size: number): Generator<null> {
  const to = openSync(path, NEW_FILE, 0o600);
  try {
    const buffer = Buffer.allocUnsafe(Math.min(CHUNK, Math.max(size, 1)));
    for (let at = 0; at < size;) {
      const read = readSync(from, buffer, 0, Math.min(buffer.length, size - at), at);
      if (read === 0) return;
      writeAll(to, buffer.subarray(0, read));
      at += read;
      yield null;
    }
  } finally {
    closeSync(to);
  }
}

function identityOf({ dev, ino, ctimeMs, size }: Stats): string {
  return `${dev}:${ino}:${ctimeMs}:${size}`;
}
