// Squash: several layers of a fork as one, with the same merged view. Made by an ordinary user, without a mount.

import { chmodSync, linkSync, mkdirSync, utimesSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { bytes, fromText } from '../directory-look.ts';
import { LayerStack, modeOf, pathIn, sliced } from './layers.ts';
import type { ForkLayers, LayerEntry, MergedDirectory } from './layers.ts';
import { UnreadableLayersError, makeMarks } from './marks.ts';
import type { MarkOptions, NewMark } from './marks.ts';

/** What is to become one layer. */
export interface SquashOptions extends MarkOptions {
  /** Index of the first layer. */
  readonly from: number;
  /** Index after the last layer. */
  readonly to: number;
  /** Directory of the new layer, which must not exist, on the file system of the layers. */
  readonly target: string;
}

/**
 * Makes one layer of several. Files are linked, not copied, and the layers stay as they are: the caller removes them once the new
 * one has taken their place, or the new one where this was interrupted. Nothing may have one of the layers mounted meanwhile, since a
 * write would reach both. Extended attributes that commands gave to directories are lost.
 */
export async function squashLayers(layers: ForkLayers, options: SquashOptions): Promise<void> {
  // What is masked belongs to the layers all the same.
  using stack = await LayerStack.open({ ...layers, masked: [] }, { ...options, everyDirectory: true });
  const squash = new Squash(stack, options);
  for await (const step of sliced(squash.build(), options.signal)) void step;
  if (squash.marks.length > 0) await makeMarks(options.target, squash.marks, options);
  for await (const step of sliced(squash.finish(), options.signal)) void step;
}

class Squash {
  readonly marks: NewMark[] = [];
  readonly #stack: LayerStack;
  readonly #target: string;
  readonly #root: MergedDirectory;
  readonly #below: readonly string[];
  readonly #directories: { readonly path: string; readonly stats: Stats }[] = [];

  constructor(stack: LayerStack, { from, to, target }: SquashOptions) {
    this.#stack = stack;
    this.#target = fromText(target);
    const parts = stack.root.parts.filter(part => part >= from && part < to);
    this.#root = { path: '', parts, showsWorkspace: true };
    this.#below = [stack.workspace, ...stack.uppers.slice(0, from)];
  }

  *build(): Generator<null> {
    const [top = 0] = this.#root.parts;
    const stats = this.#stack.files.lstat(this.#stack.upper(top), '.');
    if (!stats) throw new UnreadableLayersError('a layer is missing');
    this.#make({ is: 'directory', stats, layer: top, directory: this.#root });
    yield* this.#fill(this.#root);
  }

  // Modes and times last: what is put into a directory would change them, and some modes would forbid it.
  *finish(): Generator<null> {
    for (const { path, stats } of this.#directories.reverse()) {
      const own = bytes(pathIn(this.#target, path));
      utimesSync(own, stats.atimeMs / 1000, stats.mtimeMs / 1000);
      chmodSync(own, modeOf(stats));
      yield null;
    }
  }

  *#fill(directory: MergedDirectory): Generator<null> {
    const names = this.#stack.names(directory);
    if (typeof names === 'string')
      throw new UnreadableLayersError(`${JSON.stringify(directory.path)} in a layer is ${names}`);
    for (const name of names) {
      yield null;
      const entry = this.#stack.entry(directory, name);
      this.#place(directory, name, entry);
      if (entry.is === 'directory') yield* this.#fill(entry.directory);
    }
  }

  #place(parent: MergedDirectory, name: string, entry: LayerEntry): void {
    const path = pathIn(parent.path, name);
    if (entry.is === 'directory') {
      this.#make(entry);
      const isOpaque = parent.showsWorkspace && !entry.directory.showsWorkspace;
      if (isOpaque) this.marks.push({ path, kind: 'opaque', mode: 0o700 });
    } else if (entry.is === 'entry') {
      linkSync(bytes(pathIn(this.#stack.upper(entry.layer), path)), bytes(pathIn(this.#target, path)));
    } else if (entry.is === 'whiteout' && parent.showsWorkspace && this.#isMerged(parent)) {
      this.marks.push({ path, kind: 'whiteout', mode: 0 });
    }
  }

  // In a directory that nothing below has, the kernel shows a whiteout as a name that leads nowhere.
  #isMerged({ path }: MergedDirectory): boolean {
    return this.#below.some(root => this.#stack.files.lstat(pathIn(root, path), '.')?.isDirectory());
  }

  #make({ stats, directory: { path } }: Extract<LayerEntry, { is: 'directory' }>): void {
    mkdirSync(bytes(pathIn(this.#target, path)), { mode: 0o700 });
    this.#directories.push({ path, stats });
  }
}
