// Which directories are looked into, and in which order: what matters most before what could use up the budget.

import type { RiskyDirectory } from './risky-names.ts';

/** A risky directory that was found. */
export interface Region extends RiskyDirectory {
  readonly path: string;
  reported: boolean;
}

/** A directory to be looked into. */
export interface Visit {
  /** Relative to the root; empty for the root itself. */
  readonly path: string;
  readonly name: string;
  readonly depth: number;
  /** The risky directory it lies in. */
  readonly region: Region | null;
  /** Whether it holds what a package manager installed: names mean nothing there, since all of it is executed anyway. */
  readonly installed: boolean;
  /** Whether something was made, renamed or removed in the directory it lies in: it may have come from elsewhere. */
  readonly inChanged: boolean;
  /** Whether it lies in what may have come from elsewhere: nothing in it shows that by a time of its own. */
  readonly moved: boolean;
  /** Whether it was asked for what matters already, and is only to be listed. */
  readonly asked: boolean;
}

/** The visits that are still to be made. */
export class Visits {
  // Where everything is risky comes first, so that nothing harmless uses up the budget before it. What was installed comes
  // last: there is much of it, and little in it that is not expected.
  readonly #risky = new Queue();
  readonly #ordinary = new Queue();
  readonly #installed = new Queue();
  readonly #known = new Set<string>();

  /** Adds a visit, unless there was one to the same directory. */
  put(visit: Visit): void {
    if (this.#known.has(visit.path)) return;
    this.#known.add(visit.path);
    if (visit.installed) this.#installed.put(visit);
    else if (visit.region) this.#risky.put(visit);
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
