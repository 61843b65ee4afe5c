// Layers of a fork: the directories that its commands wrote, one over the other and all over the live workspace, read as the
// overlay file system merges them.
//
// Paths and names are byte strings (latin1). Untrusted code has filled the layers: no link is followed, and no entry is opened here
// but directories.

import type { Stats } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import type { ForkEntryKind } from '../../contract/fork.ts';
import { DirectoryLook, fromText, toText } from '../directory-look.ts';
import { readMarks } from './marks.ts';
import type { MarkOptions } from './marks.ts';

/** The directories of a fork. */
export interface ForkLayers {
  /** Workspace of the host, absolute and without links. */
  readonly workspace: string;
  /** Layer of each command, the first command’s first; absolute and without links. */
  readonly uppers: readonly string[];
  /** Masked paths, relative to the workspace. */
  readonly masked: readonly string[];
}

/** A directory of the merged view. */
export interface MergedDirectory {
  /** Relative to the workspace; empty for the workspace itself. */
  readonly path: string;
  /** Layers that have a part of it, by their index; the topmost first. */
  readonly parts: readonly number[];
  /** Whether the workspace shows through. */
  readonly showsWorkspace: boolean;
}

/** What the layers have at a path. */
export type LayerEntry =
  /** Nothing: the workspace shows through where its directory does. */
  | { readonly is: 'nothing' }
  /** It was removed. */
  | { readonly is: 'whiteout' }
  | { readonly is: 'entry'; readonly stats: Stats; readonly layer: number }
  | { readonly is: 'directory'; readonly stats: Stats; readonly layer: number; readonly directory: MergedDirectory };

/** Names in a directory, or why there are none. */
export type Listing = readonly string[] | 'gone' | 'unreadable';

const MAX_OPEN = 256;
const SLICE_MS = 10;
const PERMISSIONS = 0o7777;

/** Layers that are ready to be read. Disposing of them closes what is open. */
export class LayerStack implements Disposable {
  /** The workspace as a byte string. */
  readonly workspace: string;
  /** Layers, the first command’s first. */
  readonly uppers: readonly string[];
  readonly files: HeldDirectories;
  readonly #masked: ReadonlySet<string>;
  readonly #maskedParents: ReadonlySet<string>;
  readonly #opaque = new Set<string>();
  readonly #whiteouts = new Set<string>();

  private constructor({ workspace, uppers, masked }: ForkLayers, files: HeldDirectories) {
    this.workspace = fromText(workspace);
    this.uppers = uppers.map(fromText);
    this.files = files;
    const paths = masked.map(path => fromText(path).replaceAll(/^(?:\.?\/)+|\/+$/g, ''));
    this.#masked = new Set(paths);
    this.#maskedParents = new Set(paths.flatMap(parentsOf));
  }

  /**
   * Reads the marks of the layers: of the directories that lie over another, or of every one. Rejects where they cannot be read: a
   * diff without them would be wrong.
   */
  static async open(layers: ForkLayers, options: MarkOptions & { everyDirectory?: boolean }): Promise<LayerStack> {
    const stack = new LayerStack(layers, new HeldDirectories());
    try {
      await stack.#readMarks(options);
      return stack;
    } catch (error) {
      stack[Symbol.dispose]();
      throw error;
    }
  }

  /** The top directory. */
  get root(): MergedDirectory {
    return { path: '', parts: this.uppers.map((_, index) => index).reverse(), showsWorkspace: true };
  }

  /** Whether a path is masked, or lies below one that is. */
  isMasked(path: string): boolean {
    if (this.#masked.size === 0) return false;
    return this.#masked.has(path) || parentsOf(path).some(parent => this.#masked.has(parent));
  }

  /** Whether a masked path lies below a path. */
  hasMaskedBelow(path: string): boolean {
    return this.#maskedParents.has(path);
  }

  /** Names that the layers have in a directory, in the order of their bytes, whiteouts included. */
  names({ path, parts }: MergedDirectory): Listing {
    const all = new Set<string>();
    for (const part of parts) {
      const names = this.files.list(pathIn(this.upper(part), path));
      if (names === 'unreadable') return names;
      if (names !== 'gone') for (const name of names) all.add(name);
    }
    return [...all].sort();
  }

  /** What the layers have under a name in a directory. */
  entry({ path, parts, showsWorkspace }: MergedDirectory, name: string): LayerEntry {
    const own = pathIn(path, name);
    let top: { readonly stats: Stats; readonly layer: number } | null = null;
    const found: number[] = [];
    for (const layer of parts) {
      const stats = this.files.lstat(pathIn(this.upper(layer), path), name);
      if (!stats) continue;
      const isRemoved = this.#isWhiteout(stats, layer, own);
      if (isRemoved || !stats.isDirectory()) {
        // A directory of a layer above hides it, and it hides what is further below.
        if (top) return { is: 'directory', ...top, directory: { path: own, parts: found, showsWorkspace: false } };
        return isRemoved ? { is: 'whiteout' } : { is: 'entry', stats, layer };
      }
      top ??= { stats, layer };
      found.push(layer);
      if (this.#opaque.has(key(layer, own)))
        return { is: 'directory', ...top, directory: { path: own, parts: found, showsWorkspace: false } };
    }
    return top
      ? { is: 'directory', ...top, directory: { path: own, parts: found, showsWorkspace } }
      : { is: 'nothing' };
  }

  /** Whether a directory of a layer hides what is below it. */
  isOpaque(layer: number, path: string): boolean {
    return this.#opaque.has(key(layer, path));
  }

  /** Entry of the workspace; null where there is none. A device 0:0 is none: the overlay takes it for a whiteout. */
  host(path: string, name: string): Stats | null {
    const stats = this.files.lstat(pathIn(this.workspace, path), name);
    return stats && !isWhiteout(stats) ? stats : null;
  }

  /** Path of a layer. */
  upper(layer: number): string {
    return this.uppers[layer] ?? '';
  }

  [Symbol.dispose](): void {
    this.files[Symbol.dispose]();
  }

  #isWhiteout(stats: Stats, layer: number, path: string): boolean {
    return isWhiteout(stats) || (this.#whiteouts.size > 0 && this.#whiteouts.has(key(layer, path)));
  }

  async #readMarks(options: MarkOptions & { everyDirectory?: boolean }): Promise<void> {
    const layerOf = new Map<string, { readonly layer: number; readonly path: string }>();
    for (const [layer, upper] of this.uppers.entries()) {
      const below = options.everyDirectory ? null : [this.workspace, ...this.uppers.slice(0, layer)];
      for await (const path of sliced(this.#doubles(layer, '', below), options.signal))
        layerOf.set(pathIn(upper, path), { layer, path });
    }
    const marked: { readonly layer: number; readonly path: string }[] = [];
    for (const [full, { opaque }] of await readMarks([...layerOf.keys()], options)) {
      const at = layerOf.get(full);
      if (!at) continue;
      if (opaque === 'y') this.#opaque.add(key(at.layer, at.path));
      else if (opaque === 'x') marked.push(at);
    }
    await this.#readWhiteouts(marked, options);
  }

  // Directories of a layer that a layer below, or the workspace, has too: only there does an opaque mark matter. All of them where
  // no roots are given.
  *#doubles(layer: number, path: string, below: readonly string[] | null): Generator<string | null> {
    const directory = pathIn(this.upper(layer), path);
    const names = this.files.list(directory);
    if (typeof names === 'string') return;
    for (const name of names) {
      yield null;
      const own = pathIn(path, name);
      if (this.isMasked(own) || !this.files.lstat(directory, name)?.isDirectory()) continue;
      const further = below && this.#having(below, path, name);
      if (further?.length === 0) continue;
      // What cannot be read has a mark that cannot be read, and is reported by the diff.
      if (typeof this.files.list(pathIn(directory, name)) !== 'string') yield own;
      yield* this.#doubles(layer, own, further);
    }
  }

  #having(roots: readonly string[], path: string, name: string): readonly string[] {
    return roots.filter(root => this.files.lstat(pathIn(root, path), name)?.isDirectory());
  }

  // Newer kernels can mark an empty file as a whiteout.
  async #readWhiteouts(
    directories: readonly { readonly layer: number; readonly path: string }[],
    options: MarkOptions,
  ): Promise<void> {
    const keys = new Map<string, string>();
    for (const { layer, path } of directories) {
      const full = pathIn(this.upper(layer), path);
      const names = this.files.list(full);
      for (const name of typeof names === 'string' ? [] : names) {
        const stats = this.files.lstat(full, name);
        if (stats?.isFile() && stats.size === 0) keys.set(pathIn(full, name), key(layer, pathIn(path, name)));
      }
    }
    for (const [full, { isWhiteout: marked }] of await readMarks([...keys.keys()], options))
      if (marked) this.#whiteouts.add(keys.get(full) ?? '');
  }
}

/** Directories that are held open for a while: entries are asked of them, not of paths that could lead elsewhere meanwhile. */
export class HeldDirectories implements Disposable {
  readonly #held = new Map<string, DirectoryLook | null>();

  /** An entry itself; null where there is none, or where it cannot be reached without following a link. */
  lstat(directory: string, name: string): Stats | null {
    return this.#get(directory)?.lstat(name) ?? null;
  }

  /** Where a link leads; null where it is not one any more. */
  readlink(directory: string, name: string): string | null {
    return this.#get(directory)?.readlink(name) ?? null;
  }

  /** Opens a file for reading; null where it cannot be opened without following a link. */
  openFile(directory: string, name: string): number | null {
    try {
      return this.#get(directory)?.openFile(name) ?? null;
    } catch {
      return null;
    }
  }

  /** Names in a directory, in the order of their bytes. */
  list(path: string): Listing {
    const look = DirectoryLook.open(path);
    if (typeof look === 'string') return look === 'gone' ? 'gone' : 'unreadable';
    using directory = look;
    const names = directory.names();
    if (names === 'unreadable') return names;
    return names.length > 0 && !directory.isEnterable ? 'unreadable' : names.sort();
  }

  #get(path: string): DirectoryLook | null {
    const known = this.#held.get(path);
    if (known !== undefined) return known;
    if (this.#held.size >= MAX_OPEN) this[Symbol.dispose]();
    const look = DirectoryLook.open(path);
    const held = typeof look === 'string' ? null : look;
    this.#held.set(path, held);
    return held;
  }

  [Symbol.dispose](): void {
    for (const look of this.#held.values()) look?.[Symbol.dispose]();
    this.#held.clear();
  }
}

/** A whiteout: what the kernel leaves where something was removed. */
function isWhiteout(stats: Stats): boolean {
  return stats.isCharacterDevice() && stats.rdev === 0;
}

/** Kind of an entry. */
export function kindOf(stats: Stats): ForkEntryKind {
  if (stats.isFile()) return 'file';
  if (stats.isDirectory()) return 'directory';
  if (stats.isSymbolicLink()) return 'link';
  if (stats.isFIFO()) return 'fifo';
  return stats.isSocket() ? 'socket' : 'device';
}

/** Permission bits with setuid, setgid and sticky. */
export function modeOf({ mode }: Pick<Stats, 'mode'>): number {
  return mode & PERMISSIONS;
}

/** A path below another. */
export function pathIn(directory: string, name: string): string {
  return directory === '' || name === '' ? directory + name : `${directory}/${name}`;
}

/** Splits a path into its directory and its name. */
export function split(path: string): { readonly directory: string; readonly name: string } {
  const slash = path.lastIndexOf('/');
  return { directory: path.slice(0, Math.max(slash, 0)), name: path.slice(slash + 1) };
}

/** A byte string as text; what is not UTF-8 has its bytes escaped. */
export function shown(path: string): { readonly text: string; readonly isText: boolean } {
  const text = toText(path);
  if (fromText(text) === path) return { text, isText: true };
  return { text: escapedBytes(path), isText: false };
}

// Bytes that are no part of a character as `\377`, and backslashes doubled.
function escapedBytes(path: string): string {
  const pieces = path.replaceAll('\\', '\\\\').split(/([\xc2-\xf4][\x80-\xbf]{1,3}|[\x80-\xff])/);
  return pieces
    .map(piece => {
      const decoded = toText(piece);
      if (fromText(decoded) === piece) return decoded;
      return piece.replaceAll(/[\x80-\xff]/g, byte => `\\${byte.charCodeAt(0).toString(8)}`);
    })
    .join('');
}

function parentsOf(path: string): string[] {
  const parents: string[] = [];
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) parents.push(path.slice(0, at));
  return parents;
}

function key(layer: number, path: string): string {
  return `${layer}/${path}`;
}

/**
 * Does synchronous work in slices, so that other work of the process goes on and the signal is heard. A `null` is a point at which
 * it may rest.
 */
export async function* sliced<Item>(
  work: Iterable<Item | null>,
  signal: AbortSignal,
): AsyncGenerator<Item, void, undefined> {
  let since = performance.now();
  signal.throwIfAborted();
  for (const item of work) {
    if (item !== null) yield item;
    if (performance.now() - since < SLICE_MS) continue;
    await setImmediate();
    signal.throwIfAborted();
    since = performance.now();
  }
}
