// Regions of a scan: what a name means where it stands, which directories were visited, and what hard links lead to.

import type { Stats } from 'node:fs';
import { HOOKS } from './git-directory.ts';
import {
  BAZEL,
  ENVIRONMENT,
  PROGRAMS_OF_PACKAGES,
  PYTHON_PACKAGES,
  riskOfDirectory,
  riskOfFile,
  riskOfHolder,
  riskOfInstalled,
  riskOfProgram,
} from './risky-names.ts';
import type { Risk, RiskyDirectory } from './risky-names.ts';
import { lstat } from './directory-look.ts';
import type { FileTimes } from './file-times.ts';
import { targetInside } from './archive/bytes.ts';

// Of a repository: what only holds content, and may be huge.
const CONTENT = new Set(['objects', 'refs', 'logs', 'lfs']);
// Of a repository that the run could not change: where links may lead to hooks and attributes.
const LINKED_OF_GIT = new Set(['hooks', 'info']);
// Settings lie at the top of what no run can change; whole checkouts may lie deeper.
const MAX_SEALED_DEPTH = 3;
const PACKAGES = /^(?:site|dist)-packages$/;
const PYTHON = /^python\d/;

// Programs of the packages that one installed package depends on: in the search path of that package’s own scripts only, and
// those are as new as the programs. A hidden directory is not a package: pnpm has programs for everybody in one.
const PROGRAMS_OF_DEPENDENCY = /(?:^|\/)node_modules\/(?:@[^/]+\/)?[^./@][^/]*\/node_modules\/\.bin$/;

/** The risk of a file by its name and where it is. */
export function riskAt(visit: Visit, name: string): Risk | null {
  const { name: parent, region, installed } = visit;
  if (region) return isExpected(region, name) ? null : region;
  if (!installed) return riskOfFile(name, parent);
  if (parent !== '.bin') return riskOfInstalled(name, parent);
  // Where a link leads to such a directory, it is used as what the link is called.
  return !visit.alias && PROGRAMS_OF_DEPENDENCY.test(visit.path) ? null : riskOfProgram(name);
}

function isExpected({ fresh, hooks }: Region, name: string): boolean {
  return fresh === true || (hooks === 'named' && !HOOKS.has(name));
}

/** What a link counts as because of its name, where it leads to a directory; `beside` says whether something else lies beside it. */
export function roleOf(
  { name: parent, region, installed }: Visit,
  name: string,
  beside: (name: string) => boolean,
): RiskyDirectory | null {
  if (region) return roleInRegion(region);
  if (name === 'bin' && beside('pyvenv.cfg')) return ENVIRONMENT;
  if (isPythonLink(name, parent)) return PYTHON_PACKAGES;
  if (installed) return roleAmongInstalled(name);
  if (name === 'tools') return beside('tools/bazel') ? BAZEL : null;
  return riskOfDirectory(name, parent) ?? riskOfHolder(name);
}

function roleInRegion(region: Region): RiskyDirectory | null {
  return region.fresh || region.hooks ? null : region;
}

function roleAmongInstalled(name: string): RiskyDirectory | null {
  if (name === '.bin') return PROGRAMS_OF_PACKAGES;
  return name.toLowerCase() === '.git' ? riskOfDirectory(name, '') : null;
}

// In place of the directory of packages, or of the one around it.
function isPythonLink(name: string, parent: string): boolean {
  if (PYTHON.test(name)) return parent === 'lib' || parent === 'lib64';
  return PACKAGES.test(name) && PYTHON.test(parent);
}

/** Whether what a link of this name leads to is a place that package managers install into, or put programs in. */
export function isInstalledLink(visit: Visit, name: string): boolean {
  return name.toLowerCase() === 'node_modules' || isInstalled(name, visit.name) || (visit.installed && name === '.bin');
}

/** Which directories matter: of what is only looked into because something leads there, those that it is used for. */
export function wantedBelow(visit: Visit, region: Region | null, names: readonly string[]): readonly string[] {
  if (visit.sealed) return wantedOfSealed(visit, region, names);
  if (region?.hooks) return [];
  if (region?.whole) return names.filter(name => !CONTENT.has(name));
  if (region || !visit.alias) return names;
  if (visit.installed) return names.filter(name => name === '.bin');
  return names.filter(name => riskOfDirectory(name, visit.name) ?? isInstalled(name, visit.name));
}

function wantedOfSealed({ depth }: Visit, region: Region | null, names: readonly string[]): readonly string[] {
  if (region?.hooks || depth >= MAX_SEALED_DEPTH) return [];
  return region?.whole ? names.filter(name => LINKED_OF_GIT.has(name)) : names;
}

/** Whether a package manager installs into a directory of this name. */
export function isInstalled(name: string, parent: string): boolean {
  return name === 'node_modules' || (PACKAGES.test(name) && PYTHON.test(parent));
}

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
