// Decides what an apply does at each path, and in which order.

import { fstatSync, readdirSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import type { ForkChange, ForkConflict, ForkConflictReason, ForkRefusal } from '../../contract/fork.ts';
import type { Obstacles } from './commit.ts';
import type { ApplyStep, StepState } from './journal.ts';
import { MAX_MERGE_BYTES, mergeThreeWay } from './merge.ts';
import {
  ancestorsOf,
  digestOf,
  isNoWay,
  isTreePath,
  nameOf,
  openBelow,
  parentOf,
  readSmallFile,
  readThrough,
  safeMode,
  sha256Of,
} from './tree.ts';
import type { OpenDirectory, TreeEntry } from './tree.ts';

/** A change of a fork, and the ways to its content. */
export interface AppliedChange {
  readonly change: ForkChange;
  /** Opens the file of the fork. */
  readonly open: () => Promise<FileHandle>;
  /** Opens the file that the fork began with; null where that is unknown. */
  readonly openBase: () => Promise<FileHandle | null>;
}

/** What a plan depends on besides the changes. */
export interface PlanOptions {
  readonly only?: readonly string[];
  /** Who on the host trusts a path; null where nobody does. */
  readonly protectedBy: (path: string) => string | null;
  readonly umask: number;
  readonly signal: AbortSignal;
}

/** A file that an apply makes. */
export interface PlannedFile {
  readonly path: string;
  readonly content: Buffer | (() => Promise<FileHandle>);
  readonly sha256: string;
  readonly mode: number;
  /** The group it is given; null for the user’s own. */
  readonly group: number | null;
}

/** What an apply is going to do. */
export interface ApplyPlan extends Obstacles {
  readonly changes: number;
  readonly already: number;
  readonly merged: readonly string[];
  readonly kept: readonly string[];
  readonly steps: readonly ApplyStep[];
  /** The files to be made, by the numbers of their steps. */
  readonly files: ReadonlyMap<number, PlannedFile>;
  readonly times: readonly (readonly [path: string, modifiedNs: string])[];
  /** What has changed in the workspace since the plan was made. */
  changedSince(root: OpenDirectory): Obstacles | null;
}

/** What is compared at a path. */
export interface PathFacts {
  readonly change: ForkChange;
  /** What the workspace has now. */
  readonly host: TreeEntry | null;
  /** Whether it has the content or target that the fork began with; null where that is unknown. Directories always have. */
  readonly isBase: boolean | null;
  /** Whether it has the content or target of the fork. Directories always have. */
  readonly isAfter: boolean;
  readonly umask: number;
}

/** What is to be done at a path. */
export type Decision =
  | { readonly do: 'nothing' }
  | { readonly do: 'remove' }
  | { readonly do: 'put'; readonly mode: number }
  | { readonly do: 'merge'; readonly mode: number }
  | { readonly do: 'mode'; readonly mode: number }
  | { readonly do: 'conflict'; readonly reason: ForkConflictReason };

const DEFAULT_MODES = { file: 0o644, directory: 0o755 };

/** Decides about one path. */
export function decide(facts: PathFacts): Decision {
  const { change, host, isBase, umask } = facts;
  if (change.change === 'deleted') return decideDeleted(facts);
  const fresh: Decision = { do: 'put', mode: safeMode(wantedMode(change), 0, umask) };
  if (host === null) return change.change === 'changed' ? { do: 'conflict', reason: 'deleted-here' } : fresh;
  if (host.kind === change.kind) return decideSameKind(facts, host);
  return host.kind === baseKindOf(change) ? unlessChanged(isBase, fresh) : { do: 'conflict', reason: 'kind' };
}

function decideSameKind({ change, isBase, isAfter, umask }: PathFacts, host: TreeEntry): Decision {
  const wasKind = baseKindOf(change);
  const mode = decideMode(change, host, umask);
  if (mode === null) return { do: 'conflict', reason: 'changed-here' };
  if (isAfter) return modeOf(host) === mode ? { do: 'nothing' } : { do: 'mode', mode };
  if (host.kind !== wasKind) return { do: 'conflict', reason: wasKind === null ? 'added-here' : 'changed-here' };
  if (isBase === false && host.kind === 'file') return { do: 'merge', mode };
  return unlessChanged(isBase, { do: 'put', mode });
}

function decideDeleted({ change, host, isBase }: PathFacts): Decision {
  if (host === null) return { do: 'nothing' };
  if (host.kind !== change.kind) return { do: 'conflict', reason: 'kind' };
  return unlessChanged(isBase, { do: 'remove' });
}

function unlessChanged(isBase: boolean | null, otherwise: Decision): Decision {
  if (isBase === null) return { do: 'conflict', reason: 'base-unknown' };
  return isBase ? otherwise : { do: 'conflict', reason: 'changed-here' };
}

function baseKindOf({ change, before, kind }: ForkChange): ForkChange['kind'] | null {
  return change === 'added' ? null : (before ?? kind);
}

function wantedMode({ mode, kind }: ForkChange): number {
  return mode?.after ?? (kind === 'directory' ? DEFAULT_MODES.directory : DEFAULT_MODES.file);
}

function modeOf(entry: TreeEntry): number {
  return 'mode' in entry ? entry.mode : 0;
}

// Three-way, as the content; null where both changed it. What both added keeps the workspace’s.
function decideMode(change: ForkChange, host: TreeEntry, umask: number): number | null {
  const own = modeOf(host);
  const wanted = change.mode?.after;
  const before = change.mode?.before;
  if (host.kind === 'link' || wanted === undefined || wanted === before || change.change === 'added') return own;
  const safe = safeMode(wanted, own, umask);
  return own === before || own === safe ? safe : null;
}

/** The changes that are meant: those at or below a named path, and directories that those below them need. */
export function selected<Entry extends Pick<AppliedChange, 'change'>>(
  changes: readonly Entry[],
  only: readonly string[] | undefined,
): { chosen: readonly Entry[]; missing: readonly string[] } {
  if (only === undefined) return { chosen: changes, missing: [] };
  const named = only.map(path => path.replace(/^(?:\.\/+)+|\/+$/g, ''));
  const isNamed = (path: string): boolean => named.some(name => isAtOrBelow(path, name));
  const direct = changes.filter(({ change }) => isNamed(change.path));
  const needed = new Set(
    direct.filter(({ change }) => change.change !== 'deleted').flatMap(({ change }) => ancestorsOf(change.path)),
  );
  const chosen = changes.filter(
    ({ change }) => isNamed(change.path) || (needed.has(change.path) && becomesDirectory(change)),
  );
  const missing = named.filter(name => !changes.some(({ change }) => isAtOrBelow(change.path, name)));
  return { chosen, missing };
}

function isAtOrBelow(path: string, name: string): boolean {
  return name === '' || name === '.' || path === name || path.startsWith(`${name}/`);
}

function becomesDirectory({ change, kind, before }: ForkChange): boolean {
  return kind === 'directory' && (change === 'added' || (change === 'changed' && before !== undefined));
}

// A protected path is named by a path that is protected itself: the name of the whole workspace does not mean its hooks.
function refusalOf(
  change: ForkChange,
  only: readonly string[],
  protectedBy: PlanOptions['protectedBy'],
): ForkRefusal | null {
  const { path } = change;
  if (change.unreadableName || !isTreePath(path)) return { path, reason: 'name' };
  if (change.change !== 'deleted' && ['fifo', 'socket', 'device'].includes(change.kind))
    return { path, reason: 'special' };
  if (change.gap !== undefined) return { path, reason: 'content', detail: change.gap };
  const detail = protectedBy(path);
  if (detail === null) return null;
  const isNamed = only.some(name => protectedBy(name) !== null && isAtOrBelow(path, name.replace(/\/+$/, '')));
  return isNamed ? null : { path, reason: 'protected', detail };
}

/** Compares each change with the workspace, and plans the steps. */
export async function planApply(
  root: OpenDirectory,
  changes: AsyncIterable<AppliedChange> | Iterable<AppliedChange>,
  options: PlanOptions,
): Promise<ApplyPlan> {
  const all: AppliedChange[] = [];
  for await (const change of changes) all.push(change);
  const { chosen, missing } = selected(all, options.only);
  const planner = new Planner(root, chosen, options);
  for (const path of missing) planner.refused.push({ path, reason: 'no-such-change' });
  for (const each of chosen) {
    options.signal.throwIfAborted();
    await planner.add(each);
  }
  return planner.finished();
}

interface Planned {
  readonly path: string;
  readonly host: TreeEntry | null;
  readonly step: ApplyStep;
  readonly file?: PlannedFile;
}

/** A change and what the workspace has at its path. */
interface Compared {
  readonly applied: AppliedChange;
  readonly directory: OpenDirectory | null;
  readonly host: TreeEntry | null;
  readonly content: Content | null;
}

type Content = { readonly sha256: string; readonly size: number };

class Planner {
  readonly #root: OpenDirectory;
  readonly #options: PlanOptions;
  /** Paths that are directories when the apply has ended, and need not be now. */
  readonly #made: ReadonlySet<string>;
  readonly #mounts = new Map<string, string>();
  readonly #planned: Planned[] = [];
  readonly #conflicts: ForkConflict[] = [];
  readonly refused: ForkRefusal[] = [];
  readonly #merged: string[] = [];
  #already = 0;

  constructor(root: OpenDirectory, chosen: readonly AppliedChange[], options: PlanOptions) {
    this.#root = root;
    this.#options = options;
    this.#made = new Set(chosen.filter(({ change }) => becomesDirectory(change)).map(({ change }) => change.path));
  }

  async add(applied: AppliedChange): Promise<void> {
    const { change } = applied;
    const refusal = refusalOf(change, this.#options.only ?? [], this.#options.protectedBy);
    if (refusal) return void this.refused.push(refusal);
    try {
      using directory = openBelow(this.#root, parentOf(change.path));
      if (this.#isElsewhere(directory, parentOf(change.path)))
        return void this.refused.push({ path: change.path, reason: 'mount' });
      await this.#compare(applied, directory, directory.inspect(nameOf(change.path)));
    } catch (error) {
      if (!isNoWay(error)) throw error;
      await this.#withoutParent(applied);
    }
  }

  // Without following links there is no such path, so that there is nothing to delete either.
  async #withoutParent(applied: AppliedChange): Promise<void> {
    const { change } = applied;
    const isMade = ancestorsOf(change.path).some(path => this.#made.has(path));
    if (isMade || change.change === 'deleted') await this.#compare(applied, null, null);
    else this.#conflicts.push({ path: change.path, reason: 'parent' });
  }

  #isElsewhere(directory: OpenDirectory, path: string): boolean {
    const mount = this.#mounts.get(path) ?? directory.mount;
    this.#mounts.set(path, mount);
    return mount !== this.#root.mount;
  }

  async #compare(applied: AppliedChange, directory: OpenDirectory | null, host: TreeEntry | null): Promise<void> {
    const { change } = applied;
    const { path } = change;
    const { umask } = this.#options;
    if (host?.kind === 'file' && host.isSparse) return void this.refused.push({ path, reason: 'sparse' });
    const content = directory && host?.kind === 'file' ? await this.#hostContent(directory, path) : null;
    const isBase = await this.#isBase(applied, host, content);
    const isAfter = await this.#isAfter(applied, host, content);
    await this.#follow(decide({ change, host, isBase, isAfter, umask }), { applied, directory, host, content });
  }

  async #follow(decision: Decision, at: Compared): Promise<void> {
    const { path } = at.applied.change;
    if (decision.do === 'nothing') this.#already += 1;
    else if (decision.do === 'conflict') this.#conflicts.push({ path, reason: decision.reason });
    else if (decision.do === 'remove') this.#plan(path, at.host, stateOf(at.host, at.content), null);
    else if (decision.do === 'mode') this.#planMode(path, at.host, decision.mode);
    else await this.#put(at, decision.mode, decision.do === 'merge');
  }

  async #hostContent(directory: OpenDirectory, path: string): Promise<Content> {
    return digestOf(directory, nameOf(path), this.#options.signal);
  }

  async #isBase(
    { change, openBase }: AppliedChange,
    host: TreeEntry | null,
    content: Content | null,
  ): Promise<boolean | null> {
    if (host === null || host.kind !== baseKindOf(change)) return false;
    if (host.kind === 'link') return host.target === (change.link?.before ?? change.link?.after);
    if (content === null) return true;
    if (change.baseUnknown) return null;
    const handle = await openBase();
    return handle && this.#hasContent(handle, content);
  }

  async #isAfter({ change, open }: AppliedChange, host: TreeEntry | null, content: Content | null): Promise<boolean> {
    if (host === null || change.change === 'deleted' || host.kind !== change.kind) return false;
    if (host.kind === 'link') return host.target === (change.link?.after ?? change.link?.before);
    if (content === null) return true;
    return change.sha256 === undefined ? this.#hasContent(await open(), content) : change.sha256 === content.sha256;
  }

  async #hasContent(handle: FileHandle, { sha256, size }: Content): Promise<boolean> {
    try {
      if (fstatSync(handle.fd).size !== size) return false;
      return (await readThrough(handle.fd, this.#options.signal)).sha256 === sha256;
    } finally {
      await handle.close();
    }
  }

  async #put(at: Compared, mode: number, isMerge: boolean): Promise<void> {
    const { host, content } = at;
    const { path, kind, link } = at.applied.change;
    const before = stateOf(host, content);
    if (kind === 'directory') this.#plan(path, host, before, { kind, mode });
    else if (kind === 'link') this.#plan(path, host, before, { kind, target: link?.after ?? '' });
    else if (host?.kind === 'file' && host.uid !== process.getuid?.()) this.refused.push({ path, reason: 'owner' });
    else await this.#putFile(at, mode, isMerge);
  }

  async #putFile({ applied, directory, host, content }: Compared, mode: number, isMerge: boolean): Promise<void> {
    const { path } = applied.change;
    const group = groupFor(directory, host);
    const source =
      isMerge && directory && content ? await this.#merge(applied, directory, content) : await this.#source(applied);
    if (source === null) return;
    if (source.sha256 === content?.sha256) return this.#planMode(path, host, mode);
    const after = { kind: 'file' as const, sha256: source.sha256, mode };
    this.#plan(path, host, stateOf(host, content), after, { path, ...source, mode, group });
  }

  async #source({ change, open }: AppliedChange): Promise<Pick<PlannedFile, 'content' | 'sha256'>> {
    if (change.sha256 !== undefined) return { content: open, sha256: change.sha256 };
    const handle = await open();
    try {
      return { content: open, sha256: (await readThrough(handle.fd, this.#options.signal)).sha256 };
    } finally {
      await handle.close();
    }
  }

  async #merge(
    { change: { path }, open, openBase }: AppliedChange,
    directory: OpenDirectory,
    content: Content,
  ): Promise<Pick<PlannedFile, 'content' | 'sha256'> | null> {
    const conflict = (reason: ForkConflictReason): null => {
      this.#conflicts.push({ path, reason });
      return null;
    };
    const [fork, base] = [await smallContent(await open()), await smallContent(await openBase())];
    if (fork === null || base === null || content.size > MAX_MERGE_BYTES) return conflict('too-large');
    const host = readSmallFile(directory, nameOf(path));
    if (sha256Of(host) !== content.sha256) return conflict('meanwhile');
    const result = mergeThreeWay({ base, host, fork });
    if ('conflict' in result) return conflict(result.conflict);
    this.#merged.push(path);
    return { content: result.merged, sha256: sha256Of(result.merged) };
  }

  #plan(
    path: string,
    host: TreeEntry | null,
    before: StepState | null,
    after: StepState | null,
    file?: PlannedFile,
  ): void {
    this.#planned.push({ path, host, step: { path, before, after }, ...(file ? { file } : {}) });
  }

  #planMode(path: string, host: TreeEntry | null, mode: number): void {
    if (host === null || modeOf(host) === mode) this.#already += 1;
    else this.#planned.push({ path, host, step: { path, from: modeOf(host), to: mode } });
  }

  finished(): ApplyPlan {
    const { planned, kept } = this.#withoutFull();
    const ordered = inOrder(planned);
    const files = ordered.flatMap(({ file }, at) => (file ? [[at, file] as const] : []));
    return {
      changes: planned.length + kept.length,
      already: this.#already,
      merged: this.#merged,
      conflicts: this.#conflicts,
      refused: this.refused,
      kept,
      steps: ordered.map(({ step }) => step),
      files: new Map(files),
      times: this.#times(ordered),
      changedSince: root => changedSince(root, planned),
    };
  }

  // Directories that hold something of which the fork knew nothing stay; in the place of another kind of entry they are a conflict.
  #withoutFull(): { planned: Planned[]; kept: string[] } {
    const isRemoval = ({ step }: Planned): boolean => 'before' in step && step.before !== null && step.after === null;
    const gone = new Set(this.#planned.filter(isRemoval).map(({ path }) => path));
    const full = new Set<string>();
    const kept: string[] = [];
    const directories = this.#planned.filter(
      ({ host, step }) => host?.kind === 'directory' && 'before' in step && step.after?.kind !== 'directory',
    );
    for (const each of directories.sort(byPath).reverse()) {
      if (this.#names(each.path).every(name => gone.has(`${each.path}/${name}`))) continue;
      gone.delete(each.path);
      full.add(each.path);
      if (isRemoval(each)) kept.push(each.path);
      else this.#conflicts.push({ path: each.path, reason: 'not-empty' });
    }
    return { planned: this.#planned.filter(({ path }) => !full.has(path)), kept: kept.reverse() };
  }

  #names(path: string): string[] {
    using directory = openBelow(this.#root, path);
    return readdirSync(directory.self);
  }

  #times(ordered: readonly Planned[]): [path: string, modifiedNs: string][] {
    const paths = new Set(
      ordered.flatMap(({ path, host }) => [parentOf(path), ...(host?.kind === 'directory' ? [path] : [])]),
    );
    return [...paths].sort().flatMap(path => {
      try {
        using directory = openBelow(this.#root, path);
        return [[path, directory.modifiedNs.toString()] as [string, string]];
      } catch (error) {
        if (isNoWay(error)) return [];
        throw error;
      }
    });
  }
}

function groupFor(directory: OpenDirectory | null, host: TreeEntry | null): number | null {
  return host?.kind === 'file' ? host.gid : (directory?.group ?? null);
}

function stateOf(host: TreeEntry | null, content: Content | null): StepState | null {
  if (host === null) return null;
  if (host.kind === 'link') return { kind: 'link', target: host.target };
  if (host.kind === 'file') return { kind: 'file', sha256: content?.sha256 ?? '', mode: host.mode };
  return { kind: 'directory', mode: modeOf(host) };
}

const OWNER_ALL = 0o700;

// Modes that let the user into directories; removals, what is in a directory before it; then all else, a directory before what is in it;
// modes that keep the user out come last.
function inOrder(planned: readonly Planned[]): Planned[] {
  const isDirectoryMode = ({ host, step }: Planned): boolean => 'from' in step && host?.kind === 'directory';
  const isOpening = ({ step }: Planned): boolean => 'to' in step && (step.to & OWNER_ALL) === OWNER_ALL;
  const isRemoval = ({ step }: Planned): boolean => 'before' in step && step.after === null;
  const sorted = [...planned].sort(byPath);
  const modes = sorted.filter(isDirectoryMode);
  const others = sorted.filter(each => !isDirectoryMode(each));
  const puts = others.filter(each => !isRemoval(each));
  return [
    ...modes.filter(isOpening),
    ...others.filter(isRemoval).reverse(),
    ...puts.map(openedForOwner),
    ...[...puts.flatMap(closedForOwner), ...modes.filter(each => !isOpening(each))].sort(byPath).reverse(),
  ];
}

// Directories are made with a mode that lets the user put something in.
function openedForOwner(each: Planned): Planned {
  const { step } = each;
  if (!('before' in step) || step.after?.kind !== 'directory') return each;
  return { ...each, step: { ...step, after: { kind: 'directory', mode: step.after.mode | OWNER_ALL } } };
}

function closedForOwner({ path, host, step }: Planned): Planned[] {
  if (!('before' in step) || step.after?.kind !== 'directory') return [];
  const { mode } = step.after;
  return (mode & OWNER_ALL) === OWNER_ALL ? [] : [{ path, host, step: { path, from: mode | OWNER_ALL, to: mode } }];
}

function byPath(one: Planned, other: Planned): number {
  if (one.path === other.path) return 0;
  return one.path < other.path ? -1 : 1;
}

// Cheaper to notice before anything is touched than afterwards.
function changedSince(root: OpenDirectory, planned: readonly Planned[]): Obstacles | null {
  const conflicts = planned
    .filter(({ path, host }) => !isAsSeen(host, lookAgain(root, path)))
    .map(({ path }) => ({ path, reason: 'meanwhile' as const }));
  return conflicts.length > 0 ? { conflicts, refused: [] } : null;
}

function lookAgain(root: OpenDirectory, path: string): TreeEntry | null {
  try {
    using directory = openBelow(root, parentOf(path));
    return directory.inspect(nameOf(path));
  } catch (error) {
    if (isNoWay(error)) return null;
    throw error;
  }
}

function isAsSeen(before: TreeEntry | null, now: TreeEntry | null): boolean {
  if (before === null || now === null) return before === now;
  if (before.kind !== now.kind || before.inode !== now.inode) return false;
  return before.kind !== 'file' || now.kind !== 'file' || before.changedNs === now.changedNs;
}

async function smallContent(handle: FileHandle | null): Promise<Buffer | null> {
  try {
    return handle && fstatSync(handle.fd).size <= MAX_MERGE_BYTES ? await handle.readFile() : null;
  } finally {
    await handle?.close();
  }
}
