// Risky changes: files that a run left in a directly mounted workspace and that programs on the host might execute or follow.
//
// Nothing is remembered from before the run: its change time shows whether something changed, which only the kernel
// sets. Budgets bound the scan, so that its cost does not grow with the workspace; it reports what it left out.

import type { Dirent, Stats } from 'node:fs';
import { setImmediate, setTimeout } from 'node:timers/promises';
import type { ChangeCounts, RiskyChange, RiskyKind } from '../contract/result.ts';
import { NO_CHANGES, changeKindOf } from './change-counts.ts';
import type { Counting } from './change-counts.ts';
import {
  FileTimes,
  INEXACT,
  hasReliableTimes,
  keepsBirth,
  DirectoryLook,
  fromText,
  lstat,
  toText,
  targetInside,
  writtenInside,
} from './directory-look.ts';
import type { ScanWindow, Unseen } from './directory-look.ts';
import { isInterpreterName, riskOfEnvironmentFile } from './environments.ts';
import { CONFIG_FILES, commonDirectory, gitfileTarget, namedInside } from './git-directory.ts';
import type { NamedInside } from './git-directory.ts';
import { HardLinks, Leads, Visits, isInstalled, isInstalledLink, riskAt, roleOf, wantedBelow } from './regions.ts';
import type { Lead, Region, Visit } from './regions.ts';
import {
  BARE_REPOSITORY,
  ENVIRONMENT,
  FORETOLD,
  HARD_LINK,
  LINK_OUT,
  NAMED_BY_GIT,
  WITH_KNOWN_PARTS,
  barePartOf,
  riskOfDirectory,
  riskOfFile,
  riskOfKind,
} from './risky-names.ts';
import type { Risk, RiskyDirectory } from './risky-names.ts';

/** Budget of a scan. */
export interface LookBudget {
  readonly entries: number;
  readonly directories: number;
  readonly depth: number;
  readonly milliseconds: number;
  /** The time after which it ends as soon as it has seen enough: a caller waits for the result. */
  readonly patience: number;
  /** How long it rests after each slice of work, in milliseconds: 0 if no other work needs the thread. */
  readonly restMs: number;
}

/** Budget of a scan after a run that a caller waits for. */
export const BUDGET: LookBudget = {
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
const SLICE_MS = 10;
const MAX_CHANGES = 200;
// The part of the budget that one directory may use before what is foretold was asked for.
const FEW = 0.005;
// The part that one risky directory may use before the others were looked into.
const SHARE_OF_REGION = 0.02;
const MAX_CLOSED = 5;
const MAX_SHOWN = 300;
const MAX_REPOSITORIES = 64;

const IS_FORETOLD: ReadonlySet<string> = new Set(FORETOLD);

type Entry = Pick<Dirent, 'name' | 'isDirectory' | 'isFile' | 'isSymbolicLink'>;

// What is gathered of one directory.
interface Seen {
  readonly directory: DirectoryLook;
  /** Whether something was made, renamed or removed in it during the run. */
  readonly changed: boolean;
  /** The same, be it that it was changed again after the run. */
  readonly touched: boolean;
  /** Whether it, or a directory around it, may have been renamed to where it is. */
  readonly moved: boolean;
  /** Names that a bare repository is known by. */
  readonly parts: Set<string>;
  readonly below: string[];
  /** Whether it is a virtual environment. */
  isEnvironment: boolean;
}

/** How a directory is scanned. */
export interface ScanOptions {
  /** Budget; absent values are those of a run that a caller waits for. */
  readonly budget?: Partial<LookBudget>;
  /** Names at the top that the run could not change. */
  readonly skipped?: ReadonlySet<string>;
  /** Names at the top where there was nothing when the run began: a virtual environment there is a new one, and replaces none. */
  readonly absent?: ReadonlySet<string>;
  /** Other directories of the host that the run could write. */
  readonly writable?: readonly string[];
  /** Git directories outside whose configuration counts here: that of the repository of a worktree. */
  readonly repositories?: readonly string[];
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

/** Scans a directory as {@link scanDirectory} does, or the one file that is there. */
export async function scanPath(path: string, window: ScanWindow, options: ScanOptions = {}): Promise<Scan> {
  const stats = lstat(fromText(path));
  if (!stats?.isFile()) return await scanDirectory(path, window, options);
  const isReliable = hasReliableTimes(path);
  const riskyChanges = isReliable ? [] : [notLookedAt(INEXACT)];
  if (!new FileTimes(window, isReliable).isChanged(stats))
    return { ...NOTHING_WRITTEN, riskyChanges, complete: isReliable };
  const name = fromText(path.slice(path.lastIndexOf('/') + 1));
  const risks = [riskOfFile(name), riskOfKind(stats)].filter(risk => risk !== null);
  const kind = changeKindOf(name, stats.mode, riskOfFile(name) !== null);
  return {
    riskyChanges: [...risks.map(risk => ({ ...risk, path: '.' })), ...riskyChanges],
    changed: { ...NO_CHANGES, [kind]: 1 },
    complete: isReliable,
    spent: false,
  };
}

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

/** Report for a workspace that was not scanned. */
export function notLookedAt(reason: string): RiskyChange {
  return { path: '.', kind: 'scan-incomplete', reason };
}

/** Where every scan begins. */
export const ROOT: Visit = {
  path: '',
  name: '',
  depth: 0,
  region: null,
  installed: false,
  inChanged: false,
  inTouched: false,
  moved: false,
  asked: false,
  taken: 0,
  alias: false,
  sealed: false,
};

class Look {
  readonly #root: string;
  readonly #times: FileTimes;
  readonly #leads: Leads;
  readonly #keepsBirth: boolean;
  readonly #writable: readonly string[];
  readonly #repositories: readonly string[];
  readonly #signal: AbortSignal | undefined;
  readonly #budget: LookBudget;
  readonly #skipped: ReadonlySet<string>;
  readonly #absent: ReadonlySet<string>;
  readonly #found = new Map<RiskyKind, RiskyChange[]>();
  readonly #known = new Set<string>();
  readonly #unseen = new Set<string>();
  readonly #closed = new Set<string>();
  readonly #visits = new Visits();
  readonly #hardLinks = new HardLinks();
  // Virtual environments that the run has made.
  readonly #fresh: string[] = [];
  readonly #began = performance.now();
  readonly #counts: Counting = { ...NO_CHANGES };
  #slice = performance.now();
  #spent = false;
  #entries = 0;
  #directories = 0;
  #device = 0;
  #more = 0;
  #repositoriesRead = 0;

  constructor(root: string, window: ScanWindow, options: ScanOptions) {
    const { budget, skipped, absent, signal, writable = [], repositories = [] } = options;
    this.#root = root;
    const isReliable = hasReliableTimes(toText(root));
    if (!isReliable) this.#unseen.add(INEXACT);
    this.#times = new FileTimes(window, isReliable);
    this.#leads = new Leads(root, this.#times);
    this.#keepsBirth = keepsBirth(toText(root));
    this.#writable = writable.map(fromText);
    this.#repositories = repositories.map(fromText);
    this.#budget = { ...BUDGET, ...budget };
    this.#skipped = skipped ?? new Set();
    this.#absent = absent ?? new Set();
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
    await this.#visit(ROOT);
    // Of a worktree the repository is elsewhere, and what its settings name is here.
    this.#putNamed(
      namedInside(
        this.#root,
        this.#repositories.map(path => `${path}/config`),
        '',
        () => this.#isSpent(),
      ),
    );
    for (let visit = this.#visits.next(); visit; visit = this.#visits.next()) {
      if (this.#isSpent()) return;
      if (this.#isSliceOver()) await this.#pause();
      await this.#visit(visit);
    }
  }

  /** At most so many, each kind in turn: a thousand harmless ones must not hide the one that matters. */
  changes(): RiskyChange[] {
    this.#sayClosed();
    this.#addHardLinks();
    const kinds = [...this.#found.values()];
    const total = kinds.reduce((sum, { length }) => sum + length, 0);
    if (total + this.#more > MAX_CHANGES - 1)
      this.#unseen.add(`there are ${total + this.#more} risky changes, of which ${MAX_CHANGES - 1} are listed`);
    const picked: RiskyChange[] = [];
    for (let round = 0; round < MAX_CHANGES && picked.length < Math.min(total, MAX_CHANGES - 1); round += 1) {
      const turn = kinds.flatMap(list => list.slice(round, round + 1));
      picked.push(...turn.slice(0, MAX_CHANGES - 1 - picked.length));
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
    if (visit === ROOT) this.#device = directory.stats.dev;
    else if (directory.stats.dev !== this.#device) return this.#missed(visit, 'elsewhere');
    this.#directories += 1;
    await this.#entriesOf(visit, directory);
  }

  async #entriesOf(visit: Visit, directory: DirectoryLook): Promise<void> {
    const seen = this.#begin(visit, directory);
    if (seen.changed && visit.region?.whole) return this.#report(visit.region);
    this.#readRepository(visit, visit.worktree, visit.region);
    if (isAskedFirst(visit)) return this.#askFirst(visit, seen);
    await this.#list(visit, seen);
    this.#descend(visit, seen, this.#bareRegion(visit, seen));
  }

  async #list(visit: Visit, seen: Seen): Promise<void> {
    const { directory } = seen;
    const most = this.#mostAtOnce(visit);
    let at = 0;
    for (let entry = directory.next(); entry !== null; entry = directory.next()) {
      if (entry === 'unreadable') return this.#askClosed(visit, seen);
      if (this.#isSpent()) return;
      at += 1;
      if (at <= visit.taken) continue;
      if (at > most) return this.#visits.putAgain({ ...visit, taken: at - 1 });
      this.#entries += 1;
      this.#take(visit, entry, seen);
      if (this.#isSliceOver()) await this.#pause();
    }
  }

  // However full a risky directory is made, that cannot use up the budget before the others were looked into.
  #mostAtOnce({ region, alias, taken }: Visit): number {
    return taken === 0 && (region || alias) ? Math.max(1, this.#budget.entries * SHARE_OF_REGION) : Infinity;
  }

  // Of a directory with little in it all names are known in less time than the foretold ones could be asked for; what is
  // foretold still comes first.
  #takeFew(visit: Visit, seen: Seen, few: readonly Entry[]): void {
    const known = few.filter(({ name }) => IS_FORETOLD.has(name));
    const others = few.filter(({ name }) => !IS_FORETOLD.has(name));
    for (const entry of [...known, ...others]) {
      if (this.#isLate()) return;
      this.#entries += 1;
      this.#take(visit, entry, seen);
    }
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

  // A program that may enter a directory but not list it, like git, finds the names it knows. So does the scan.
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
      if (!stats) continue;
      const key = `${stats.ino} ${name.toLowerCase()}`;
      if (answered.has(key)) continue;
      answered.add(key);
      if (this.#isLate()) return;
      const is = { dir: stats.isDirectory(), file: stats.isFile(), link: stats.isSymbolicLink() };
      const entry = { name, isDirectory: () => is.dir, isFile: () => is.file, isSymbolicLink: () => is.link };
      this.#take(visit, entry, seen);
    }
  }

  // Renaming a directory leaves the times of all that is in it as they were, and stamps the directory and the one around it.
  #begin(visit: Visit, directory: DirectoryLook): Seen {
    const { moved: around, inChanged, inTouched, sealed } = visit;
    const own = { changed: this.#times.isChanged(directory.stats), touched: this.#times.isTouched(directory.stats) };
    const moved = !sealed && (around || (inTouched && own.touched && (inChanged || own.changed)));
    return {
      directory,
      changed: !sealed && (around || own.changed),
      touched: !sealed && (around || own.touched),
      moved,
      parts: new Set(),
      below: [],
      isEnvironment: false,
    };
  }

  #take(visit: Visit, entry: Entry, seen: Seen): void {
    const { name } = entry;
    if (visit.path === '' && this.#skipped.has(name)) return this.#takeSealed(visit, entry);
    const part = barePartOf(name);
    if (part !== undefined && (part === name || seen.directory.lstat(part))) seen.parts.add(part);
    if (name === 'pyvenv.cfg') seen.isEnvironment = true;
    if (entry.isDirectory()) seen.below.push(name);
    else if (entry.isSymbolicLink()) this.#takeLink(visit, name, seen);
    else if (!visit.sealed) this.#takeFile(visit, entry, seen);
  }

  // The run could not change it, but what it leads to.
  #takeSealed(visit: Visit, entry: Entry): void {
    const { name } = entry;
    if (name === '.git' && entry.isFile()) this.#followGitfile(visit, name);
    const risk = entry.isDirectory() ? riskOfDirectory(name, visit.name) : null;
    if (!risk) return;
    const region = { ...risk, path: name, reported: false };
    const worktree = name === '.git' ? { worktree: '' } : {};
    this.#visits.put({ ...ROOT, path: name, name, depth: 1, region, alias: true, sealed: true, ...worktree });
  }

  #takeFile(visit: Visit, entry: Entry, seen: Seen): void {
    const { name } = entry;
    const named = this.#riskOf(visit, name);
    // A special file cannot be changed, only made, and making it changes its directory.
    if (!named && !entry.isFile() && !seen.touched) return;
    if (name.toLowerCase() === '.git' && entry.isFile()) this.#followGitfile(visit, name);
    this.#judgeNew(visit, name, seen, named);
  }

  // A link is what it is called, and what it leads to.
  #takeLink(visit: Visit, name: string, seen: Seen): void {
    const named = this.#riskOf(visit, name);
    const role = roleOf(visit, name, other => this.#isBeside(visit, other, seen));
    if (named || role) this.#follow(visit, name, named, role);
    // A link cannot be changed, only made, and making it changes its directory.
    if (visit.sealed || (!named && !role && !seen.touched)) return;
    this.#judgeNew(visit, name, seen, named ?? role);
  }

  // What lies deeper is found by way of links, but not out of the workspace.
  #isBeside(visit: Visit, name: string, { directory }: Seen): boolean {
    return name.includes('/') ? this.#leads.at(below(visit, name)) !== null : directory.lstat(name) !== null;
  }

  #judgeNew(visit: Visit, name: string, seen: Seen, named: Risk | null): void {
    const stats = seen.directory.lstat(name);
    if (!stats && seen.touched) this.#missed(visit, 'unreadable');
    if (!stats || !(seen.moved || this.#times.isChanged(stats))) return;
    this.#count(visit, name, stats, named !== null);
    this.#judge(visit, name, stats, named);
  }

  // What was asked for before its directory is listed was counted then, and what something leads to is counted where it is.
  #count(visit: Visit, name: string, stats: Stats, isKnown: boolean): void {
    if (visit.alias || (visit.asked && IS_FORETOLD.has(name))) return;
    this.#counts[changeKindOf(below(visit, name), stats.isFile() ? stats.mode : 0, isKnown)] += 1;
  }

  // A region is judged by everything in it; elsewhere only names and kinds of files count.
  #judge(visit: Visit, name: string, stats: Stats, named: Risk | null): void {
    if (visit.region?.whole) return this.#report(visit.region);
    const path = below(visit, name);
    const own = visit.region?.fresh ? riskOfEnvironmentFile(this.#root, path, stats, this.#writable) : named;
    const isLinkOut = this.#isLinkOut(path, stats) && !(own === null && isFreshInterpreter(visit, name));
    const isLinked = this.#isLinked(path, stats);
    const risks = [own, riskOfKind(stats), ...(isLinkOut ? [LINK_OUT] : []), ...(isLinked ? [HARD_LINK] : [])];
    for (const risk of risks.filter(known => known !== null)) this.#add(path, risk);
  }

  #isLinkOut(path: string, stats: Stats): boolean {
    return stats.isSymbolicLink() && targetInside(this.#root, path) === null;
  }

  // A file with a second name; of one whose names all were installed together, that is known in the end.
  #isLinked(path: string, stats: Stats): boolean {
    if (!stats.isFile() || stats.nlink <= 1 || !this.#times.isChanged(stats)) return false;
    return !this.#hardLinks.note(path, stats);
  }

  // In an environment that the run has made, what is executed when it starts is expected.
  #riskOf(visit: Visit, name: string): Risk | null {
    const risk = riskAt(visit, name);
    const isFresh = visit.installed && this.#fresh.some(environment => visit.path.startsWith(`${environment}/`));
    return isFresh && risk?.kind === 'build-file' ? null : risk;
  }

  // Where a link leads that is old, something may be new.
  #follow(visit: Visit, name: string, named: Risk | null, role: RiskyDirectory | null): void {
    const path = below(visit, name);
    const lead = this.#leads.at(path);
    if (lead?.stats.isDirectory() && role) this.#putAlias(visit, name, role, lead);
    if (!lead || !named || !this.#leads.isNewFile(lead)) return;
    if (visit.region?.whole && !visit.sealed) this.#report(visit.region);
    else this.#add(path, named);
  }

  #putAlias(visit: Visit, name: string, role: RiskyDirectory, lead: Lead): void {
    const path = below(visit, name);
    if (lead.isNewWay) this.#add(path, role);
    const isRegion = visit.region !== null || role === ENVIRONMENT || riskOfDirectory(name, visit.name) !== null;
    // What leads to a directory around it makes everything a part of it: that is said once.
    const whole = role.whole || lead.path === '' || path.startsWith(`${lead.path}/`);
    const reason = whole ? role.reason : `${role.reason}; a link leads there`;
    const region = isRegion ? { kind: role.kind, reason, whole, path, reported: false } : null;
    this.#visits.put({
      ...ROOT,
      path: lead.path,
      name,
      depth: visit.depth + 1,
      region,
      installed: !isRegion && isInstalledLink(visit, name),
      alias: true,
      sealed: this.#isSealed(lead.path),
      ...(name.toLowerCase() === '.git' ? { worktree: visit.path } : {}),
    });
  }

  #isSealed(path: string): boolean {
    return this.#skipped.has(path.split('/')[0] ?? '');
  }

  // A file that names a git directory elsewhere: that one is the repository of the directory it lies in.
  #followGitfile(visit: Visit, name: string): void {
    const written = gitfileTarget(`${this.#root}/${below(visit, name)}`);
    const path = written === null ? null : writtenInside(this.#root, visit.path, written);
    const lead = path === null ? null : this.#leads.at(path);
    const risk = riskOfDirectory('.git', '');
    if (!lead?.stats.isDirectory() || !risk) return;
    const region = { ...risk, path: lead.path, reported: false };
    const [depth, sealed] = [visit.depth + 1, this.#isSealed(lead.path)];
    this.#visits.put({ ...ROOT, path: lead.path, name, depth, region, alias: true, sealed, worktree: visit.path });
  }

  #readRepository({ path: gitdir, depth }: Visit, worktree: string | undefined, region: Region | null): void {
    if (!region || worktree === undefined) return;
    this.#repositoriesRead += 1;
    if (this.#repositoriesRead > MAX_REPOSITORIES) {
      this.#unseen.add(`the settings of only ${MAX_REPOSITORIES} repositories were read`);
      return;
    }
    const common = commonDirectory(this.#root, gitdir);
    if (common !== null && common !== gitdir) {
      const shared = { ...region, path: common, reported: false };
      const sealed = this.#isSealed(common);
      this.#visits.put({ ...ROOT, path: common, name: '.git', depth: depth + 1, region: shared, alias: true, sealed });
    }
    const directories = [gitdir, ...(common === null ? [] : [common])];
    const files = directories.flatMap(directory => CONFIG_FILES.map(file => `${this.#root}/${directory}/${file}`));
    this.#putNamed(namedInside(this.#root, files, worktree, () => this.#isSpent()));
  }

  #putNamed(named: readonly NamedInside[]): void {
    for (const { as, path, key } of named) {
      if (this.#isSpent()) return;
      const lead = this.#leads.at(path);
      if (as === 'hooks' && lead?.stats.isDirectory()) this.#putHooks(lead, key);
      if (!lead || this.#isSealed(lead.path) || !this.#leads.isNewFile(lead)) continue;
      this.#add(lead.path, NAMED_BY_GIT[as](key));
    }
  }

  #putHooks({ path, isNewWay }: Lead, key: string): void {
    const risk = NAMED_BY_GIT.hooks(key);
    const sealed = this.#isSealed(path);
    if (isNewWay && !sealed && path !== '') this.#add(path, risk);
    const hooks = path === '' ? 'named' : 'all';
    const region = { ...risk, path, reported: false, hooks } as const;
    this.#visits.put({ ...ROOT, path, name: 'hooks', depth: 1, region, alias: true, sealed });
  }

  #bareRegion(visit: Visit, { directory, changed, parts }: Seen): Region | null {
    const isBare = parts.has('HEAD') && parts.size > 1;
    if (visit.region || !isBare) return visit.region;
    const region = { ...BARE_REPOSITORY, path: visit.path === '' ? '.' : visit.path, reported: false };
    const trusted = ['HEAD', 'config', 'config.worktree', 'commondir', 'hooks'].map(name => directory.lstat(name));
    if (changed || trusted.some(stats => stats && this.#times.isChanged(stats))) this.#report(region);
    else this.#readRepository(visit, visit.path, region);
    return region;
  }

  #descend(visit: Visit, seen: Seen, region: Region | null): void {
    const { below: names, changed: inChanged, touched: inTouched, moved } = seen;
    if (names.length > 0 && visit.depth >= this.#budget.depth) {
      if (!visit.sealed) this.#unseen.add(`directories deeper than ${this.#budget.depth} were not scanned`);
      return;
    }
    for (const name of wantedBelow(visit, region, names)) {
      const path = below(visit, name);
      const installed = visit.installed || isInstalled(name, visit.name);
      const own = region ?? this.#regionAt(visit, name, seen, installed);
      const { alias, sealed } = visit;
      const worktree = name.toLowerCase() === '.git' && !region ? { worktree: visit.path } : {};
      const about = { installed, inChanged, inTouched, moved, alias, sealed, asked: false, taken: 0 };
      this.#visits.put({ path, name, depth: visit.depth + 1, region: own, ...about, ...worktree });
    }
  }

  #regionAt(visit: Visit, name: string, seen: Seen, installed: boolean): Region | null {
    const byName = installed && name.toLowerCase() !== '.git' ? null : riskOfDirectory(name, visit.name);
    const risk = byName ?? (seen.isEnvironment && name === 'bin' ? ENVIRONMENT : null);
    if (!risk) return null;
    const region = { ...risk, path: below(visit, name), reported: false };
    if (risk !== ENVIRONMENT || !this.#isFresh(visit, seen, name)) return region;
    this.#fresh.push(visit.path);
    return { ...region, whole: false, fresh: true };
  }

  // An environment that was made by the run where there was nothing before: as long as the file system keeps when something was made.
  #isFresh({ path, alias }: Visit, { directory, isEnvironment }: Seen, name: string): boolean {
    if (alias || !this.#absent.has(path)) return false;
    const programs = directory.lstat(name);
    if (!isEnvironment || !this.#keepsBirth || !programs) return false;
    return this.#times.isBorn(directory.stats) && this.#times.isMade(programs);
  }

  #missed({ path, depth, sealed }: Visit, why: Unseen, isEnterable = false): void {
    if (sealed) return;
    if (path === '') {
      this.#closed.add('the workspace');
      return;
    }
    // What may neither be read nor entered and was not touched was so before: the run could not enter it either.
    const stats = lstat(`${this.#root}/${path}`);
    if (why === 'gone' || (stats && !isEnterable && !this.#times.isTouched(stats))) return;
    const shown = path.length > MAX_SHOWN ? `a directory ${depth} deep` : toText(path);
    this.#closed.add(shown);
  }

  #sayClosed(): void {
    const all = [...this.#closed];
    for (const shown of all.slice(0, MAX_CLOSED)) this.#unseen.add(`${shown} could not be looked into`);
    if (all.length > MAX_CLOSED) this.#unseen.add(`nor could ${all.length - MAX_CLOSED} other directories`);
  }

  // A name that was not seen lies elsewhere, or in a part that was not scanned.
  #addHardLinks(): void {
    const paths = this.#hardLinks.elsewhere();
    const isCut = this.#spent || this.#signal?.aborted === true;
    if (!isCut) for (const path of paths) this.#add(path, HARD_LINK);
    else if (paths.length > 0)
      this.#unseen.add(`not every name of ${paths.length} hard links below node_modules or target was found`);
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
    if (list.length < MAX_CHANGES) list.push({ path: toText(path), kind, reason });
    else this.#more += 1;
  }

  #isSpent(): boolean {
    const { entries, directories, milliseconds, patience } = this.#budget;
    if (this.#signal?.aborted) {
      this.#unseen.add('the scan was stopped');
      return true;
    }
    if (this.#entries >= entries) this.#unseen.add(`only ${entries} entries were scanned`);
    else if (this.#directories >= directories) this.#unseen.add(`only ${directories} directories were scanned`);
    else if (this.#isOver(milliseconds)) this.#unseen.add(`only what ${inWords(milliseconds)} allowed was scanned`);
    else if (this.#isOver(patience) && this.#entries + this.#directories * DIRECTORY >= ENOUGH)
      this.#unseen.add(
        `only ${this.#entries} entries were scanned, the uppermost first, since the run was a short one`,
      );
    else return false;
    this.#spent = true;
    return true;
  }

  // What is known to matter is seen first, however many entries that takes, but not for longer than the whole scan may take.
  #isLate(): boolean {
    return this.#isOver(this.#budget.milliseconds) && this.#isSpent();
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

function isAskedFirst({ path, name, installed, asked, sealed }: Visit): boolean {
  return !asked && !installed && !sealed && (path === '' || WITH_KNOWN_PARTS.has(name.toLowerCase()));
}

function below({ path }: Visit, name: string): string {
  return path === '' ? name : `${path}/${name}`;
}

function isFreshInterpreter({ region }: Visit, name: string): boolean {
  return region?.fresh === true && isInterpreterName(name);
}

function inWords(milliseconds: number): string {
  return milliseconds < 1000 ? `${milliseconds} ms` : `${milliseconds / 1000} s`;
}

function byPath(one: RiskyChange, other: RiskyChange): number {
  return one.path === other.path ? (one.kind < other.kind ? -1 : 1) : one.path < other.path ? -1 : 1;
}
