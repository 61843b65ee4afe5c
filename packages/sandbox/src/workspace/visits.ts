// Which directories are looked into, and in which order: what matters most before what could use up the budget.

import type { RiskyDirectory } from './risky-names.ts';

/** A risky directory that was found. */
export interface Region extends RiskyDirectory {
  readonly path: string;
  reported: boolean;
  /** Set for the programs of a virtual environment that the run has made: what each environment has is expected there. */
  readonly fresh?: boolean;
  /** Set for a directory of hooks, of which only what lies directly in it is executed; `'named'`: only by the names of hooks. */
  readonly hooks?: 'all' | 'named';
}

/** A directory to be looked into. */
export interface Visit {
  /** Relative to the root; empty for the root itself. */
  readonly path: string;
  /** What it is called where it is used: of one that a link leads to, the name of the link. */
  readonly name: string;
  readonly depth: number;
  /** The risky directory it lies in. */
  readonly region: Region | null;
  /** Whether it holds what a package manager installed: names mean nothing there, since all of it is executed anyway. */
  readonly installed: boolean;
  /** Whether something was made, renamed or removed in the directory it lies in: it may have come from elsewhere. */
  readonly inChanged: boolean;
  /** The same, be it that it was changed again after the run. */
  readonly inTouched: boolean;
  /** Whether it lies in what may have come from elsewhere: nothing in it shows that by a time of its own. */
  readonly moved: boolean;
  /** Whether it was asked for what matters already, and is only to be listed. */
  readonly asked: boolean;
  /** How many of its entries were taken already, in the order of the file system. */
  readonly taken: number;
  /** Whether something leads here, such as a link or a setting of git: it is looked into for what it is used as, besides being looked into as what it is. */
  readonly alias: boolean;
  /** Whether the run could not change it: only where its links and settings lead matters. */
  readonly sealed: boolean;
  /** Of a git directory: where git runs what its configuration names, relative to the root. */
  readonly worktree?: string;
}

/** The visits that are still to be made. */
export class Visits {
  // Where everything is risky comes first, so that nothing harmless uses up the budget before it. What was installed comes
  // last: there is much of it, and little in it that is not expected.
  readonly #risky = new Queue();
  readonly #ordinary = new Queue();
  readonly #installed = new Queue();
  readonly #known = new Set<string>();

  /** Adds a visit, unless there was one to the same directory as the same thing. */
  put(visit: Visit): void {
    const key = keyOf(visit);
    if (this.#known.has(key)) return;
    this.#known.add(key);
    if (visit.installed && !visit.alias) this.#installed.put(visit);
    else if (visit.region || visit.alias) this.#risky.put(visit);
    else this.#ordinary.put(visit);
  }

  /** Adds the second visit to a directory, after all that its first has found to be risky. */
  putAgain(visit: Visit): void {
    this.#ordinary.put(visit);
  }

  /** The next visit to be made. */
  next(): Visit | undefined {
    return this.#risky.take() ?? this.#ordinary.take() ?? this.#installed.take();
  }
}

// However many links lead to a directory, it is looked into once for each thing that it can be used as.
function keyOf({ path, name, region, installed, alias, sealed }: Visit): string {
  if (!alias) return path;
  const as = region
    ? `${region.kind} ${region.whole} ${region.hooks ?? ''}`
    : installed
      ? `installed ${name}`
      : name.toLowerCase();
  return `${path}\0${as}${sealed ? ' sealed' : ''}`;
}

// First in, first out, without moving what waits.
class Queue {
  readonly #visits: Visit[] = [];
  #taken = 0;

  put(visit: Visit): void {
    this.#visits.push(visit);
  }

  take(): Visit | undefined {
    const visit = this.#visits[this.#taken];
    if (visit) this.#taken += 1;
    return visit;
  }
}
