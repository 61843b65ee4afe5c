// Diff of a fork: every path that differs from what the fork began with, in a stream, with an id over all of it. Contents are
// compared, never times: a command can set those.

import { createHash } from 'node:crypto';
import type { Hash } from 'node:crypto';
import { closeSync, fstatSync, readSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { constants, open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import type {
  ForkChange,
  ForkContentGap,
  ForkDiffSummary,
  ForkEntryKind,
  ForkSides,
  WorkspaceDiff,
} from '../../contract/fork.ts';
import { hasDigest, openCopy } from './base-copies.ts';
import { BASE_ROOT, ForkBase } from './base.ts';
import type { BaseBelow, BaseEntry } from './base.ts';
import { LayerStack, kindOf, modeOf, pathIn, shown, sliced, split } from './layers.ts';
import type { ForkLayers, LayerEntry, Listing, MergedDirectory } from './layers.ts';
import { UnreadableLayersError } from './marks.ts';
import type { MarkOptions } from './marks.ts';

/** One change, with what apply and a patch need besides. */
export interface ForkDiffEntry {
  readonly change: ForkChange;
  /** The path as a byte string. */
  readonly bytes: string;
  /** Target of a link of the fork, as a byte string. */
  readonly target: string | null;
  /** Mode of the entry of the fork. */
  readonly mode: number | null;
  /** Where the entry is in its layer: absolute, a byte string. */
  readonly source: string | null;
  /** Target of the link that the fork began with, as a byte string. */
  readonly baseTarget: string | null;
  /** Mode of what the fork began with. */
  readonly baseMode: number | null;
  /** Opens the file of the fork. Rejects where it is not one, or cannot be opened. */
  open(): Promise<FileHandle>;
  /** Opens the file that the fork began with; null where there was none, or where it is not known. */
  openBase(): Promise<FileHandle | null>;
}

/** What a diff is made of. */
export interface ForkDiffOptions extends MarkOptions {
  /** Directory of the base; without one, the workspace as it is now is what the fork is compared with. */
  readonly base?: string;
}

const MAX_MASKED = 100;
const CHUNK = 256 * 1024;
const BINARY_BYTES = 8000;
const SECTOR = 512;
// Reading a hole costs as much as reading data, and one of any size takes no space to make.
const MAX_HOLE_BYTES = 1024 ** 3;

/** The changes of a fork. They are found while they are read, once; afterwards there is a summary. */
export class ForkDiff implements AsyncIterable<ForkDiffEntry>, Disposable {
  readonly #stack: LayerStack;
  readonly #signal: AbortSignal;
  readonly #walk: DiffWalk;
  #summary: ForkDiffSummary | null = null;

  private constructor(stack: LayerStack, base: ForkBase, signal: AbortSignal) {
    this.#stack = stack;
    this.#signal = signal;
    this.#walk = new DiffWalk(stack, base);
  }

  /** Prepares the diff of a fork’s layers. Rejects where they cannot be read. */
  static async open(layers: ForkLayers, options: ForkDiffOptions): Promise<ForkDiff> {
    const stack = await LayerStack.open(layers, options);
    try {
      const { base: directory } = options;
      const base =
        directory === undefined ? ForkBase.none(layers.workspace) : ForkBase.read(directory, layers.workspace);
      return new ForkDiff(stack, base, options.signal);
    } catch (error) {
      stack[Symbol.dispose]();
      throw error;
    }
  }

  /** Every change: a directory before what is in it, names in the order of their bytes. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ForkDiffEntry, void, undefined> {
    const id = createHash('sha256');
    const counts = { added: 0, changed: 0, deleted: 0 };
    let gaps = 0;
    for await (const found of sliced(this.#walk.entries(), this.#signal)) {
      counts[found.change.change] += 1;
      if (found.change.gap !== undefined) gaps += 1;
      addTo(id, found);
      yield found;
    }
    this.#summary = { id: id.digest('hex'), counts, masked: this.#walk.masked, gaps };
  }

  /** The layers that it reads. */
  get layers(): LayerStack {
    return this.#stack;
  }

  /** Id, counts and masked paths. Throws where not all changes were read yet. */
  get summary(): ForkDiffSummary {
    if (!this.#summary) throw new TypeError('The summary of a diff is known when all its changes were read.');
    return this.#summary;
  }

  /** Reads everything, and keeps no change but the first so many; `take` is given all of them. */
  async collect(
    forkId: string,
    limit = Infinity,
    take: (entry: ForkDiffEntry) => void = () => undefined,
  ): Promise<Omit<WorkspaceDiff, 'riskyChanges'>> {
    const changes: ForkChange[] = [];
    for await (const entry of this) {
      take(entry);
      if (changes.length < limit) changes.push(entry.change);
    }
    return { forkId, ...this.summary, changes };
  }

  [Symbol.dispose](): void {
    this.#stack[Symbol.dispose]();
  }
}

// A content that was not read is told apart by which file it is and when it last changed.
function addTo(id: Hash, { change, bytes, target, mode, identity }: Found): void {
  const { change: what, kind, before, sha256, gap } = change;
  const content = gap === undefined ? (sha256 ?? null) : identity;
  const after = what === 'deleted' ? [] : [mode, target, content];
  id.update(`${JSON.stringify([bytes, what, kind, before ?? null, ...after])}\n`);
}

interface Found extends ForkDiffEntry {
  readonly identity: string | null;
}

// The two sides of a path.
interface Pair {
  readonly path: string;
  readonly after: Side | null;
  readonly before: BaseEntry | null;
  readonly gap: ForkContentGap | null;
}

interface Side {
  readonly stats: Stats;
  readonly kind: ForkEntryKind;
  readonly layer: number;
}

// What reading a file gave.
interface Content {
  readonly sha256?: string;
  readonly binary?: boolean;
  readonly gap?: ForkContentGap;
  readonly isEqual: boolean;
}

const UNSTABLE: Content = { gap: 'unstable', isEqual: false };

class DiffWalk {
  readonly masked: string[] = [];
  readonly #stack: LayerStack;
  readonly #base: ForkBase;
  #holes = MAX_HOLE_BYTES;

  constructor(stack: LayerStack, base: ForkBase) {
    this.#stack = stack;
    this.#base = base;
  }

  *entries(): Generator<Found | null> {
    const { root } = this.#stack;
    const listing = this.#stack.names(root);
    if (listing === 'unreadable') throw new UnreadableLayersError('a layer cannot be read');
    yield* this.#directory(root, BASE_ROOT, { own: listing, hidden: [] });
  }

  // What changed in a directory, given what the layers have there (`own`), and what the workspace has that does not show through.
  *#directory(
    merged: MergedDirectory,
    above: BaseBelow,
    { own, hidden }: { readonly own: Listing; readonly hidden: Listing },
  ): Generator<Found | null> {
    const { path } = merged;
    for (const name of union(own, hidden)) {
      yield null;
      const entry = this.#stack.entry(merged, name);
      if (this.#stack.isMasked(pathIn(path, name))) this.#noteMasked(pathIn(path, name));
      else yield* this.#name({ directory: path, name, entry, above });
    }
  }

  #noteMasked(path: string): void {
    if (this.masked.length < MAX_MASKED) this.masked.push(shown(path).text);
  }

  *#name(at: {
    readonly directory: string;
    readonly name: string;
    readonly entry: LayerEntry;
    readonly above: BaseBelow;
  }): Generator<Found | null> {
    const { directory, name, entry, above } = at;
    const path = pathIn(directory, name);
    const host = this.#stack.host(directory, name);
    const readLink = (): string | null => this.#stack.files.readlink(pathIn(this.#stack.workspace, directory), name);
    const { entry: before, below } = this.#base.before(path, host, above, readLink);
    const after = sideOf(entry);
    if (entry.is !== 'directory' && before?.kind !== 'directory') {
      yield* this.#compare({ path, after, before, gap: null });
      return;
    }
    const merged = entry.is === 'directory' ? entry.directory : { path, parts: [], showsWorkspace: false };
    const inside = before?.kind === 'directory' ? below : ({ was: 'absent' } as const);
    const isHidden = inside.was === 'directory' && !merged.showsWorkspace;
    const listings = { own: this.#stack.names(merged), hidden: isHidden ? this.#hostNames(path, host) : [] };
    yield* this.#compare({ path, after, before, gap: gapOf(listings) });
    yield* this.#directory(merged, inside, listings);
  }

  #hostNames(path: string, host: Stats | null): Listing {
    return host?.isDirectory() ? this.#stack.files.list(pathIn(this.#stack.workspace, path)) : [];
  }

  *#compare(pair: Pair): Generator<Found | null> {
    const { path, after, before, gap } = pair;
    if (!after) {
      if (before && !this.#isHeld(path, before)) yield this.#found(pair, null);
      return;
    }
    const content = after.kind === 'file' ? yield* this.#read(path, after, before) : null;
    const isSame = before !== null && this.#isSame(path, after, before) && content?.isEqual !== false;
    if (gap !== null || !isSame) yield this.#found(pair, content);
  }

  // A directory with a masked file in it stays: the file is not the fork’s to remove.
  #isHeld(path: string, before: BaseEntry): boolean {
    return before.kind === 'directory' && this.#stack.hasMaskedBelow(path);
  }

  #isSame(path: string, { kind, stats, layer }: Side, before: BaseEntry): boolean {
    if (kind !== before.kind) return false;
    if (kind === 'link') return this.#linkOf(path, layer) === before.link;
    return modeOf(stats) === before.mode;
  }

  #linkOf(path: string, layer: number): string | null {
    const { directory, name } = split(path);
    return this.#stack.files.readlink(pathIn(this.#stack.upper(layer), directory), name);
  }

  #found(pair: Pair, content: Content | null): Found {
    const { path, after, before } = pair;
    const { text, isText } = shown(path);
    const change: ForkChange = {
      path: text,
      ...whatOf(after, before),
      ...this.#modes(after, before),
      ...this.#links(path, after, before),
      ...sizes(after, before),
      ...contentOf(content, pair.gap),
      ...(before?.isUnknown ? { baseUnknown: true as const } : {}),
      ...(isText ? {} : { unreadableName: true as const }),
    };
    return {
      change,
      bytes: path,
      target: after?.kind === 'link' ? this.#linkOf(path, after.layer) : null,
      mode: after && after.kind !== 'link' ? modeOf(after.stats) : null,
      source: after && pathIn(this.#stack.upper(after.layer), path),
      ...baseOf(before),
      identity: after ? identityOf(after.stats) : null,
      open: () => this.#open(path, after),
      openBase: () => this.#openBase(path, before),
    };
  }

  #modes(after: Side | null, before: BaseEntry | null): { readonly mode?: ForkSides<number> } {
    const one = before && before.kind !== 'link' ? before.mode : undefined;
    const other = after && after.kind !== 'link' ? modeOf(after.stats) : undefined;
    return one === other ? {} : { mode: sides(one, other) };
  }

  #links(path: string, after: Side | null, before: BaseEntry | null): { readonly link?: ForkSides<string> } {
    const one = before?.link ?? undefined;
    const other = after?.kind === 'link' ? (this.#linkOf(path, after.layer) ?? undefined) : undefined;
    if (one === undefined && other === undefined) return {};
    return { link: sides(one && shown(one).text, other && shown(other).text) };
  }

  // Reads a file of the fork, beside the one it is compared with where the sizes are the same.
  *#read(path: string, { stats, layer }: Side, before: BaseEntry | null): Generator<null, Content> {
    const { directory, name } = split(path);
    if (!this.#mayRead(stats)) return { gap: 'sparse', isEqual: false };
    const file = this.#stack.files.openFile(pathIn(this.#stack.upper(layer), directory), name);
    if (file === null) return { gap: 'unreadable', isEqual: false };
    try {
      const other = before?.kind === 'file' && before.size === stats.size ? this.#openForRead(path, before) : null;
      try {
        const content = yield* readBoth(file, other, stats);
        return before && hasContent(before, content.sha256) ? { ...content, isEqual: true } : content;
      } finally {
        if (other !== null) closeSync(other);
      }
    } finally {
      closeSync(file);
    }
  }

  #mayRead({ size, blocks }: Stats): boolean {
    const hole = Math.max(0, size - blocks * SECTOR);
    if (hole > this.#holes) return false;
    this.#holes -= hole;
    return true;
  }

  // The file that a fork’s is compared with; null where it cannot be read, which makes them different.
  #openForRead(path: string, { content }: BaseEntry): number | null {
    if (content === 'nowhere' || (content !== 'workspace' && 'sha256' in content)) return null;
    const { directory, name } = split(path);
    const file =
      content === 'workspace'
        ? this.#stack.files.openFile(pathIn(this.#stack.workspace, directory), name)
        : openCopy(content.copy);
    if (file === null) return null;
    const stats = fstatSync(file);
    if (stats.isFile() && this.#mayRead(stats)) return file;
    closeSync(file);
    return null;
  }

  async #open(path: string, after: Side | null): Promise<FileHandle> {
    const { directory, name } = split(path);
    const file =
      after?.kind === 'file'
        ? this.#stack.files.openFile(pathIn(this.#stack.upper(after.layer), directory), name)
        : null;
    const handle = await handleOf(file);
    if (!handle) throw new Error(`${JSON.stringify(shown(path).text)} is not a file that can be read`);
    return handle;
  }

  async #openBase(path: string, before: BaseEntry | null): Promise<FileHandle | null> {
    if (before?.kind !== 'file' || before.isUnknown || before.content === 'nowhere') return null;
    const { directory, name } = split(path);
    const { content, size } = before;
    if (content !== 'workspace' && 'copy' in content) return handleOf(openCopy(content.copy));
    const file = this.#stack.files.openFile(pathIn(this.#stack.workspace, directory), name);
    if (file === null || content === 'workspace' || hasDigest(file, size, content.sha256)) return handleOf(file);
    closeSync(file);
    return null;
  }
}

// Whether a digest says that content is that of an entry.
function hasContent({ content }: BaseEntry, sha256: string | undefined): boolean {
  return typeof content === 'object' && 'sha256' in content && content.sha256 === sha256;
}

// Node.js makes no handle of a descriptor; the kernel opens the same file again by it.
async function handleOf(file: number | null): Promise<FileHandle | null> {
  if (file === null) return null;
  try {
    return fstatSync(file).isFile() ? await open(`/proc/self/fd/${file}`, constants.O_RDONLY) : null;
  } finally {
    closeSync(file);
  }
}

// Where the workspace does not show through, everything that the layers lack was removed.
function union(own: Listing, hidden: Listing): Iterable<string> {
  const [one, other] = [own, hidden].map(names => (typeof names === 'string' ? [] : names));
  if (!other?.length || !one?.length) return one?.length ? one : (other ?? []);
  return [...new Set([...one, ...other])].sort();
}

function sideOf(entry: LayerEntry): Side | null {
  if (entry.is === 'nothing' || entry.is === 'whiteout') return null;
  return { stats: entry.stats, kind: kindOf(entry.stats), layer: entry.layer };
}

function gapOf({ own, hidden }: { readonly own: Listing; readonly hidden: Listing }): ForkContentGap | null {
  return own === 'unreadable' || hidden === 'unreadable' ? 'unreadable' : null;
}

function baseOf(before: BaseEntry | null): Pick<ForkDiffEntry, 'baseTarget' | 'baseMode'> {
  return { baseTarget: before?.link ?? null, baseMode: before?.mode ?? null };
}

function whatOf(after: Side | null, before: BaseEntry | null): Pick<ForkChange, 'change' | 'kind' | 'before'> {
  if (!after) return { change: 'deleted', kind: before?.kind ?? 'file' };
  const { kind } = after;
  if (!before) return { change: 'added', kind };
  return { change: 'changed', kind, ...(before.kind === kind ? {} : { before: before.kind }) };
}

function contentOf(
  content: Content | null,
  ofDirectory: ForkContentGap | null,
): Pick<ForkChange, 'binary' | 'sha256' | 'gap'> {
  const gap = ofDirectory ?? content?.gap;
  return {
    ...(content?.binary === undefined ? {} : { binary: content.binary }),
    ...(content?.sha256 === undefined ? {} : { sha256: content.sha256 }),
    ...(gap === undefined ? {} : { gap }),
  };
}

function sides<Value>(before: Value | undefined, after: Value | undefined): ForkSides<Value> {
  return { ...(before === undefined ? {} : { before }), ...(after === undefined ? {} : { after }) };
}

function sizes(after: Side | null, before: BaseEntry | null): { readonly bytes?: ForkSides<number> } {
  const one = before?.kind === 'file' ? before.size : undefined;
  const other = after?.kind === 'file' ? after.stats.size : undefined;
  return one === undefined && other === undefined ? {} : { bytes: sides(one, other) };
}

// One pass over a file, and over the other beside it until they differ.
function* readBoth(file: number, other: number | null, seen: Stats): Generator<null, Content> {
  const before = fstatSync(file);
  if (!before.isFile() || identityOf(before) !== identityOf(seen)) return UNSTABLE;
  const hash = createHash('sha256');
  const length = Math.min(CHUNK, before.size);
  const buffers = { one: Buffer.allocUnsafe(length), two: Buffer.allocUnsafe(length) };
  let isEqual = other !== null;
  let binary = false;
  let at = 0;
  while (at < before.size) {
    const read = readSync(file, buffers.one, 0, Math.min(length, before.size - at), at);
    if (read === 0) return UNSTABLE;
    const piece = buffers.one.subarray(0, read);
    hash.update(piece);
    binary ||= piece.subarray(0, Math.max(0, BINARY_BYTES - at)).includes(0);
    if (other !== null && isEqual) isEqual = readFully(other, buffers.two, { length: read, at }).equals(piece);
    at += read;
    yield null;
  }
  const isStable = identityOf(fstatSync(file)) === identityOf(before);
  return isStable ? { sha256: hash.digest('hex'), binary, isEqual } : UNSTABLE;
}

function readFully(
  file: number,
  into: Buffer,
  { length, at }: { readonly length: number; readonly at: number },
): Buffer {
  let done = 0;
  while (done < length) {
    const read = readSync(file, into, done, length - done, at + done);
    if (read === 0) break;
    done += read;
  }
  return into.subarray(0, done);
}

function identityOf({ dev, ino, size, mtimeMs, ctimeMs }: Stats): string {
  return `${dev}:${ino}:${size}:${mtimeMs}:${ctimeMs}`;
}
