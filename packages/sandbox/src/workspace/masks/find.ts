// Finds what to mask in a workspace. The cost follows directories, not files: a directory that has not changed since the last run is
// not listed again.
//
// Where it looks: in every directory that holds files of git’s index; one level deep in other directories; never in `node_modules`.
// Without a usable index it walks the workspace within limits. Paths are byte strings, and no link is followed to a directory.

import { closeSync, constants, fstatSync, lstatSync, openSync, readSync } from 'node:fs';
import type { Dirent, Stats } from 'node:fs';
import { createHash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { MaskWarning } from '../../contract/masks.ts';
import type { Clock } from '../../contract/ports.ts';
import type { Source } from '../../contract/sourced.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { targetInside, DirectoryLook, bytes, fromText, lstat, toText } from '../directory-look.ts';
import { keepsExactTimes } from '../file-identity.ts';
import { ABSENT, DirectoryCache, directoryOf, indexOf, lastName, stampOf } from './directory-cache.ts';
import type { Place, Row, Stamp, Territory } from './directory-cache.ts';
import { findRepository, findSubmodule, readGitIndex } from './git-index.ts';
import type { GitIndex, Repository } from './git-index.ts';
import {
  BUILT_IN_SOURCE,
  DEEPER,
  MAX_HEAD,
  NEVER,
  builtInRules,
  fittingRule,
  matchesName,
  mayMatch,
  ruleText,
} from './rules.ts';
import type { AddedPattern, MaskRules } from './rules.ts';

/** A file or directory to mask. */
export interface FoundSecret {
  /** Byte string relative to the workspace, with no link in it. */
  readonly path: string;
  readonly kind: 'file' | 'directory';
  readonly stats: Stats;
  readonly rule: string;
  readonly setBy: Source;
  /** The link that matched, where this is what it points to. */
  readonly link?: string;
}

/** Result of one search. */
export interface Search {
  readonly found: readonly FoundSecret[];
  readonly warnings: readonly MaskWarning[];
  /** Device and inode of the git directory; null where there is no repository. */
  readonly repository: string | null;
  /** Decides about one path, as bytes, by the same rules. */
  readonly judge: (path: string) => FoundSecret | null;
}

/** Limits of a search. */
export interface SearchLimits {
  /** Entries of directories that a walk without an index lists. */
  readonly entries: number;
  /** Time of a walk without an index, in milliseconds. */
  readonly walkMs: number;
  /** Time of a search along an index, in milliseconds. */
  readonly indexMs: number;
  /**
   * Size, as the file system counts it, up to which a directory is listed at once: 1 MiB, about 20,000 names. Larger ones are read
   * name by name, so that memory is bounded.
   */
  readonly atOnceBytes: number;
}

/** What a search needs. */
export interface SearchRequest {
  /** The workspace: an absolute path without links. */
  readonly root: string;
  readonly rules: MaskRules;
  /** The file that remembers directories between runs; null for none. */
  readonly cacheFile: string | null;
  /** Tells by device and inode whether a repository was here before any sandbox could have made it. */
  readonly trusts: (repository: string) => boolean;
  readonly signal?: AbortSignal;
  readonly limits?: Partial<SearchLimits>;
  readonly clock?: Clock;
}

const LIMITS: SearchLimits = { entries: 200_000, walkMs: 2000, indexMs: 10_000, atOnceBytes: 1024 ** 2 };
const MAX_ENTRIES_ONE_LEVEL = 100_000;
const MAX_EXPANDED = 20_000;
const MAX_SUBMODULES = 200;
const MAX_SUBMODULE_DEPTH = 3;
const TURN_MS = 15;
const DIRECTORIES_PER_CHECK = 64;

/** Finds what to mask. */
export async function findSecrets(request: SearchRequest): Promise<Search> {
  const search = new SecretSearch(request);
  return search.run();
}

// A directory of which nothing is known yet, or that cannot be listed.
const UNLISTED = { inode: 0, time: Number.NaN, names: [], directories: [] };

interface Entries {
  readonly names: string[];
  readonly directories: string[];
  /** Whether these are all. */
  readonly isWhole: boolean;
}

class SecretSearch {
  readonly #request: SearchRequest;
  readonly #root: string;
  readonly #limits: SearchLimits;
  readonly #warnings: MaskWarning[] = [];
  readonly #clock: Clock;
  readonly #startedMs: number;
  readonly #rootDevice: number;
  readonly #isExact: boolean;
  /** Patterns for which it matters whether git tracks a file. */
  readonly #untrackedOnly: readonly AddedPattern[];
  #turnMs: number;
  #entries = 0;
  #isComplete = true;
  #steps = 0;

  constructor(request: SearchRequest) {
    this.#request = request;
    this.#root = fromText(request.root);
    this.#limits = { ...LIMITS, ...request.limits };
    this.#clock = request.clock ?? systemClock;
    this.#startedMs = this.#clock.monotonic();
    this.#turnMs = this.#startedMs;
    this.#untrackedOnly = request.rules.add.filter(({ includesTracked }) => !includesTracked);
    this.#rootDevice = lstatSync(request.root).dev;
    this.#isExact = process.platform === 'linux' && keepsExactTimes(request.root);
  }

  async run(): Promise<Search> {
    const { cacheFile, root, rules } = this.#request;
    const key = createHash('sha256')
      .update(`1 ${root} ${ruleText(rules)}`)
      .digest('hex');
    const cache = cacheFile === null ? null : DirectoryCache.read(cacheFile, key, lstatSync(root));
    const repository = findRepository(root);
    const trusted = this.#trusts(repository);
    const isCurrent =
      cache !== null && trusted === cache.isTrusted && cache.hasSameIndexes(repository, this.#clock.now());
    const stale = cache ? await this.#staleRows(cache) : new Set<number>();
    if (isCurrent && cache.isComplete && stale.size === 0) return this.#conclude(cache, repository);
    const territory = isCurrent ? cache.territory() : await this.#survey(repository, trusted);
    const rows = await this.#list(territory, cache, stale);
    const next = DirectoryCache.of(rows, territory, { key, isTrusted: trusted, isComplete: this.#isComplete });
    if (cacheFile !== null) next.write(cacheFile, lstatSync(root));
    return this.#conclude(next, repository);
  }

  #trusts(repository: Repository | null): boolean {
    return repository !== null && repository.isProtected && this.#request.trusts(repository.identity);
  }

  async #survey(repository: Repository | null, trusted: boolean): Promise<Territory> {
    if (repository === null) return walkOf(null, [], []);
    const stamp = this.#stamp(indexOf(repository));
    if (!trusted) {
      const because = repository.isProtected ? 'new-repository' : 'writable';
      return walkOf(repository, [{ kind: 'tracking-unknown', because }], [stamp]);
    }
    const answer = await readGitIndex(repository.gitdir, { ...repository, keeps: this.#keeps });
    if ('fault' in answer && answer.fault !== 'absent')
      return walkOf(repository, [{ kind: 'tracking-unknown', because: 'index' }], [stamp]);
    // Nothing was added yet, or the workspace is an untracked directory of a repository above: no directory leads anywhere.
    if ('fault' in answer || answer.index.entries === 0) return walkOf(repository, [], [stamp]);
    return this.#withSubmodules(repository, answer.index, stamp);
  }

  async #withSubmodules(repository: Repository, index: GitIndex, stamp: Stamp): Promise<Territory> {
    const directories = new Set(index.directories);
    const tracked = new Set(index.tracked);
    const indexes = [stamp];
    const waiting = index.submodules.map(path => ({ path, outer: repository, depth: 1 }));
    for (const { path, outer, depth } of waiting) {
      if (indexes.length > MAX_SUBMODULES) break;
      indexes.push(this.#stamp(`${this.#request.root}/${toText(path)}/.git`));
      const inner = this.#submodule(outer, path);
      if (!inner) continue;
      indexes.push(this.#stamp(indexOf(inner)));
      const answer = await readGitIndex(inner.gitdir, { ...inner, keeps: this.#keeps });
      if ('fault' in answer) continue;
      for (const one of answer.index.directories) directories.add(one === '' ? path : `${path}/${one}`);
      for (const one of answer.index.tracked) tracked.add(`${path}/${one}`);
      const further = depth < MAX_SUBMODULE_DEPTH ? answer.index.submodules : [];
      waiting.push(...further.map(one => ({ path: `${path}/${one}`, outer: inner, depth: depth + 1 })));
    }
    return { mode: 'index', directories, tracked, warnings: [], indexes, repository: repository.identity };
  }

  // Null where it is not there, or a sandbox can write its index.
  #submodule(outer: Repository, path: string): Repository | null {
    if (!lstat(`${this.#root}/${path}`)?.isDirectory()) return null;
    const inner = findSubmodule(outer, this.#request.root, `${this.#request.root}/${toText(path)}`);
    return inner?.isProtected ? inner : null;
  }

  #stamp(file: string): Stamp {
    return stampOf(file, this.#clock.now());
  }

  readonly #keeps = (name: string): boolean =>
    mayMatch(name) || this.#untrackedOnly.some(({ pattern }) => matchesName(pattern.lastName, toText(name)));

  async #staleRows(cache: DirectoryCache): Promise<Set<number>> {
    const stale = new Set<number>();
    const options = { throwIfNoEntry: false } as const;
    const prefix = `${this.#request.root}/`;
    for (let row = 0; row < cache.paths.length; row += 1) {
      if ((row & 1023) === 0) await this.#breathe();
      const path = cache.paths[row] ?? '';
      let found: Stats | undefined;
      try {
        found = lstatSync(isPlainText(path) ? prefix + path : bytes(`${this.#root}/${path}`), options);
      } catch {
        found = undefined;
      }
      const isSame = found
        ? found.ctimeMs === cache.times[row] && found.ino === cache.inodes[row] && found.dev === this.#rootDevice
        : cache.times[row] === ABSENT;
      if (!isSame) stale.add(row);
    }
    return stale;
  }

  async #list(territory: Territory, cache: DirectoryCache | null, stale: ReadonlySet<number>): Promise<Row[]> {
    const known = cache?.mode === territory.mode ? cache.rowsExcept(stale) : new Map<string, Row>();
    const rows: Row[] = [];
    const isWalk = territory.mode === 'walk';
    const queue: Place[] = isWalk
      ? [{ path: '', depth: 'whole' }]
      : [...territory.directories].map(path => ({ path, depth: 'whole' }));
    let done = 0;
    for (const place of queue) {
      if (await this.#isSpent(isWalk)) break;
      done += 1;
      const before = known.get(place.path);
      // Less may have been listed before than is wanted now.
      const row = before?.depth === place.depth ? before : this.#listOne(place);
      rows.push(row);
      for (const further of placesIn(row, territory)) queue.push(further);
    }
    // Where a limit was met, the next search goes on.
    for (const place of queue.slice(done)) rows.push({ ...place, ...UNLISTED });
    return rows;
  }

  // A limit that was met is said in the result; what was listed until then counts.
  async #isSpent(isWalk: boolean): Promise<boolean> {
    this.#steps += 1;
    if (this.#steps % DIRECTORIES_PER_CHECK === 0) await this.#breathe();
    const limit = this.#limitMet(isWalk);
    if (limit === null) return false;
    this.#isComplete = false;
    this.#warnings.push({ kind: 'search-limit', limit, entries: this.#entries });
    return true;
  }

  #limitMet(isWalk: boolean): 'entries' | 'time' | null {
    if (isWalk && this.#entries > this.#limits.entries) return 'entries';
    const mostMs = isWalk ? this.#limits.walkMs : this.#limits.indexMs;
    return this.#clock.monotonic() - this.#startedMs > mostMs ? 'time' : null;
  }

  async #breathe(): Promise<void> {
    this.#request.signal?.throwIfAborted();
    if (this.#clock.monotonic() - this.#turnMs < TURN_MS) return;
    await nextTurn();
    this.#turnMs = this.#clock.monotonic();
  }

  #listOne({ path, depth }: Place): Row {
    const nowMs = this.#clock.now();
    const whole = path === '' ? this.#root : `${this.#root}/${path}`;
    const opened = DirectoryLook.open(whole);
    if (typeof opened === 'string') {
      // A link in its place leads to a file that is searched under its own name, or out.
      if (opened !== 'gone' && lstat(whole)?.isDirectory()) this.#unreadable(path);
      return { path, depth, ...UNLISTED, time: opened === 'gone' ? ABSENT : Number.NaN };
    }
    using look = opened;
    const { stats } = look;
    const { names, directories, isWhole } = this.#entriesOf(look, path, depth);
    const time = isWhole && this.#isSettled(stats, nowMs) ? stats.ctimeMs : Number.NaN;
    return { path, depth, inode: stats.ino, time, names, directories };
  }

  // Changed a moment ago, it could change again within the same tick of the kernel’s clock.
  #isSettled({ dev, ctimeMs }: Stats, nowMs: number): boolean {
    return this.#isExact && dev === this.#rootDevice && ctimeMs + 1000 < nowMs;
  }

  #entriesOf(look: DirectoryLook, path: string, depth: Place['depth']): Entries {
    const into: Entries = { names: [], directories: [], isWhole: true };
    const small = look.stats.size <= this.#limits.atOnceBytes ? look.all() : null;
    if (small !== null && small !== 'unreadable') {
      this.#entries += small.length;
      for (const entry of small) this.#see(entry, path, into);
      return into;
    }
    const most = depth === 'whole' ? Infinity : MAX_ENTRIES_ONE_LEVEL;
    let seen = 0;
    for (let entry = look.next(); entry !== null; entry = look.next()) {
      if (entry === 'unreadable') {
        this.#unreadable(path);
        return { ...into, isWhole: false };
      }
      seen += 1;
      if (seen > most) {
        this.#warnings.push({ kind: 'search-limit', limit: 'entries', entries: most });
        return { ...into, isWhole: false };
      }
      this.#see(entry, path, into);
    }
    this.#entries += seen;
    return into;
  }

  #see(entry: Dirent, path: string, { names, directories }: Entries): void {
    const isDirectory = entry.isDirectory();
    if (isDirectory && !NEVER.has(entry.name)) directories.push(entry.name);
    if (this.#isCandidate(path, entry.name, isDirectory)) names.push(entry.name);
  }

  #unreadable(path: string): void {
    this.#warnings.push({ kind: 'unreadable', path: path === '' ? '.' : toText(path) });
  }

  #isCandidate(directory: string, name: string, isDirectory: boolean): boolean {
    if (name === '.git') return false;
    if (!isDirectory && mayMatch(name)) return true;
    const { add } = this.#request.rules;
    if (add.length === 0) return false;
    const text = toText(name);
    return add.some(
      ({ pattern }) =>
        matchesName(pattern.lastName, text) &&
        pattern.matches(toText(directory === '' ? name : `${directory}/${name}`), isDirectory || !pattern.isDirectory),
    );
  }

  #conclude(cache: DirectoryCache, repository: Repository | null): Search {
    const judged = new Map<string, FoundSecret>();
    const judge = new Judge(this.#request, cache);
    for (const path of [...cache.candidates(), ...this.#expanded()]) {
      const found = judge.judge(path);
      // Its own name says more than a link to it.
      if (found && (found.link === undefined || !judged.has(found.path))) judged.set(found.path, found);
    }
    const all = [...judged.values()].sort((one, other) => (one.path < other.path ? -1 : 1));
    // What lies in a masked directory is hidden with it.
    const found = all.filter(({ path }) => !ancestorsOf(path).some(above => judged.get(above)?.kind === 'directory'));
    return {
      found,
      warnings: [...cache.warnings(), ...this.#warnings, ...hardLinks(found)],
      repository: repository?.identity ?? null,
      judge: path => judge.judge(path),
    };
  }

  // Patterns that begin with names are followed from the top, so that they find what no index leads to.
  #expanded(): string[] {
    let left = MAX_EXPANDED;
    const namesIn = (directory: string, segment: string): string[] => {
      if (!/[*?]/.test(segment)) return [fromText(segment)];
      const opened = DirectoryLook.open(directory === '' ? this.#root : `${this.#root}/${directory}`);
      if (typeof opened === 'string') return [];
      using look = opened;
      const names: string[] = [];
      for (let entry = look.next(); entry !== null && entry !== 'unreadable' && left > 0; entry = look.next()) {
        left -= 1;
        if (matchesName(segment, toText(entry.name)) && entry.name !== '.git') names.push(entry.name);
      }
      return names;
    };
    const expand = (directory: string, segments: readonly string[]): string[] => {
      const [segment, ...rest] = segments;
      if (segment === undefined || segment === '**') return [];
      const paths = namesIn(directory, segment).map(name => (directory === '' ? name : `${directory}/${name}`));
      return rest.length === 0 ? paths : paths.flatMap(path => expand(path, rest));
    };
    return this.#request.rules.add.flatMap(({ pattern }) => expand('', pattern.segments));
  }
}

// Directories to list because this one was.
function placesIn({ path: above, depth, directories }: Row, territory: Territory): Place[] {
  const paths = directories.map(name => (above === '' ? name : `${above}/${name}`));
  if (territory.mode === 'walk') return paths.map(path => ({ path, depth: 'whole' }));
  const others =
    depth === 'whole'
      ? paths.filter(path => !territory.directories.has(path))
      : paths.filter(path => DEEPER[lastName(above)] === lastName(path));
  return others.map(path => ({ path, depth: 'one-level' }));
}

function walkOf(repository: Repository | null, warnings: readonly MaskWarning[], indexes: readonly Stamp[]): Territory {
  const known = { directories: new Set<string>(), tracked: new Set<string>() };
  return { mode: 'walk', ...known, warnings, indexes, repository: repository?.identity ?? null };
}

/** Decides about one path whose name matched. */
class Judge {
  readonly #root: string;
  readonly #rules: MaskRules;
  readonly #cache: DirectoryCache;

  constructor({ root, rules }: SearchRequest, cache: DirectoryCache) {
    this.#root = fromText(root);
    this.#rules = rules;
    this.#cache = cache;
  }

  judge(asked: string): FoundSecret | null {
    // A link is masked by what it points to: the link itself holds no secret.
    const path = targetInside(this.#root, asked)?.path ?? '';
    const stats = isMaskable(path) ? lstat(`${this.#root}/${path}`) : null;
    const kind = stats && kindOf(stats);
    if (!stats || !kind) return null;
    const link = path === asked ? {} : { link: asked };
    const names = [...new Set([asked, path])];
    const by = this.#patternFor(names, kind) ?? this.#builtInFor(names, path, kind, stats);
    return by && { path, kind, stats, ...by, ...link };
  }

  #patternFor(names: readonly string[], kind: FoundSecret['kind']): Ruling | null {
    const fits = ({ pattern }: AddedPattern): boolean =>
      names.some(name => pattern.matches(toText(name), kind === 'directory'));
    const isRemoved = this.#isRemoved(names, kind);
    const found = this.#rules.add.find(
      one =>
        fits(one) &&
        !(one.isRemovable && isRemoved) &&
        (one.includesTracked || !names.some(name => this.#cache.tracks(name, kind))),
    );
    return found ? { rule: found.pattern.text, setBy: found.setBy } : null;
  }

  #builtInFor(names: readonly string[], path: string, kind: FoundSecret['kind'], stats: Stats): Ruling | null {
    if (kind === 'directory' || this.#isRemoved(names, kind) || names.some(name => this.#cache.tracks(name, kind)))
      return null;
    for (const name of names) {
      const rules = builtInRules(toText(lastName(name)), toText(lastName(directoryOf(name))));
      const rule = fittingRule(rules, () => beginning(`${this.#root}/${path}`, stats));
      if (rule) return { rule: rule.id, setBy: BUILT_IN_SOURCE };
    }
    return null;
  }

  #isRemoved(names: readonly string[], kind: FoundSecret['kind']): boolean {
    return this.#rules.remove.some(pattern => names.some(name => pattern.covers(toText(name), kind === 'directory')));
  }
}

// The top is the workspace itself, and the git directory is mounted as a whole.
function isMaskable(path: string): boolean {
  return path !== '' && !/^\.git(?:\/|$)/.test(path);
}

// Anything else holds no secret.
function kindOf(stats: Stats): FoundSecret['kind'] | null {
  if (stats.isFile()) return 'file';
  return stats.isDirectory() ? 'directory' : null;
}

type Ruling = Pick<FoundSecret, 'rule' | 'setBy'>;

// Of a file that cannot be read, nothing says that it holds no secret: it is judged by its name, as if it held a key.
const UNREADABLE = '-----BEGIN PRIVATE KEY-----';

function beginning(path: string, { dev, ino }: Stats): string {
  try {
    const descriptor = openSync(bytes(path), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const found = fstatSync(descriptor);
      if (found.dev !== dev || found.ino !== ino || !found.isFile()) return UNREADABLE;
      const buffer = Buffer.alloc(Math.min(MAX_HEAD, found.size));
      return buffer.toString('latin1', 0, readSync(descriptor, buffer, 0, buffer.length, 0));
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return UNREADABLE;
  }
}

function hardLinks(found: readonly FoundSecret[]): MaskWarning[] {
  const known = new Map<string, number>();
  const key = ({ stats }: FoundSecret): string => `${stats.dev}:${stats.ino}`;
  for (const one of found) known.set(key(one), (known.get(key(one)) ?? 0) + 1);
  return found.flatMap((one): MaskWarning[] => {
    const others = one.kind === 'file' ? one.stats.nlink - (known.get(key(one)) ?? 0) : 0;
    return others > 0 ? [{ kind: 'hard-link', path: toText(one.path), others }] : [];
  });
}

// oxlint-disable-next-line no-control-regex -- every byte that is the same as text
const PLAIN_TEXT = /^[\x01-\x7f]*$/;

function isPlainText(path: string): boolean {
  return PLAIN_TEXT.test(path);
}

/** The directories above a path, the nearest first, without the top. */
export function ancestorsOf(path: string): string[] {
  const above: string[] = [];
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) above.push(path.slice(0, at));
  return above;
}
