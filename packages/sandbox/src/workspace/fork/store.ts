// Forks of workspaces on disk: which there are, the layer of each command, and which sandbox writes one now.
//
// `<state>/f/<id>/` holds `fork.json`, one directory for each layer (`1`, `2`, …), the overlay’s work directory `w` and `base`. Names
// are short because every layer stands in one string of mount options, of which the kernel reads no more than a page. In a fork of a
// linked worktree a layer has a second directory (`1g`, `2g`, …): what its command wrote to the repository, which is elsewhere.

import { chmodSync, existsSync, lstatSync, mkdirSync } from 'node:fs';
import { lstat, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import type { FileIdentity, OverlayPart, OverlaySpec } from '../../contract/spec.ts';
import { readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import { isSameNumber } from '../file-identity.ts';
import { copyBase, forgetBase } from './base.ts';
import type { ForkLayers } from './layers.ts';
import { forksIn } from './leftover.ts';
import { assertOptions, overlayOptions, partAt } from './overlay.ts';
import {
  ID,
  assertName,
  commandCount,
  commandsIn,
  commandsOf,
  flagsOf,
  firstOf,
  freshId,
  hasGit,
  isUnused,
  layerOf,
  layersWith,
  numbersOf,
  recordSchema,
  refuseOtherRepository,
  usedAt,
} from './record.ts';
import type { ForkRecord, LayerRecord, LinkedRepository } from './record.ts';
import { makeUpper, moved, namesIn, removeTree } from './store-files.ts';

const MAX_BYTES = 4 * 1024 ** 2;
const MAX_COMMAND = 200;
// Age from which a record is known to have been written before it was read.
const SETTLED_MS = 200;
// The most layers of a fork. Reached only if squashing fails.
const MAX_LAYERS = 128;
// Limits at which the oldest layers are squashed, and how many of the latest are kept so that each can be undone.
const SQUASH_LAYERS = 64;
const SQUASH_OPTION_BYTES = 3500;
const MAX_SEPARATE_LAYERS = 32;
const RECORD = 'fork.json';
const NUMBER = /^\d+g?$/;
// What the names of directories end with that lie over the repository of a linked worktree.
const GIT = 'g';
const MASK = /^m\d+$/;
// Where a fork, and a squashed layer, are made.
const MADE_ASIDE = '.new-';
const ASIDE = 's';
// Age after which an unfinished or never-used fork is removed.
const MAKING_MS = 3600 * 1000;
const LEFT_BEHIND = /^(?:sg?|marks-.*)$/;
// Where the copy of a command is, what was copied, and the layer that is being made of it.
const COPY = 'c';
const COPY_LIST = 'c.list';
const COPY_LAYER = 'c.new';
/** The work directories of overlays that an engine mounts. */
export const ENGINE_WORK = ['w', `w${GIT}`] as const;
const WORK_DIRECTORIES = [...ENGINE_WORK, 'b', `b${GIT}`];

/** Layers of a record by their indices: the first, and the one after the last. */
export interface LayerRange {
  readonly from: number;
  readonly to: number;
}

/** Which fork is meant, and of which workspace. */
export interface ForkWanted {
  /** The directory, without links. */
  readonly workspace: string;
  readonly identity: FileIdentity;
  /** A name or an id; `new` for a fresh one; absent for the workspace’s current one. */
  readonly fork?: string | undefined;
}

/** The command that a layer is begun for. */
export interface LayerBegin {
  /** The process that begins it, as locks name one. */
  readonly holder: string;
  /** The id of the image it runs on; null without an engine. */
  readonly image: string | null;
  readonly command: string;
  /** Paths that are masked for it; its mask layer exists. */
  readonly masked?: readonly string[];
  /** Disk limit of all layers of the fork, in bytes; absent if there is none. */
  readonly limitBytes?: number;
  /** The repository of the linked worktree that the workspace is; absent where it has its own. */
  readonly repository?: LinkedRepository | undefined;
  /** Whether the command works in a copy. */
  readonly copy?: boolean;
}

/** The forks of one user. Every method that changes one is called under a lock of its id. */
export class ForkStore {
  readonly #directory: string;
  readonly #now: () => number;
  // Records as they were read, with what shows that they are still those.
  readonly #known = new Map<string, { readonly stamp: string; readonly record: ForkRecord }>();

  constructor(stateDirectory: string, now: () => number) {
    this.#directory = forksIn(stateDirectory);
    this.#now = now;
  }

  /** Every fork that can be read, the latest used first; those of one workspace where one is named. */
  async list(workspace?: string): Promise<ForkRecord[]> {
    return this.#all()
      .filter(record => workspace === undefined || record.workspace === workspace)
      .sort((one, other) => other.usedAt - one.usedAt);
  }

  /** The fork that is meant; null where there is none, and one would be made. */
  async find({ workspace, identity, fork }: ForkWanted): Promise<ForkRecord | null> {
    if (fork === 'new') return null;
    const all = await this.list(workspace);
    // A directory that was put in the place of the workspace is another one: its files are not what the layers lie over.
    const own = all.filter(record => isSameNumber(record.identity, identity));
    const wanted = own.find(record =>
      fork === undefined ? this.isCurrent(record) : record.id === fork || record.name === fork,
    );
    if (wanted || fork === undefined) return wanted ?? null;
    if (all.some(record => record.id === fork || record.name === fork))
      throw new AcodeError('ACODE-FRK-002', { fork, workspace });
    assertName(fork);
    return null;
  }

  /** Whether a fork is the current one of its workspace. */
  isCurrent({ workspace, identity, currentAt }: ForkRecord): boolean {
    if (currentAt === null) return false;
    const isLater = (other: ForkRecord): boolean =>
      other.workspace === workspace &&
      isSameNumber(other.identity, identity) &&
      other.currentAt !== null &&
      other.currentAt > currentAt;
    return !this.#all().some(isLater);
  }

  /**
   * Makes a fork of a workspace. A fork without a name becomes current when its first changes are recorded. `isCurrent` makes it
   * current at once, if no other is: for a persistent sandbox, whose changes are recorded only when it is removed.
   */
  async make({ workspace, identity, fork }: ForkWanted, isCurrent = false): Promise<ForkRecord> {
    const name = fork === undefined || fork === 'new' ? null : fork;
    const record = this.#fresh({ workspace, identity }, name);
    return this.#create(isCurrent && fork === undefined ? { ...record, currentAt: record.createdAt } : record);
  }

  #fresh({ workspace, identity }: Omit<ForkWanted, 'fork'>, name: string | null): ForkRecord {
    const at = this.#now();
    return {
      version: 1,
      id: freshId(),
      name,
      workspace,
      identity: numbersOf(identity),
      createdAt: at,
      ...usedAt(at),
      currentAt: null,
      image: null,
      layers: [],
      snapshots: {},
      nextLayer: 1,
      active: null,
    };
  }

  /**
   * Makes a fork of what a snapshot of another has. The layers stay where they are, and both forks read them: a layer is never
   * written again once its command has ended, and is removed with the last fork that names it.
   */
  async makeFrom(id: string, snapshot: string, name: string | null): Promise<ForkRecord> {
    const source = this.#get(id);
    if (name !== null) assertName(name);
    const commands = commandsIn(source, snapshot);
    const kept = layersWith(source, commands);
    const next = source.layers[kept];
    const at = this.#now();
    const layers = source.layers.slice(0, kept).map(layer => ({ ...layer, of: layer.of ?? id }));
    const snapshots = Object.fromEntries(Object.entries(source.snapshots).filter(([, count]) => count <= commands));
    const times = { createdAt: at, ...usedAt(at), currentAt: null };
    // Later layers have higher numbers than those it was made of, as in the fork that they come from.
    const record = { ...source, ...times, id: freshId(), name, layers, snapshots, active: null };
    return this.#create(record, base =>
      copyBase(this.baseOf(id), base, next ? firstOf(next) : (source.active?.layer ?? source.nextLayer)),
    );
  }

  /**
   * Makes a fork of what another has now, and copies the layer that a sandbox goes on writing: `copy` fills a directory with what
   * another has. The caller sees to it that nothing writes meanwhile.
   */
  async makeCopy(
    id: string,
    name: string | null,
    copy: (from: string, to: string) => Promise<void>,
  ): Promise<ForkRecord> {
    const source = this.#get(id);
    if (name !== null) assertName(name);
    const { active } = source;
    const at = this.#now();
    const shared = source.layers.map(layer => ({ ...layer, of: layer.of ?? id }));
    const own = active ? [layerOf(active, { isInterrupted: false, hasGit: active.git === true })] : [];
    const times = { createdAt: at, ...usedAt(at), currentAt: null };
    const record = { ...source, ...times, id: freshId(), name, layers: [...shared, ...own], active: null };
    return this.#create(record, async (base, aside) => {
      await copyBase(this.baseOf(id), base, Infinity);
      if (!active) return;
      for (const layer of [String(active.layer), ...(active.git ? [`${active.layer}${GIT}`] : [])]) {
        mkdirSync(join(aside, layer), { mode: 0o700 });
        await copy(join(this.pathOf(id), layer), join(aside, layer));
      }
    });
  }

  /**
   * Makes a fork with one layer that `fill` writes. Builds it in a temporary directory and renames that within `publish`; if either
   * fails, nothing is left.
   */
  async makeWith(
    { workspace, identity, fork }: ForkWanted,
    fill: (layer: string, base: string) => Promise<string>,
    publish: (rename: () => Promise<void>) => Promise<void>,
  ): Promise<ForkRecord> {
    const record = this.#fresh({ workspace, identity }, fork ?? null);
    if (fork !== undefined) assertName(fork);
    const aside = this.#makeAside(record.id);
    try {
      const layer = join(aside, '1');
      mkdirSync(layer, { mode: 0o700 });
      const command = await fill(layer, join(aside, 'base'));
      chmodSync(layer, lstatSync(workspace).mode & 0o777);
      const first = { number: 1, at: record.createdAt, command: command.slice(0, MAX_COMMAND) };
      const filled = { ...record, nextLayer: 2, layers: [first] };
      writePrivateFile(join(aside, RECORD), JSON.stringify(filled));
      await publish(() => rename(aside, this.pathOf(record.id)));
      return filled;
    } catch (error) {
      await removeTree(aside);
      throw error;
    }
  }

  #makeAside(id: string): string {
    mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
    const aside = join(this.#directory, `${MADE_ASIDE}${id}`);
    for (const part of ['', 'w', 'base']) mkdirSync(join(aside, part), { mode: 0o700 });
    return aside;
  }

  // Built in a temporary directory, so that the directory of a fork always contains its record.
  async #create(record: ForkRecord, fill?: (base: string, aside: string) => Promise<void>): Promise<ForkRecord> {
    const aside = this.#makeAside(record.id);
    try {
      await fill?.(join(aside, 'base'), aside);
      writePrivateFile(join(aside, RECORD), JSON.stringify(record));
      await rename(aside, this.pathOf(record.id));
    } catch (error) {
      await removeTree(aside);
      throw error;
    }
    return record;
  }

  /** One fork as it is now; null where there is none. */
  read(id: string): ForkRecord | null {
    return ID.test(id) ? this.#read(id) : null;
  }

  /**
   * Begins the layer of a command. The caller sweeps the fork first: this throws if a directory with the number of the layer is
   * left over.
   */
  async begin(
    id: string,
    { holder, image, command, masked = [], repository, copy, ...limit }: LayerBegin,
  ): Promise<ForkRecord> {
    const record = this.#get(id);
    if (record.layers.length >= MAX_LAYERS)
      throw new AcodeError('ACODE-FRK-004', { fork: id, reason: `it has ${MAX_LAYERS} layers` });
    if (repository) refuseOtherRepository(record, repository);
    const layer = record.nextLayer;
    makeUpper(join(this.pathOf(id), String(layer)), record.workspace);
    if (repository) makeUpper(join(this.pathOf(id), `${layer}${GIT}`), repository.path);
    const at = this.#now();
    const begun = {
      ...record,
      ...(repository ? { repository: { path: repository.path, identity: numbersOf(repository.identity) } } : {}),
      image: image ?? record.image,
      ...usedAt(at),
      nextLayer: layer + 1,
      active: {
        sandboxId: null,
        holder,
        layer,
        at,
        command: command.slice(0, MAX_COMMAND),
        masked: [...masked],
        ...limit,
        ...flagsOf(repository, copy),
      },
      masked: [...new Set([...(record.masked ?? []), ...masked])],
    };
    this.#write(begun);
    return begun;
  }

  /** Writes down that a fork is used: it expires later. */
  touch(id: string): void {
    this.#write({ ...this.#get(id), ...usedAt(this.#now()) });
  }

  /**
   * Forks that have expired, and those that a killed process made and never used. The caller checks each again under its lock.
   */
  expired(): ForkRecord[] {
    const now = this.#now();
    const isOver = (record: ForkRecord): boolean =>
      record.active === null && (record.expiresAt <= now || (isUnused(record) && record.createdAt + MAKING_MS <= now));
    return this.#all().filter(isOver);
  }

  /** The forks of a workspace that have changes and expire within a time, the first to expire first. */
  expiring(workspace: string, withinMs: number): ForkRecord[] {
    const latest = this.#now() + withinMs;
    return this.#all()
      .filter(record => record.workspace === workspace && record.layers.length > 0 && record.expiresAt <= latest)
      .sort((one, other) => one.expiresAt - other.expiresAt);
  }

  /** Writes down which sandbox writes the layer that was begun. */
  claim(id: string, sandboxId: string): void {
    const record = this.#get(id);
    if (record.active) this.#write({ ...record, active: { ...record.active, sandboxId } });
  }

  /** Gives up the active layer: the next process that uses the fork ends it, once its sandbox is gone. */
  release(id: string): void {
    const record = this.read(id);
    if (record?.active) this.#write({ ...record, active: { ...record.active, holder: null } });
  }

  /** Writes down that acode pauses the sandbox of the active layer, or has let it go on: a process that is killed leaves it paused. */
  paused(id: string, isPaused: boolean): void {
    const record = this.read(id);
    if (!record?.active) return;
    const { paused: _, ...active } = record.active;
    this.#write({ ...record, active: isPaused ? { ...active, paused: true } : active });
  }

  /** The command that was begun never ran. */
  async abandon(id: string): Promise<void> {
    await this.end(id, { isEmpty: true });
  }

  /**
   * The overlay of the command that a fork has begun. Throws where its options would not fit. What one kind of mount leaves in its
   * work directory may be root’s, so that another cannot use it: each has its own.
   */
  overlayOf(record: ForkRecord, workName = 'w'): OverlaySpec {
    if (!record.active) throw new TypeError('no command was begun');
    const { layer, masked = [] } = record.active;
    const below = this.layersOf({ ...record, active: null }).uppers.toReversed();
    return this.#overlay(record, {
      upper: String(layer),
      work: workName,
      lowers: [...below, ...(masked.length > 0 ? [this.maskOf(record.id, layer)] : [])],
      source: record.workspace,
      masked,
    });
  }

  /** The overlay over the repository of a linked worktree, for the command that a fork has begun; null where it has none. */
  repositoryOverlayOf(record: ForkRecord, workName = 'w'): OverlaySpec | null {
    const layers = record.active?.git ? this.repositoryLayersOf(record) : null;
    if (!record.active || !layers) return null;
    return this.#overlay(record, {
      upper: `${record.active.layer}${GIT}`,
      work: `${workName}${GIT}`,
      lowers: layers.uppers.slice(0, -1).toReversed(),
      source: layers.workspace,
    });
  }

  #overlay(
    { id }: ForkRecord,
    {
      upper,
      work,
      lowers,
      source,
      masked = [],
    }: { upper: string; work: string; lowers: readonly string[]; source: string; masked?: readonly string[] },
  ): OverlaySpec {
    mkdirSync(join(this.pathOf(id), work), { recursive: true, mode: 0o700 });
    const spec: OverlaySpec = {
      fork: id,
      upper: partAt(join(this.pathOf(id), upper)),
      work: partAt(join(this.pathOf(id), work)),
      lowers: lowers.map(partAt),
      ...(masked.length > 0 ? { masked } : {}),
    };
    assertOptions(overlayOptions(spec, source), id);
    return spec;
  }

  /** The layers of a fork, with that of a command that has begun. */
  layersOf({ id, workspace, layers, active, masked = [] }: ForkRecord): ForkLayers {
    const all = [...layers, ...(active ? [{ number: active.layer, of: id }] : [])];
    const uppers = all.map(({ number, of = id }) => join(this.pathOf(of), String(number)));
    return { workspace, uppers, masked };
  }

  /** The layers over the repository of a linked worktree, with that of a command that has begun; null where there is none. */
  repositoryLayersOf({ id, repository, layers, active }: ForkRecord): ForkLayers | null {
    if (!repository) return null;
    const all = [...layers, ...(active ? [{ number: active.layer, of: id, git: active.git }] : [])].filter(hasGit);
    const uppers = all.map(({ number, of = id }) => join(this.pathOf(of), `${number}${GIT}`));
    return { workspace: repository.path, uppers, masked: [] };
  }

  /** What a copy for the command that a fork has begun is made of, and where. */
  copyFor(record: ForkRecord): { readonly layers: ForkLayers; readonly copy: string; readonly list: string } {
    if (!record.active) throw new TypeError('no command was begun');
    const { layer, masked = [] } = record.active;
    const { workspace, uppers } = this.layersOf({ ...record, active: null });
    const mask = masked.length > 0 ? [this.maskOf(record.id, layer)] : [];
    const at = (name: string): string => join(this.pathOf(record.id), name);
    return { layers: { workspace, uppers: [...mask, ...uppers], masked: [] }, copy: at(COPY), list: at(COPY_LIST) };
  }

  /**
   * Puts what was changed in the copy of a command in the place of its layer: `collect` makes a layer of it. Until that is complete, the
   * copy stays, and a process that goes on begins again.
   */
  async takeCopy(
    record: ForkRecord,
    collect: (copy: string, list: string, target: string) => Promise<void>,
  ): Promise<void> {
    const { copy, list } = this.copyFor(record);
    const target = join(this.pathOf(record.id), COPY_LAYER);
    const layer = join(this.pathOf(record.id), String(record.active?.layer));
    if (existsSync(list)) {
      await removeTree(target);
      await collect(copy, list, target);
      await removeTree(layer);
      await rename(target, layer);
      await removeTree(list);
    }
    await removeTree(copy);
  }

  /** Where the empty files over masked ones are, for the command of a layer. */
  maskOf(id: string, layer: number): string {
    return join(this.pathOf(id), `m${layer}`);
  }

  /** Where a fork keeps what its commands first saw. */
  baseOf(id: string): string {
    return join(this.pathOf(id), 'base');
  }

  /**
   * The layer of a command is complete. One without changes is removed, and so is a fork that never had any. `isEmpty` is about the
   * workspace, `isGitEmpty` about the repository of a linked worktree.
   */
  async end(
    id: string,
    {
      isEmpty,
      isGitEmpty = true,
      isInterrupted = false,
    }: { isEmpty: boolean; isGitEmpty?: boolean; isInterrupted?: boolean },
  ): Promise<void> {
    const { active, ...record } = this.#get(id);
    if (!active) return;
    const isNothing = isEmpty && isGitEmpty;
    const layer = layerOf(active, { isInterrupted, hasGit: !isGitEmpty });
    const ended = { ...(isNothing ? record : this.#withLayer(record, layer)), active: null };
    this.#write(ended);
    await removeTree(this.maskOf(id, active.layer));
    if (isNothing) await removeTree(join(this.pathOf(id), String(active.layer)));
    if (isGitEmpty) await removeTree(join(this.pathOf(id), `${active.layer}${GIT}`));
    if (isUnused(ended)) await this.remove(id);
  }

  // A fork without a name becomes the workspace’s current one with its first changes.
  #withLayer<Kept extends Omit<ForkRecord, 'active'>>(record: Kept, layer: LayerRecord): Kept {
    const isFirst = record.layers.length === 0 && record.name === null;
    const currentAt = isFirst ? this.#now() : record.currentAt;
    return { ...record, layers: [...record.layers, layer], currentAt };
  }

  /**
   * The layers to squash before the next command begins, the latest first. A range never spans a snapshot. Empty below the limits, and
   * if nothing can be squashed.
   */
  squashable(id: string): LayerRange[] {
    const record = this.#get(id);
    const { length } = record.layers;
    if (length < SQUASH_LAYERS && this.#optionBytes(record) <= SQUASH_OPTION_BYTES) return [];
    // Half of them, so that the work is not done again for the next command.
    const end = length > 3 ? length - Math.min(MAX_SEPARATE_LAYERS, Math.floor(length / 2)) : length;
    const snapshots = Object.values(record.snapshots).map(commands => layersWith(record, commands));
    const bounds = [...new Set([0, ...snapshots, end])].filter(bound => bound <= end).sort((one, other) => one - other);
    return bounds
      .slice(1)
      .map((to, at) => ({ from: bounds[at] ?? 0, to }))
      .filter(({ from, to }) => to - from > 1)
      .reverse();
  }

  /**
   * Puts one layer in the place of several, given by their indices. `build` makes it aside, and once more over the repository of a
   * linked worktree: until it is complete and recorded, the fork has the layers it had, and whatever a process that was killed left is
   * removed by the next sweep.
   */
  async squash(
    id: string,
    { from, to }: LayerRange,
    build: (layers: ForkLayers, range: LayerRange, target: string) => Promise<void>,
  ): Promise<void> {
    const record = this.#get(id);
    const squashed = record.layers.slice(from, to);
    const [first, last] = [squashed[0], squashed.at(-1)];
    if (!first || !last || record.active) throw new TypeError('no layers to squash');
    const number = record.nextLayer;
    const make = async (layers: ForkLayers, range: LayerRange, suffix: string): Promise<void> => {
      const aside = join(this.pathOf(id), `${ASIDE}${suffix}`);
      await removeTree(aside);
      await build(layers, range, aside);
      await rename(aside, join(this.pathOf(id), `${number}${suffix}`));
    };
    await make(this.layersOf(record), { from, to }, '');
    const repository = squashed.some(hasGit) ? this.repositoryLayersOf(record) : null;
    const before = (index: number): number => record.layers.slice(0, index).filter(hasGit).length;
    if (repository) await make(repository, { from: before(from), to: before(to) }, GIT);
    const earlier = squashed.flatMap(commandsOf).slice(0, -1);
    const own = { number, earlier, first: firstOf(first), ...(repository ? { git: true as const } : {}) };
    const layer = { ...last, ...own };
    const layers = [...record.layers.slice(0, from), layer, ...record.layers.slice(to)];
    this.#write({ ...record, nextLayer: number + 1, layers });
    await this.sweep(id);
  }

  /** Takes the changes of the last commands back, and returns how many commands are left. */
  async undo(id: string, commands: number): Promise<number> {
    const record = this.#get(id);
    const left = Math.max(0, commandCount(record) - commands);
    const kept = layersWith(record, left);
    const undone = record.layers.slice(kept);
    const snapshots = Object.fromEntries(Object.entries(record.snapshots).filter(([, count]) => count <= left));
    this.#write({ ...record, layers: record.layers.slice(0, kept), snapshots });
    if (undone[0]) await forgetBase(this.baseOf(id), firstOf(undone[0]));
    await this.sweep(id);
    return left;
  }

  /** Gives a name to a fork as it is now. */
  snapshot(id: string, name: string): void {
    assertName(name);
    const record = this.#get(id);
    this.#write({ ...record, snapshots: { ...record.snapshots, [name]: commandCount(record) } });
  }

  /**
   * Removes a fork. Layers that other forks were made of stay until those are removed too. False where the engine has left something
   * in its work directory that only the engine can remove.
   */
  async remove(id: string): Promise<boolean> {
    const record = this.read(id);
    const aside = join(this.#directory, `.${id}`);
    if (this.#isShared(id)) {
      mkdirSync(aside, { recursive: true, mode: 0o700 });
      for (const part of [RECORD, ...WORK_DIRECTORIES, 'base'])
        await moved(join(this.pathOf(id), part), join(aside, part));
      await this.sweep(id);
    } else await moved(this.pathOf(id), aside);
    for (const owner of new Set(record?.layers.map(({ of = id }) => of))) await this.#removeRetired(owner);
    return removeTree(aside);
  }

  /** Removes layers that no fork needs any more, and whose own fork is gone: what a killed process did not get round to. */
  async collect(): Promise<void> {
    for (const id of this.#ids()) await this.#removeRetired(id);
    for (const name of namesIn(this.#directory).filter(one => one.startsWith(MADE_ASIDE))) {
      const made = await lstat(join(this.#directory, name)).catch(() => null);
      if (made && this.#now() - made.mtimeMs > MAKING_MS) await removeTree(join(this.#directory, name));
    }
  }

  /** The work directories of removed forks that only an engine can empty. */
  async leftovers(): Promise<string[]> {
    const names = await readdir(this.#directory).catch(() => []);
    return names
      .filter(name => name.startsWith('.') && ID.test(name.slice(1)))
      .map(name => join(this.#directory, name));
  }

  /**
   * Removes what no record names from a fork’s directory: layers that are squashed or undone, and what killed processes left. Where a
   * record cannot be read, nothing is certain, and all of it stays.
   */
  async sweep(id: string): Promise<void> {
    const named = this.#named(id);
    if (!named) return;
    const isLeft = (name: string): boolean =>
      MASK.test(name) ? !named.has(name.slice(1)) : NUMBER.test(name) ? !named.has(name) : LEFT_BEHIND.test(name);
    const isCopied = this.read(id)?.active?.copy === true;
    const isCopy = (name: string): boolean => [COPY, COPY_LIST, COPY_LAYER].includes(name);
    for (const name of namesIn(this.pathOf(id)))
      if (isCopy(name) ? !isCopied : isLeft(name)) await removeTree(join(this.pathOf(id), name));
  }

  /** Where all forks are. */
  get directory(): string {
    return this.#directory;
  }

  /** Where a fork is. */
  pathOf(id: string): string {
    return join(this.#directory, id);
  }

  // The length of the options that the next command would be mounted with.
  #optionBytes(record: ForkRecord): number {
    const part = (path: string): OverlayPart => ({ path, identities: [] });
    const lengths = [this.layersOf(record), this.repositoryLayersOf(record)].map((layers, at) => {
      if (!layers) return 0;
      const suffix = at === 0 ? '' : GIT;
      const spec = {
        fork: record.id,
        upper: part(join(this.pathOf(record.id), `${record.nextLayer}${suffix}`)),
        work: part(join(this.pathOf(record.id), `w${suffix}`)),
        lowers: layers.uppers.map(part),
      };
      return Buffer.byteLength(overlayOptions(spec, layers.workspace));
    });
    return Math.max(...lengths);
  }

  // Every fork that can be read.
  #all(): ForkRecord[] {
    return this.#ids().flatMap(id => this.#read(id) ?? []);
  }

  #ids(): string[] {
    return namesIn(this.#directory).filter(name => ID.test(name));
  }

  // The layers in a fork’s directory that a record names; null where a record cannot be read.
  #named(owner: string): ReadonlySet<string> | null {
    const records = this.#ids().map(id => this.#read(id) ?? (this.#hasRecord(id) ? null : []));
    if (records.includes(null)) return null;
    const names = (number: number, git: true | undefined): string[] => [
      String(number),
      ...(git ? [`${number}${GIT}`] : []),
    ];
    const named = records
      .flatMap(one => one ?? [])
      .flatMap(({ id, layers, active }) => [
        ...layers.flatMap(({ number, of = id, git }) => (of === owner ? names(number, git) : [])),
        ...(active && id === owner ? names(active.layer, active.git) : []),
      ]);
    return new Set(named);
  }

  // Whether another fork needs a layer of this one, or may.
  #isShared(id: string): boolean {
    return this.#ids().some(
      other =>
        other !== id && this.#hasRecord(other) && (this.#read(other)?.layers.some(({ of }) => of === id) ?? true),
    );
  }

  #hasRecord(id: string): boolean {
    return existsSync(join(this.pathOf(id), RECORD));
  }

  async #removeRetired(id: string): Promise<void> {
    if (this.#hasRecord(id)) return;
    await this.sweep(id);
    // Nothing else in it is needed without a fork.
    if (!namesIn(this.pathOf(id)).some(name => NUMBER.test(name))) await removeTree(this.pathOf(id));
  }

  #get(id: string): ForkRecord {
    const record = this.read(id);
    if (!record) throw new AcodeError('ACODE-FRK-001', { fork: id });
    return record;
  }

  #read(id: string): ForkRecord | null {
    const path = join(this.pathOf(id), RECORD);
    const found = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    const stamp = found && `${found.ino} ${found.size} ${found.ctimeNs}`;
    const known = this.#known.get(id);
    if (known && known.stamp === stamp) return known.record;
    this.#known.delete(id);
    const file = found && readPrivateFile(path, { maxBytes: MAX_BYTES });
    if (!file) return null;
    try {
      const record = recordSchema.parse(JSON.parse(file.text));
      if (record.id !== id) return null;
      // One that was just written may be written again in the same moment, with the same numbers.
      if (stamp !== undefined && Date.now() - Number(found.ctimeMs) > SETTLED_MS)
        this.#known.set(id, { stamp, record });
      return record;
    } catch {
      return null;
    }
  }

  #write(record: ForkRecord): void {
    writePrivateFile(join(this.pathOf(record.id), RECORD), JSON.stringify(record));
  }
}
