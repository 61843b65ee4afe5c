// Masks of a workspace before a run: what was found, together with what was masked before and may have been moved.
//
// In direct mode a command can rename a directory above a masked file, and the mask of the next run would find nothing at the old path.
// So acode remembers device and inode of what it masked and of every directory above it, in a private file of the state directory.

import { createHash } from 'node:crypto';
import { existsSync, lstatSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import type { Dirent } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn, setTimeout } from 'node:timers/promises';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { MaskPolicy, MaskReport, MaskWarning, MaskedPath } from '../../contract/masks.ts';
import type { Clock } from '../../contract/ports.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import { DirectoryLook, fromText, lstat, toText } from '../directory-look.ts';
import { ancestorsOf, findSecrets } from './find.ts';
import type { FoundSecret, Search, SearchLimits, SearchRequest } from './find.ts';
import { rulesOf } from './rules.ts';
import type { MaskRules } from './rules.ts';

/** What a search for masks needs. */
export interface MaskRequest {
  /** The workspace: an absolute path without links. */
  readonly root: string;
  readonly policy: MaskPolicy;
  /** acode’s state directory. */
  readonly state: string;
  /** Whether the user is told of what was not masked before; it counts as told then. */
  readonly tells?: boolean;
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
  readonly limits?: Partial<SearchLimits & { /** Time of the search for moved files. */ readonly movedMs: number }>;
}

/** Masks of a run, with what the user has not been told of. */
export interface PreparedMasks extends MaskReport {
  readonly untold: Pick<MaskReport, 'masked' | 'warnings'>;
}

const MOVED_MS = 5000;
const MAX_MASKS = 512;
const MAX_MEMORY_BYTES = 4 * 1024 ** 2;
const TURN_MS = 15;
// The kernel stamps files by a clock that lags behind by up to a tick.
const CLOCK_LAG_MS = 20;
const PAUSE_MS = 50;
const MAX_TOLD_WARNINGS = 20;
const MAX_REMEMBERED = 2000;
const MAX_ATTEMPTS = 100;

const identity = z.tuple([z.number(), z.number()]);

const memorySchema = z.strictObject({
  version: z.literal(1),
  workspace: z.string(),
  root: identity,
  /** The git directory that was there at the first run; null for none. */
  repository: z.string().nullable(),
  /** Paths and warnings that the user was told of. */
  told: z.array(z.string()),
  masked: z.array(
    z.strictObject({
      /** Byte string relative to the workspace. */
      path: z.string().min(1),
      kind: z.enum(['file', 'directory']),
      identity,
      /** Of every directory above it, the topmost first. */
      above: z.array(identity),
      rule: z.string(),
      layer: z.enum(['built-in', 'machine', 'team', 'user', 'repository', 'request']),
      where: z.string(),
      /** Whether its own path does not show why it is masked: a link led to it, or it was moved. */
      isSticky: z.boolean(),
    }),
  ),
});

type Memory = z.output<typeof memorySchema>;
type Remembered = Memory['masked'][number];

/**
 * Finds what to mask, and writes it down before the run. Throws ACODE-MSK-001 where something that was masked before cannot be found, and
 * ACODE-MSK-002 where something cannot be masked.
 */
export async function prepareMasks(request: MaskRequest): Promise<PreparedMasks> {
  return prepare(request, request.limits?.movedMs ?? MOVED_MS);
}

/**
 * Searches the whole workspace, however long it takes, for what was masked before. What is not there is forgotten, and the present git
 * repository is trusted to say what it tracks.
 */
export async function rescanMasks(request: MaskRequest): Promise<PreparedMasks> {
  return prepare(request, null);
}

// Without a limit of time it is the user who asked.
async function prepare(request: MaskRequest, movedMs: number | null): Promise<PreparedMasks> {
  const { root, state, policy } = request;
  const store = new MaskMemory(state, root);
  const before = store.read();
  const rules = rulesOf(policy);
  const isRescan = movedMs === null;
  const search = await findSecrets({
    root,
    rules,
    cacheFile: store.directoryFile,
    trusts: one => isRescan || before === null || before.repository === one,
    ...optionsOf(request),
  });
  const { kept, forgotten } = await recall(request, before?.masked ?? [], { search, rules, movedMs });
  const all = new Map<string, Masked>(kept.map(one => [one.path, one]));
  for (const found of search.found) all.set(found.path, maskedOf(fromText(root), found));
  const masked = [...all.values()]
    .filter(({ path }) => !ancestorsOf(path).some(above => all.get(above)?.kind === 'directory'))
    .sort((one, other) => (one.path < other.path ? -1 : 1));
  check(masked);
  const report = { masked: masked.map(published), warnings: search.warnings, forgotten: forgotten.map(toText) };
  const told = before?.told ?? [];
  const repository = isRescan || before === null ? search.repository : before.repository;
  const remembered = { version: 1, workspace: root, root: identityOf(lstatSync(root)), repository } as const;
  store.write({ ...remembered, told: toldNow(request, report, told), masked: masked.map(rememberedOf) }, before);
  return { ...report, untold: untoldOf(report, told) };
}

function optionsOf({ signal, limits, clock }: MaskRequest): Pick<SearchRequest, 'signal' | 'limits' | 'clock'> {
  return { ...(signal ? { signal } : {}), ...(limits ? { limits } : {}), ...(clock ? { clock } : {}) };
}

function toldNow({ tells = false }: MaskRequest, report: MaskReport, told: readonly string[]): string[] {
  return tells ? keysOf(report) : [...told];
}

function keysOf({ masked, warnings }: Pick<MaskReport, 'masked' | 'warnings'>): string[] {
  return [...masked.map(({ path }) => path), ...warnings.slice(0, MAX_TOLD_WARNINGS).map(warningKey)];
}

// Without the numbers in it, which are others at each run.
function warningKey(warning: MaskWarning): string {
  return 'path' in warning ? `${warning.kind} ${warning.path}` : warning.kind;
}

function untoldOf({ masked, warnings }: MaskReport, told: readonly string[]): PreparedMasks['untold'] {
  const known = new Set(told);
  return {
    masked: masked.filter(({ path }) => !known.has(path)),
    warnings: warnings.slice(0, MAX_TOLD_WARNINGS).filter(one => !known.has(warningKey(one))),
  };
}

type Masked = Remembered & { readonly link?: string };

function maskedOf(root: string, { path, kind, stats, rule, setBy, link }: FoundSecret): Masked {
  const above = aboveOf(root, path);
  const { layer, where } = setBy;
  const isSticky = link !== undefined;
  return {
    path,
    kind,
    identity: identityOf(stats),
    above,
    rule,
    layer,
    where,
    isSticky,
    ...(isSticky ? { link } : {}),
  };
}

function rememberedOf({ path, kind, identity: own, above, rule, layer, where, isSticky }: Masked): Remembered {
  return { path, kind, identity: own, above, rule, layer, where, isSticky };
}

function published({ path, kind, identity: [device, inode], rule, layer, where, link }: Masked): MaskedPath {
  const setBy = { layer, where };
  return {
    path: toText(path),
    kind,
    device,
    inode,
    rule,
    setBy,
    ...(link === undefined ? {} : { link: toText(link) }),
  };
}

// Engines take paths as text, and each mask is a mount.
function check(masked: readonly Masked[]): void {
  const [first] = masked;
  if (first && masked.length > MAX_MASKS)
    throw new AcodeError('ACODE-MSK-002', {
      problem: 'too-many',
      path: toText(first.path),
      count: masked.length,
      limit: MAX_MASKS,
    });
  const odd = masked.find(({ path }) => fromText(toText(path)) !== path);
  if (odd) throw new AcodeError('ACODE-MSK-002', { problem: 'name', path: toText(odd.path), rule: odd.rule });
}

interface Recalling {
  readonly search: Search;
  readonly rules: MaskRules;
  readonly movedMs: number | null;
}

interface Recalled {
  readonly kept: readonly Masked[];
  readonly forgotten: readonly string[];
}

// Remembered masks that still count beside what was found.
async function recall(request: MaskRequest, masked: readonly Remembered[], how: Recalling): Promise<Recalled> {
  const root = fromText(request.root);
  const { search, rules, movedMs } = how;
  const found = new Set(search.found.map(({ stats }) => `${stats.dev}:${stats.ino}`));
  const wanted = masked.filter(one => !isRemoved(one, rules));
  const kept = wanted.flatMap(one => (isAboveSame(root, one) ? stillThere(root, one, search) : []));
  const lost = wanted.filter(one => !isAboveSame(root, one) && !found.has(one.identity.join(':')));
  if (lost.length === 0) return { kept, forgotten: [] };
  const moved = await findMoved(root, lost, { ...request, movedMs });
  for (const [one, path] of moved.found) kept.push({ ...one, path, above: aboveOf(root, path), isSticky: true });
  const missing = lost.filter(one => !moved.found.has(one)).map(({ path }) => path);
  const [first] = missing;
  if (first !== undefined && moved.incomplete !== null && movedMs !== null) {
    const context = { path: toText(first), others: missing.length - 1, because: moved.incomplete };
    throw new AcodeError('ACODE-MSK-001', context);
  }
  return { kept, forgotten: missing };
}

// The directory is the one it was in, and a sandbox cannot rename or remove a masked file: what changed there, the user changed.
function stillThere(root: string, one: Remembered, search: Search): Masked[] {
  const now = lstat(`${root}/${one.path}`);
  if (!now || !isKind(now, one.kind)) return [];
  return one.isSticky || search.judge(one.path) !== null ? [{ ...one, identity: identityOf(now) }] : [];
}

// By the user’s file: it names the path, or does not have the pattern any more.
function isRemoved({ path, kind, rule, layer }: Remembered, { add, remove }: MaskRules): boolean {
  if (layer !== 'built-in' && !add.some(({ pattern }) => pattern.text === rule)) return true;
  return layer !== 'machine' && remove.some(pattern => pattern.covers(toText(path), kind === 'directory'));
}

function isKind(found: { isFile: () => boolean; isDirectory: () => boolean }, kind: Remembered['kind']): boolean {
  return kind === 'file' ? found.isFile() : found.isDirectory();
}

function aboveOf(root: string, path: string): [number, number][] {
  return ancestorsOf(path)
    .reverse()
    .map(directory => identityOf(lstat(`${root}/${directory}`)));
}

function isAboveSame(root: string, { path, above }: Remembered): boolean {
  const now = aboveOf(root, path);
  return now.length === above.length && now.every(([device, inode], at) => isOne(above[at], device, inode));
}

function isOne(one: readonly [number, number] | undefined, device: number, inode: number): boolean {
  return one !== undefined && one[0] === device && one[1] === inode;
}

function identityOf(found: { readonly dev: number; readonly ino: number } | null): [device: number, inode: number] {
  return found ? [found.dev, found.ino] : [0, 0];
}

interface Moved {
  readonly found: ReadonlyMap<Remembered, string>;
  /** Why the search does not prove that the rest is not there; null where it does. */
  readonly incomplete: 'time' | 'unreadable' | 'changing' | null;
}

interface MovedRequest {
  readonly movedMs: number | null;
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
}

// Searches again while directories change during a search and there is time.
async function findMoved(root: string, lost: readonly Remembered[], how: MovedRequest): Promise<Moved> {
  const clock = how.clock ?? systemClock;
  const endMs = how.movedMs === null ? Infinity : clock.monotonic() + how.movedMs;
  for (let attempt = 1; ; attempt += 1) {
    const moved = await new MovedSearch(root, lost, clock).run(endMs, how.signal);
    const isOver = how.movedMs === null ? attempt >= MAX_ATTEMPTS : clock.monotonic() + PAUSE_MS >= endMs;
    if (moved.incomplete !== 'changing' || isOver) return moved;
    await setTimeout(PAUSE_MS);
  }
}

/**
 * Searches all directories of a workspace, `node_modules` included, for what was masked: by the directories that were above it, and by
 * its own name.
 */
class MovedSearch {
  readonly #root: string;
  readonly #lost: readonly Remembered[];
  readonly #clock: Clock;
  readonly #startedMs: number;
  readonly #found = new Map<Remembered, string>();
  readonly #queue = [''];
  readonly #names: ReadonlySet<string>;
  readonly #directories: ReadonlyMap<string, readonly { one: Remembered; rest: string }[]>;
  #incomplete: Moved['incomplete'] = null;

  constructor(root: string, lost: readonly Remembered[], clock: Clock) {
    this.#root = root;
    this.#lost = lost;
    this.#clock = clock;
    this.#startedMs = clock.now();
    this.#names = new Set(lost.map(({ path }) => path.slice(path.lastIndexOf('/') + 1)));
    this.#directories = wantedDirectories(lost);
  }

  async run(endMs: number, signal: AbortSignal | undefined): Promise<Moved> {
    let turnMs = this.#clock.monotonic();
    for (const directory of this.#queue) {
      if (this.#found.size === this.#lost.length) break;
      const nowMs = this.#clock.monotonic();
      if (nowMs > endMs) {
        this.#incomplete = 'time';
        break;
      }
      if (nowMs - turnMs > TURN_MS) {
        signal?.throwIfAborted();
        await nextTurn();
        turnMs = this.#clock.monotonic();
      }
      this.#list(directory);
    }
    const isUnfinished = this.#incomplete === null && this.#found.size < this.#lost.length;
    if (isUnfinished && hasChanged(this.#root, this.#queue, this.#startedMs)) this.#incomplete = 'changing';
    return { found: this.#found, incomplete: this.#incomplete };
  }

  #list(directory: string): void {
    const opened = DirectoryLook.open(directory === '' ? this.#root : `${this.#root}/${directory}`);
    if (typeof opened === 'string') {
      this.#incomplete ??= opened === 'unreadable' ? 'unreadable' : 'changing';
      return;
    }
    using look = opened;
    for (let entry = look.next(); entry !== null; entry = look.next()) {
      if (entry === 'unreadable') {
        this.#incomplete ??= 'unreadable';
        return;
      }
      this.#see(directory === '' ? entry.name : `${directory}/${entry.name}`, entry);
    }
  }

  #see(path: string, entry: Dirent): void {
    if (this.#names.has(entry.name)) for (const one of this.#lost) this.#try(one, path);
    if (entry.isDirectory() && path !== '.git') this.#enter(path);
  }

  #enter(path: string): void {
    this.#queue.push(path);
    const now = lstat(`${this.#root}/${path}`);
    for (const { one, rest } of this.#directories.get(identityOf(now).join(':')) ?? [])
      this.#try(one, `${path}/${rest}`);
  }

  #try(one: Remembered, path: string): void {
    const now = lstat(`${this.#root}/${path}`);
    if (now && isOne(one.identity, now.dev, now.ino)) this.#found.set(one, path);
  }
}

// The directories that were above what is searched for, each with the rest of the way.
function wantedDirectories(lost: readonly Remembered[]): Map<string, { one: Remembered; rest: string }[]> {
  const wanted = new Map<string, { one: Remembered; rest: string }[]>();
  for (const one of lost) {
    const names = one.path.split('/');
    for (const [at, [device, inode]] of one.above.entries()) {
      const key = `${device}:${inode}`;
      wanted.set(key, [...(wanted.get(key) ?? []), { one, rest: names.slice(at + 1).join('/') }]);
    }
  }
  return wanted;
}

// Something that is moved during a search, out of what is still to be searched, changes the directory that it comes to.
function hasChanged(root: string, directories: readonly string[], sinceMs: number): boolean {
  return directories.some(directory => {
    const now = lstat(directory === '' ? root : `${root}/${directory}`);
    return now === null || now.ctimeMs >= sinceMs - CLOCK_LAG_MS;
  });
}

/** What acode remembers of one workspace: a small file that matters, and a large one that only saves time. */
class MaskMemory {
  readonly directoryFile: string;
  readonly #directory: string;
  readonly #file: string;
  readonly #root: string;

  constructor(state: string, root: string) {
    const name = createHash('sha256').update(root).digest('hex').slice(0, 32);
    const directory = join(state, 'masks');
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    this.#root = root;
    this.#directory = directory;
    this.#file = join(directory, `${name}.json`);
    this.directoryFile = join(directory, `${name}.directories`);
  }

  /** Null where nothing was remembered, or it was of another directory at this path. */
  read(): Memory | null {
    const text = readPrivateFile(this.#file, { maxBytes: MAX_MEMORY_BYTES })?.text;
    const memory = text === undefined ? null : memoryFrom(text);
    const { dev, ino } = lstatSync(this.#root);
    return memory && isOne(memory.root, dev, ino) ? memory : null;
  }

  /** Writes what is masked now, where it is another than before. What another process added meanwhile is kept. */
  write(memory: Memory, before: Memory | null): void {
    if (before && JSON.stringify(memory) === JSON.stringify(before)) return;
    const known = new Set([...memory.masked, ...(before?.masked ?? [])].map(({ path }) => path));
    const added = (this.read()?.masked ?? []).filter(({ path }) => !known.has(path));
    if (!before) this.#forgetVanished();
    writePrivateFile(this.#file, JSON.stringify({ ...memory, masked: [...memory.masked, ...added] }));
  }

  // Where a workspace is new: of those that are gone, nothing needs to be known.
  #forgetVanished(): void {
    for (const name of readdirSync(this.#directory).slice(0, MAX_REMEMBERED)) {
      if (!name.endsWith('.json')) continue;
      const file = join(this.#directory, name);
      const text = readPrivateFile(file, { maxBytes: MAX_MEMORY_BYTES })?.text;
      const memory = text === undefined ? null : memoryFrom(text);
      if (!memory || existsSync(memory.workspace)) continue;
      for (const one of [file, `${file.slice(0, -'.json'.length)}.directories`]) rmSync(one, { force: true });
    }
  }
}

function memoryFrom(text: string): Memory | null {
  try {
    return memorySchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}
