// What a run left in a directly mounted workspace that programs on the host might execute or follow.
//
// Nothing is remembered from before the run: whether something changed is told by its change time, which only the kernel
// sets. Budgets bound the look, so that its cost does not grow with the workspace; what they left out is said.

import type { Dirent, Stats } from 'node:fs';
import { setImmediate, setTimeout } from 'node:timers/promises';
import type { ChangeCounts, RiskyChange, RiskyKind } from '../contract/result.ts';
import { NO_CHANGES, changeKindOf } from './change-counts.ts';
import type { Counting } from './change-counts.ts';
import { DirectoryLook, fromText, lstat, toText } from './directory-look.ts';
import type { Unseen } from './directory-look.ts';
import { leadsOut } from './links-out.ts';
import { HARD_LINK, LINK_OUT, riskOfKind } from './risky-files.ts';
import {
  BARE_PARTS,
  BARE_REPOSITORY,
  FORETOLD,
  WITH_KNOWN_PARTS,
  riskOfDirectory,
  riskOfFile,
  riskOfProgram,
} from './risky-names.ts';
import type { Risk } from './risky-names.ts';
import { Visits } from './visits.ts';
import type { Region, Visit } from './visits.ts';

/** How much is looked at, at most. */
export interface LookBudget {
  readonly entries: number;
  readonly directories: number;
  readonly depth: number;
  readonly milliseconds: number;
  /** The time after which it ends as soon as it has seen enough: somebody waits for the result. */
  readonly patience: number;
  /** How long it rests after each slice of work, in milliseconds: 0 where nobody else needs the thread. */
  readonly restMs: number;
}

const BUDGET: LookBudget = {
  entries: 20_000,
  directories: 4000,
  depth: 64,
  milliseconds: 500,
  patience: 500,
  restMs: 0,
};
// Enough are so many entries, and a directory takes as long as several of them: a busy machine makes no look a short one.
const ENOUGH = 1500;
const DIRECTORY = 8;
// The kernel stamps files by a clock that lags behind the one we read by up to a tick.
const CLOCK_LAG_MS = 20;
const SLICE_MS = 10;
const MOST_CHANGES = 200;
// The part of the budget that one directory may use before what is foretold was asked for.
const FEW = 0.005;
const MOST_CLOSED = 5;
const LONGEST_SHOWN = 300;
// Of a repository: what only holds content, and may be huge.
const CONTENT = new Set(['objects', 'refs', 'logs', 'lfs']);

const IS_FORETOLD: ReadonlySet<string> = new Set(FORETOLD);

type Entry = Pick<Dirent, 'name' | 'isDirectory' | 'isFile'>;

// What is gathered of one directory.
interface Seen {
  readonly directory: DirectoryLook;
  /** Whether something was made, renamed or removed in it. */
  readonly changed: boolean;
  /** Whether it, or a directory around it, may have been renamed to where it is. */
  readonly moved: boolean;
  /** Names that a bare repository is known by. */
  readonly parts: Set<string>;
  readonly below: string[];
}

/** The time in which a change is taken for one of the run, by the clock of the kernel. */
export interface ScanWindow {
  /** When nothing of the sandbox existed yet. */
  readonly sinceMs: number;
  /** When nothing of the sandbox lived any more; `Infinity` where that is not known. */
  readonly untilMs: number;
}

/** How a directory is scanned. */
export interface ScanOptions {
  /** How much is looked at; what is absent is as after a run that a caller waits for. */
  readonly budget?: Partial<LookBudget>;
  /** Names at the top that the run could not change. */
  readonly skipped?: ReadonlySet<string>;
  /** Ends the scan early; what it has found until then is its result, and incomplete. */
  readonly signal?: AbortSignal;
}

/** What a scan has found. */
export interface Scan {
  /** At most 200; where something was left out, the last entry is of kind `scan-incomplete` and says what. */
  readonly riskyChanges: readonly RiskyChange[];
  readonly changed: ChangeCounts;
  /** Whether everything was seen; false exactly where `riskyChanges` has an entry of kind `scan-incomplete`. */
  readonly complete: boolean;
  /** Whether it ended because its budget was used up, so that a larger one would see more. */
  readonly spent: boolean;
}

/** The scan of a run that could not write anything. */
export const NOTHING_WRITTEN: Scan = { riskyChanges: [], changed: NO_CHANGES, complete: true, spent: false };

/** Scans a directory for what was changed within a time, shallow changes first. Nothing outside of it is read, no link is followed. */
export async function scanDirectory(root: string, window: ScanWindow, options: ScanOptions = {}): Promise<Scan> {
  const look = new Look(fromText(root), window, options);
  await look.run();
  const riskyChanges = look.changes();
  return { riskyChanges, changed: look.changed, complete: isComplete(riskyChanges), spent: look.spent };
}

/** Whether nothing says that something was left out. */
function isComplete(changes: readonly RiskyChange[]): boolean {
  return changes.every(({ kind }) => kind !== 'scan-incomplete');
}

/** What is reported where the workspace was not looked at. */
export function notLookedAt(reason: string): RiskyChange {
  return { path: '.', kind: 'scan-incomplete', reason };
}

class Look {
  readonly #root: string;
  readonly #window: ScanWindow;
  readonly #signal: AbortSignal | undefined;
  readonly #budget: LookBudget;
  readonly #skipped: ReadonlySet<string>;
  readonly #found = new Map<RiskyKind, RiskyChange[]>();
  readonly #known = new Set<string>();
  readonly #unseen = new Set<string>();
  readonly #closed = new Set<string>();
  readonly #visits = new Visits();
  readonly #began = performance.now();
  readonly #counts: Counting = { ...NO_CHANGES };
  #slice = performance.now();
  #spent = false;
  #entries = 0;
  #directories = 0;
  #device = 0;
  #more = 0;

  constructor(root: string, { sinceMs, untilMs }: ScanWindow, { budget, skipped, signal }: ScanOptions) {
    this.#root = root;
    this.#window = { sinceMs: sinceMs - CLOCK_LAG_MS, untilMs };
    this.#budget = { ...BUDGET, ...budget };
    this.#skipped = skipped ?? new Set();
    this.#signal = signal;
  }

  /** Whether it ended because its budget was used up. */
  get spent(): boolean {
    return this.#spent;
  }

  /** How many files were made or changed. */
  get changed(): ChangeCounts {
    return { ...this.#counts };
  }

  async run(): Promise<void> {
    const root = { path: '', name: '', depth: 0, region: null, installed: false, inChanged: false, moved: false };
    await this.#visit({ ...root, asked: false });
    for (let visit = this.#visits.next(); visit; visit = this.#visits.next()) {
      if (this.#isSpent()) return;
      if (this.#isSliceOver()) await this.#pause();
      await this.#visit(visit);
    }
  }

  /** At most so many, each kind in turn: a thousand harmless ones must not hide the one that matters. */
  changes(): RiskyChange[] {
    const kinds = [...this.#found.values()];
    const total = kinds.reduce((sum, { length }) => sum + length, 0);
    if (total + this.#more > MOST_CHANGES - 1)
      this.#unseen.add(`there are ${total + this.#more} risky changes, of which ${MOST_CHANGES - 1} are listed`);
    this.#sayClosed();
    const picked: RiskyChange[] = [];
    for (let round = 0; round < MOST_CHANGES && picked.length < Math.min(total, MOST_CHANGES - 1); round += 1) {
      const turn = kinds.flatMap(list => list.slice(round, round + 1));
      picked.push(...turn.slice(0, MOST_CHANGES - 1 - picked.length));
    }
    picked.sort(byPath);
    return this.#unseen.size === 0 ? picked : [...picked, notLookedAt([...this.#unseen].join('; '))];
  }

  async #visit(visit: Visit): Promise<void> {
    if (visit.region?.reported) return;
    const opened = DirectoryLook.open(visit.path === '' ? this.#root : `${this.#root}/${visit.path}`);
    if (typeof opened === 'string') return this.#missed(visit, opened);
    using directory = opened;
    // Mounts of the host below the workspace are not in the sandbox; a subvolume that was made there is, and looks the same.
    if (visit.path === '') this.#device = directory.stats.dev;
    else if (directory.stats.dev !== this.#device) return this.#missed(visit, 'elsewhere');
    this.#directories += 1;
    await this.#entriesOf(visit, directory);
  }

  async #entriesOf(visit: Visit, directory: DirectoryLook): Promise<void> {
    const seen = this.#begin(visit, directory);
    if (seen.changed && visit.region?.whole) return this.#report(visit.region);
    if (isAskedFirst(visit)) return this.#askFirst(visit, seen);
    for (let entry = directory.next(); entry !== null; entry = directory.next()) {
      if (entry === 'unreadable') {
        this.#askClosed(visit, seen);
        break;
      }
      if (this.#isSpent()) return;
      this.#entries += 1;
      if (!this.#isSkipped(visit, entry.name)) this.#take(visit, entry, seen);
      if (this.#isSliceOver()) await this.#pause();
    }
    this.#descend(visit, seen, this.#bareRegion(visit, seen));
  }

  // Of a directory with little in it all names are known in less time than the foretold ones could be asked for; what is
  // foretold still comes first.
  #takeFew(visit: Visit, seen: Seen, few: readonly Entry[]): void {
    this.#entries += few.length;
    const known = few.filter(({ name }) => IS_FORETOLD.has(name));
    const others = few.filter(({ name }) => !IS_FORETOLD.has(name));
    for (const entry of [...known, ...others]) if (!this.#isSkipped(visit, entry.name)) this.#take(visit, entry, seen);
    this.#descend(visit, seen, this.#bareRegion(visit, seen));
  }

  // However full a directory is made, that cannot use up the budget before what is known to matter there was seen.
  #askFirst(visit: Visit, seen: Seen): void {
    const few = fewEntries(seen.directory, this.#budget.entries * FEW);
    if (few) return this.#takeFew(visit, seen, few);
    this.#ask(visit, seen);
    this.#descend(visit, seen, this.#bareRegion(visit, seen));
    this.#visits.putAgain({ ...visit, asked: true });
  }

  // Whoever may enter a directory but not list it, like git, finds what it knows the name of. So does the look.
  #askClosed(visit: Visit, seen: Seen): void {
    this.#missed(visit, 'unreadable', seen.directory.isEnterable);
    if (visit.region && seen.changed) this.#report(visit.region);
    if (!visit.asked) this.#ask(visit, seen);
  }

  #ask(visit: Visit, seen: Seen): void {
    // On file systems that ignore letter case, one entry answers to several spellings.
    const answered = new Set<string>();
    for (const name of FORETOLD) {
      const stats = seen.directory.lstat(name);
      if (!stats || this.#isSkipped(visit, name)) continue;
      const key = `${stats.ino} ${name.toLowerCase()}`;
      if (answered.has(key)) continue;
      answered.add(key);
      this.#take(visit, { name, isDirectory: () => stats.isDirectory(), isFile: () => stats.isFile() }, seen);
    }
  }

  // Renaming a directory leaves the times of all that is in it as they were, and stamps the directory and the one around it.
  #begin({ moved: around, inChanged }: Visit, directory: DirectoryLook): Seen {
    const changed = around || this.#isChanged(directory.stats);
    return { directory, changed, moved: around || (inChanged && changed), parts: new Set(), below: [] };
  }

  #take(visit: Visit, entry: Entry, seen: Seen): void {
    const { name } = entry;
    if (BARE_PARTS.has(name)) seen.parts.add(name);
    if (entry.isDirectory()) {
      seen.below.push(name);
      return;
    }
    const named = this.#riskOf(visit, name);
    // A link or special file cannot be changed, only made, and making it changes its directory.
    if (!named && !entry.isFile() && !seen.changed) return;
    const stats = seen.directory.lstat(name);
    if (!stats && seen.changed) this.#missed(visit, 'unreadable');
    if (!stats || !this.#isNew(stats, seen)) return;
    this.#count(visit, name, stats, named !== null);
    this.#judge(visit, name, stats, named);
  }

  // What was asked for before its directory is listed was counted then.
  #count(visit: Visit, name: string, stats: Stats, isKnown: boolean): void {
    if (visit.asked && IS_FORETOLD.has(name)) return;
    this.#counts[changeKindOf(below(visit, name), stats.isFile() ? stats.mode : 0, isKnown)] += 1;
  }

  // A region is judged by everything in it; elsewhere only names and kinds of files count.
  #judge(visit: Visit, name: string, stats: Stats, named: Risk | null): void {
    if (visit.region?.whole) return this.#report(visit.region);
    const path = below(visit, name);
    if (named) this.#add(path, named);
    const kind = riskOfKind(stats);
    if (kind) this.#add(path, kind);
    if (stats.isSymbolicLink() && leadsOut(this.#root, path)) this.#add(path, LINK_OUT);
    if (stats.isFile() && stats.nlink > 1 && this.#isChanged(stats)) this.#add(path, HARD_LINK);
  }

  #riskOf({ name: parent, region, installed }: Visit, name: string): Risk | null {
    if (region) return region;
    if (installed) return parent === '.bin' ? riskOfProgram(name) : name === '.git' ? riskOfFile(name) : null;
    return riskOfFile(name);
  }

  #bareRegion(visit: Visit, { directory, changed, parts }: Seen): Region | null {
    const isBare = parts.has('HEAD') && parts.size > 1;
    if (visit.region || !isBare) return visit.region;
    const region = { ...BARE_REPOSITORY, path: visit.path === '' ? '.' : visit.path, reported: false };
    const trusted = ['HEAD', 'config', 'hooks'].map(name => directory.lstat(name));
    if (changed || trusted.some(stats => stats && this.#isChanged(stats))) this.#report(region);
    return region;
  }

  #descend(visit: Visit, { below: names, changed: inChanged, moved }: Seen, region: Region | null): void {
    if (names.length > 0 && visit.depth >= this.#budget.depth) {
      this.#unseen.add(`directories deeper than ${this.#budget.depth} were not looked at`);
      return;
    }
    const wanted = region?.whole ? names.filter(name => !CONTENT.has(name)) : names;
    const depth = visit.depth + 1;
    for (const name of wanted) {
      const path = below(visit, name);
      const installed = visit.installed || name === 'node_modules';
      const own = region ?? regionAt(visit, name, installed);
      this.#visits.put({ path, name, depth, region: own, installed, inChanged, moved, asked: false });
    }
  }

  #missed({ path, depth }: Visit, why: Unseen, isEnterable = false): void {
    // What may neither be read nor entered and was not touched was so before: the run could not enter it either.
    const stats = lstat(`${this.#root}/${path}`);
    if (why === 'gone' || (stats && !isEnterable && !this.#isChanged(stats))) return;
    const shown = path.length > LONGEST_SHOWN ? `a directory ${depth} deep` : toText(path);
    this.#closed.add(path === '' ? 'the workspace' : shown);
  }

  #sayClosed(): void {
    const all = [...this.#closed];
    for (const shown of all.slice(0, MOST_CLOSED)) this.#unseen.add(`${shown} could not be looked into`);
    if (all.length > MOST_CLOSED) this.#unseen.add(`nor could ${all.length - MOST_CLOSED} other directories`);
  }

  #report(region: Region): void {
    if (region.reported) return;
    region.reported = true;
    this.#add(region.path, region);
  }

  #add(path: string, { kind, reason }: Risk): void {
    const key = `${kind} ${path}`;
    if (this.#known.has(key)) return;
    this.#known.add(key);
    const list = this.#found.get(kind) ?? [];
    this.#found.set(kind, list);
    if (list.length < MOST_CHANGES) list.push({ path: toText(path), kind, reason });
    else this.#more += 1;
  }

  #isSkipped({ path }: Visit, name: string): boolean {
    return path === '' && this.#skipped.has(name);
  }

  #isNew(stats: Stats, { moved }: Seen): boolean {
    return moved || this.#isChanged(stats);
  }

  #isChanged({ ctimeMs }: Stats): boolean {
    return ctimeMs >= this.#window.sinceMs && ctimeMs <= this.#window.untilMs;
  }

  #isSpent(): boolean {
    const { entries, directories, milliseconds, patience } = this.#budget;
    if (this.#signal?.aborted) {
      this.#unseen.add('the scan was stopped');
      return true;
    }
    if (this.#entries >= entries) this.#unseen.add(`only ${entries} entries were looked at`);
    else if (this.#directories >= directories) this.#unseen.add(`only ${directories} directories were looked at`);
    else if (this.#isOver(milliseconds)) this.#unseen.add(`only what ${inWords(milliseconds)} allowed was looked at`);
    else if (this.#isOver(patience) && this.#entries + this.#directories * DIRECTORY >= ENOUGH)
      this.#unseen.add(
        `only ${this.#entries} entries were looked at, the uppermost first, since the run was a short one`,
      );
    else return false;
    this.#spent = true;
    return true;
  }

  #isOver(milliseconds: number): boolean {
    return performance.now() - this.#began > milliseconds;
  }

  #isSliceOver(): boolean {
    return performance.now() - this.#slice > SLICE_MS;
  }

  // Others get their turn: a look must not hold up the streams of another sandbox.
  async #pause(): Promise<void> {
    if (this.#budget.restMs > 0) await setTimeout(this.#budget.restMs);
    else await setImmediate();
    this.#slice = performance.now();
  }
}

// Everything in a directory, where that is little; null where it is much, or cannot be listed.
function fewEntries(directory: DirectoryLook, most: number): Entry[] | null {
  const few: Entry[] = [];
  for (let entry = directory.next(); entry !== null; entry = directory.next()) {
    if (entry === 'unreadable' || few.length >= most) return null;
    few.push(entry);
  }
  return few;
}

function isAskedFirst({ path, name, installed, asked }: Visit): boolean {
  return !asked && !installed && (path === '' || WITH_KNOWN_PARTS.has(name.toLowerCase()));
}

function below({ path }: Visit, name: string): string {
  return path === '' ? name : `${path}/${name}`;
}

function regionAt(visit: Visit, name: string, installed: boolean): Region | null {
  const risk = installed && name !== '.git' ? null : riskOfDirectory(name, visit.name);
  return risk && { ...risk, path: below(visit, name), reported: false };
}

function inWords(milliseconds: number): string {
  return milliseconds < 1000 ? `${milliseconds} ms` : `${milliseconds / 1000} s`;
}

function byPath(one: RiskyChange, other: RiskyChange): number {
  return one.path === other.path ? (one.kind < other.kind ? -1 : 1) : one.path < other.path ? -1 : 1;
}
