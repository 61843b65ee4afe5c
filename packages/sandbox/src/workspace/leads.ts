// What is at a path through the links on its way, and whether it became that during the run.

import type { Stats } from 'node:fs';
import { lstat } from './directory-look.ts';
import type { FileTimes } from './file-times.ts';
import { targetInside } from './link-target.ts';

/** What a path leads to. */
export interface Lead {
  /** Relative to the root, without links. */
  readonly path: string;
  readonly stats: Stats;
  /** Whether a link or directory on the way made it what it is: nothing in it shows that by a time of its own. */
  readonly isNewWay: boolean;
}

/** Where paths below a directory lead, without ever following a link out of it. */
export class Leads {
  readonly #root: string;
  readonly #times: FileTimes;

  constructor(root: string, times: FileTimes) {
    this.#root = root;
    this.#times = times;
  }

  /** What is at a path; null where there is nothing, or it leads out. */
  at(path: string): Lead | null {
    const target = targetInside(this.#root, path);
    const stats = target && lstat(`${this.#root}/${target.path}`);
    if (!target || !stats) return null;
    const links = target.links.map(link => lstat(`${this.#root}/${link}`));
    const isNewWay = links.some(link => link && this.#times.isChanged(link)) || this.#isMoved(target.path);
    return { path: target.path, stats, isNewWay };
  }

  /** Whether it is a file that is another one than before the run. */
  isNewFile({ stats, isNewWay }: Lead): boolean {
    return stats.isFile() && (isNewWay || this.#times.isChanged(stats));
  }

  // Renaming a directory stamps it and the one around it.
  #isMoved(path: string): boolean {
    let around = lstat(this.#root);
    let at = this.#root;
    for (const step of path === '' ? [] : path.split('/')) {
      at = `${at}/${step}`;
      const here = lstat(at);
      if (!around || !here) return true;
      if (here.isDirectory() && this.#areStamped(around, here)) return true;
      around = here;
    }
    return false;
  }

  #areStamped(around: Stats, here: Stats): boolean {
    if (!this.#times.isTouched(around) || !this.#times.isTouched(here)) return false;
    return this.#times.isChanged(around) || this.#times.isChanged(here);
  }
}
