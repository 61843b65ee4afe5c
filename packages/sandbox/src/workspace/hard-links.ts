// Which hard links have a name that was not seen: an installer gives files second names, and so does somebody who hides one.

import type { Stats } from 'node:fs';

interface Linked {
  readonly names: Set<string>;
  readonly nlink: number;
  /** The `node_modules` or `target` that all of its names are below; null where there are several. */
  below: string | null;
}

const MAX_LINKED = 5000;

/** The hard links that a scan comes across. */
export class HardLinks {
  readonly #linked = new Map<string, Linked>();

  /** Notes one name of a file with several; false where it is to be reported at once. */
  note(path: string, { dev, ino, nlink }: Pick<Stats, 'dev' | 'ino' | 'nlink'>): boolean {
    const below = installedBelow(path);
    if (below === null) return false;
    const key = `${dev} ${ino}`;
    const linked = this.#linked.get(key) ?? { names: new Set(), nlink, below };
    if (!this.#linked.has(key) && this.#linked.size >= MAX_LINKED) return false;
    this.#linked.set(key, linked);
    linked.names.add(path);
    if (linked.below !== below) linked.below = null;
    return true;
  }

  /** The names that were noted of files with a name elsewhere. */
  elsewhere(): string[] {
    const open = [...this.#linked.values()].filter(({ names, nlink, below }) => below === null || names.size < nlink);
    return open.flatMap(({ names }) => [...names]);
  }
}

// Installers and compilers give their own files second names there: esbuild in `node_modules`, cargo in `target`.
const OUTPUT = /^(?:.*?\/)?(?:node_modules|target)(?=\/)/;

// The outermost, since one installation nests others.
function installedBelow(path: string): string | null {
  return OUTPUT.exec(path)?.[0] ?? null;
}
