// Regions of a scan: what a file name means in its directory, which directories were visited, and where links lead.

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
import { lstat, targetInside } from './directory-look.ts';
import type { FileTimes } from './directory-look.ts';

// Directories of a git repository that only hold content and may be huge.
const CONTENT = new Set(['objects', 'refs', 'logs', 'lfs']);
// Directories of a read-only git repository whose links may lead to hooks and attributes.
const LINKED_OF_GIT = new Set(['hooks', 'info']);
// In directories that a run cannot change, settings are near the top; whole checkouts may be deeper.
const MAX_SEALED_DEPTH = 3;
const PACKAGES = /^(?:site|dist)-packages$/;
const PYTHON = /^python\d/;

// Programs of an installed package’s dependencies: they are on the search path of that package’s own scripts only, and
// those scripts are as new as the programs. Hidden directories are not packages: pnpm puts programs for the whole
// project in one.
const PROGRAMS_OF_DEPENDENCY = /(?:^|\/)node_modules\/(?:@[^/]+\/)?[^./@][^/]*\/node_modules\/\.bin$/;

/** The risk of a file, by its name and directory. */
export function riskAt(visit: Visit, name: string): Risk | null {
  const { name: parent, region, installed } = visit;
  if (region) return isExpected(region, name) ? null : region;
  if (!installed) return riskOfFile(name, parent);
  if (parent !== '.bin') return riskOfInstalled(name, parent);
  // If a link leads to such a directory, tools use it under the name of the link.
  return !visit.alias && PROGRAMS_OF_DEPENDENCY.test(visit.path) ? null : riskOfProgram(name);
}

function isExpected({ fresh, hooks }: Region, name: string): boolean {
  return fresh === true || (hooks === 'named' && !HOOKS.has(name));
}

/**
 * The role of a link to a directory, by the link’s name; `beside` tells whether a given name exists in the same
 * directory.
 */
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

// A link that replaces the packages directory or its parent.
function isPythonLink(name: string, parent: string): boolean {
  if (PYTHON.test(name)) return parent === 'lib' || parent === 'lib64';
  return PACKAGES.test(name) && PYTHON.test(parent);
}

/**
 * Whether a link of this name makes its target a directory into which package managers install packages or programs.
 */
export function isInstalledLink(visit: Visit, name: string): boolean {
  return name.toLowerCase() === 'node_modules' || isInstalled(name, visit.name) || (visit.installed && name === '.bin');
}

/**
 * The subdirectories to visit. In a directory that is visited only because a link or a setting leads there, these are
 * the ones used for that purpose.
 */
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

/** A risky directory that the scan found. */
export interface Region extends RiskyDirectory {
  readonly path: string;
  reported: boolean;
  /**
   * Set for the programs of a virtual environment that the run created: the files that every environment has are
   * expected there.
   */
  readonly fresh?: boolean;
  /**
   * Set for a hooks directory: only files directly in it are executed. `'named'`: only files that have the name of a
   * hook.
   */
  readonly hooks?: 'all' | 'named';
}

/** A directory to scan. */
export interface Visit {
  /** Relative to the root; empty for the root itself. */
  readonly path: string;
  /** The name under which tools use it: if a link leads to it, the name of the link. */
  readonly name: string;
  readonly depth: number;
  /** The risky directory that contains it. */
  readonly region: Region | null;
  /**
   * Whether a package manager installed its contents. File names mean nothing there, since all of it is executed
   * anyway.
   */
  readonly installed: boolean;
  /** Whether the run created, renamed or removed something in its parent directory: it may have been moved here. */
  readonly inChanged: boolean;
  /** Like `inChanged`, but also true if the parent directory was changed again after the run. */
  readonly inTouched: boolean;
  /**
   * Whether it is inside a directory that may have been moved here: the timestamps of its own contents do not show
   * that.
   */
  readonly moved: boolean;
  /** Whether its risky names were already checked, so that only listing its entries remains. */
  readonly asked: boolean;
  /** How many of its entries were already processed, in file system order. */
  readonly taken: number;
  /**
   * Whether a link or a git setting leads here. The scan visits it once for that use, in addition to the visit under
   * its own path.
   */
  readonly alias: boolean;
  /** Whether the run was unable to change it: only the targets of its links and settings matter. */
  readonly sealed: boolean;
  /** For a git directory: the directory, relative to the root, in which git runs what the configuration names. */
  readonly worktree?: string;
}

/** The queue of directories still to visit. */
export class Visits {
  // Directories in which everything is risky come first, so that harmless ones do not use up the budget. Installed
  // packages come last: they are many, and little in them is unexpected.
  readonly #risky = new Queue();
  readonly #ordinary = new Queue();
  readonly #installed = new Queue();
  readonly #known = new Set<string>();

  /** Adds a visit, unless the same directory was already added for the same use. */
  put(visit: Visit): void {
    const key = keyOf(visit);
    if (this.#known.has(key)) return;
    this.#known.add(key);
    if (visit.installed && !visit.alias) this.#installed.put(visit);
    else if (visit.region || visit.alias) this.#risky.put(visit);
    else this.#ordinary.put(visit);
  }

  /** Adds the second visit to a directory, behind everything risky that the first visit found. */
  putAgain(visit: Visit): void {
    this.#ordinary.put(visit);
  }

  /** Removes and returns the next visit. */
  next(): Visit | undefined {
    return this.#risky.take() ?? this.#ordinary.take() ?? this.#installed.take();
  }
}

// A directory is visited once for each use, however many links lead to it.
function keyOf({ path, name, region, installed, alias, sealed }: Visit): string {
  if (!alias) return path;
  const as = region
    ? `${region.kind} ${region.whole} ${region.hooks ?? ''}`
    : installed
      ? `installed ${name}`
      : name.toLowerCase();
  return `${path}\0${as}${sealed ? ' sealed' : ''}`;
}

// First in, first out, without shifting the remaining entries.
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
  /** The `node_modules` or `target` directory that contains all of its names; null if there are several. */
  below: string | null;
}

const MAX_LINKED = 5000;

/** The hard links that a scan finds. */
export class HardLinks {
  readonly #linked = new Map<string, Linked>();

  /** Records one name of a file that has several. Returns false if the caller must report the file at once. */
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

  /** The recorded names of files that also have a name elsewhere. */
  elsewhere(): string[] {
    const open = [...this.#linked.values()].filter(({ names, nlink, below }) => below === null || names.size < nlink);
    return open.flatMap(({ names }) => [...names]);
  }
}

// Installers and compilers hard-link their own files there: esbuild in `node_modules`, cargo in `target`.
const OUTPUT = /^(?:.*?\/)?(?:node_modules|target)(?=\/)/;

// Uses the outermost directory, since installations are nested.
function installedBelow(path: string): string | null {
  return OUTPUT.exec(path)?.[0] ?? null;
}

/** The target of a path. */
export interface Lead {
  /** Relative to the root, with all links resolved. */
  readonly path: string;
  readonly stats: Stats;
  /** Whether a link or a directory on the path is new or was moved: the target’s own timestamps do not show that. */
  readonly isNewWay: boolean;
}

/** Resolves paths below a directory, and never follows a link out of it. */
export class Leads {
  readonly #root: string;
  readonly #times: FileTimes;

  constructor(root: string, times: FileTimes) {
    this.#root = root;
    this.#times = times;
  }

  /** Resolves a path; null if nothing exists there, or if it leads out of the root. */
  at(path: string): Lead | null {
    const target = targetInside(this.#root, path);
    const stats = target && lstat(`${this.#root}/${target.path}`);
    if (!target || !stats) return null;
    const links = target.links.map(link => lstat(`${this.#root}/${link}`));
    const isNewWay = links.some(link => link && this.#times.isChanged(link)) || this.#isMoved(target.path);
    return { path: target.path, stats, isNewWay };
  }

  /** Whether the target is a file that the run created, changed or replaced. */
  isNewFile({ stats, isNewWay }: Lead): boolean {
    return stats.isFile() && (isNewWay || this.#times.isChanged(stats));
  }

  // Renaming a directory updates its own timestamp and that of its parent.
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
