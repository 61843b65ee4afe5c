// Disk limit of forks: when acode looks at the disk, when it pauses a command, and when it ends it.
//
// A limit with overshoot, not a cap: the kernel does not enforce it. Free space of the file system is the trigger, because asking for
// it costs nothing; the blocks of the fork’s own directories are the measure, because other programs use the same disk.

import { lstatSync, opendirSync, statfsSync } from 'node:fs';
import type { Dir } from 'node:fs';
import { dirname, join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { Clock } from '../contract/ports.ts';
import type { OverlaySpec } from '../contract/spec.ts';
import type { Execution } from '../isolation/backend.ts';
import { inTime } from '../lifecycle/clock.ts';

/** The part of statfs(2) that counts. */
export interface DiskSpace {
  readonly bsize: number;
  readonly blocks: number;
  /** Free blocks, with those that root keeps: an overlay that an engine mounts writes with the engine’s rights, and uses them too. */
  readonly bfree: number;
  /** Free blocks for ordinary users. */
  readonly bavail: number;
}

/** What some directories take on disk. */
export interface DiskUse {
  readonly bytes: number;
  /** False where something could not be looked at. */
  readonly isComplete: boolean;
}

/** Which rule ended a command. */
export interface DiskCut {
  readonly by: 'limit' | 'free-space';
  /** What reached the limit. */
  readonly of: 'fork' | 'state';
  /** What is kept free on the file system, in bytes. */
  readonly floorBytes: number;
}

const MAX_FLOOR_BYTES = 512 * 1024 ** 2;
const FLOOR_SHARE = 0.05;
// Faster than any disk: how soon the limit can be reached decides how soon acode looks again.
const BYTES_PER_MS = 4e6;
const MIN_POLL_MS = 4;
const MAX_POLL_MS = 250;
// A walk that takes longer lets a command write much meanwhile, so the command is paused first.
const QUICK_WALK_MS = 10;
// Space that others free at the same time hides what a command writes. So there is a walk from time to time in any case.
const OVERDUE_MS = 2000;
const OVERDUE_WALKS = 50;

/** How much acode keeps free on a file system: for the machine, and for what is written until a command is paused. */
export function floorOf({ blocks, bsize }: DiskSpace): number {
  return Math.min(MAX_FLOOR_BYTES, Math.floor(blocks * bsize * FLOOR_SHARE));
}

/** What is free for ordinary users, in bytes. */
export function availableOf({ bavail, bsize }: DiskSpace): number {
  return bavail * bsize;
}

/** What to do next. */
export type DiskStep =
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'measure'; readonly paused: boolean }
  | { readonly kind: 'end'; readonly by: DiskCut['by'] };

/** Decides what to do from readings of the disk. Pure: time and readings are given to it. */
export class DiskJudge {
  readonly floorBytes: number;
  readonly #limitBytes: number | null;
  readonly #freeAtStart: number;
  #free: number;
  #left = 0;
  // What the fork took at the last walk, and what was written to the file system since, by anybody.
  #used = 0;
  #writtenSince = 0;
  #walkedAt: number;
  #walkMs = 0;

  /** `limitBytes` is what the layer of the command may take; null for no limit. */
  constructor(limitBytes: number | null, space: DiskSpace, now: number) {
    this.#limitBytes = limitBytes;
    this.#free = space.bfree * space.bsize;
    this.#freeAtStart = this.#free;
    this.#walkedAt = now;
    this.floorBytes = floorOf(space);
  }

  /** After a look at the free space. */
  looked(space: DiskSpace, now: number): DiskStep {
    const free = space.bfree * space.bsize;
    this.#writtenSince += Math.max(0, this.#free - free);
    this.#free = free;
    this.#left = availableOf(space) - this.floorBytes;
    if (this.#left < 0) return { kind: 'end', by: 'free-space' };
    if (this.#limitBytes !== null && this.#used + this.#writtenSince >= this.#limitBytes)
      return { kind: 'measure', paused: this.#walkMs > QUICK_WALK_MS };
    const overdueMs = Math.max(OVERDUE_MS, this.#walkMs * OVERDUE_WALKS);
    if (this.#limitBytes !== null && now - this.#walkedAt >= overdueMs) return { kind: 'measure', paused: false };
    return this.#wait();
  }

  /** After a walk. What was written during it counts as written since, for the last look was before it. */
  measured(
    { bytes, isComplete }: DiskUse,
    paused: boolean,
    { tookMs, now }: { tookMs: number; now: number },
  ): DiskStep {
    // A directory without permissions hides what is in it: all that was written since the command began counts as its own then.
    this.#used = isComplete ? bytes : Math.max(bytes, this.#freeAtStart - this.#free);
    this.#writtenSince = 0;
    this.#walkMs = tookMs;
    this.#walkedAt = now;
    if (this.#limitBytes === null || this.#used < this.#limitBytes) return this.#wait();
    return paused ? { kind: 'end', by: 'limit' } : { kind: 'measure', paused: true };
  }

  #wait(): DiskStep {
    const toLimit = this.#limitBytes === null ? Infinity : this.#limitBytes - this.#used - this.#writtenSince;
    const ms = Math.min(toLimit, this.#left) / BYTES_PER_MS;
    return { kind: 'wait', ms: Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, ms)) };
  }
}

/** Where the layers of a fork are, as its mount has them. */
export interface ForkDirectories {
  /** Any directory on their file system. */
  readonly store: string;
  /** What the running command writes. */
  readonly live: readonly string[];
  /** The kernel’s own directory, of which only some can be read. */
  readonly work: readonly string[];
  /** Layers of earlier commands of the same fork. */
  readonly earlier: readonly string[];
}

/** The directories of a fork’s overlays that are its own. */
export function directoriesOf(overlays: readonly OverlaySpec[]): ForkDirectories {
  const live = overlays.map(({ upper }) => upper.path);
  const store = dirname(live[0] ?? '');
  const below = overlays.flatMap(({ lowers }) => lowers.map(({ path }) => path));
  return {
    store,
    live,
    work: overlays.map(({ work }) => work.path),
    earlier: below.filter(path => dirname(path) === store),
  };
}

const SLICE_MS = 8;
const ENTRIES_PER_LOOK = 128;
const BLOCK_BYTES = 512;

/**
 * What directories take on disk, hard links once. It stops at `enough`, and lets other work of this process go on between slices.
 * What cannot be read below `blind` does not count: only the kernel can.
 */
export async function diskUse(
  directories: readonly string[],
  { blind = [], enough = Infinity }: { readonly blind?: readonly string[]; readonly enough?: number } = {},
): Promise<DiskUse> {
  const walk = new Walk(enough);
  const hidden = (await Promise.all(directories.map(top => walk.below(top)))).flat();
  await Promise.all(blind.map(top => walk.below(top)));
  return { bytes: walk.bytes, isComplete: hidden.length === 0 };
}

class Walk {
  bytes = 0;
  readonly #enough: number;
  readonly #linked = new Set<string>();
  #sliceEnd = performance.now() + SLICE_MS;

  constructor(enough: number) {
    this.#enough = enough;
  }

  /** Adds what is below a directory, and returns what may hide more. */
  async below(top: string): Promise<string[]> {
    const waiting = [top];
    const hidden: string[] = [];
    for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
      try {
        await this.#add(path, waiting);
      } catch (error) {
        // What was removed meanwhile takes nothing. A name that is too long, or a directory without permissions, may hide anything.
        if (!isGone(error)) hidden.push(path);
      }
    }
    return hidden;
  }

  get #hasEnough(): boolean {
    return this.bytes >= this.#enough;
  }

  async #add(path: string, directories: string[]): Promise<void> {
    if (this.#hasEnough) return;
    using directory = openDirectory(path);
    for (let count = 1; !this.#hasEnough; count += 1) {
      const entry = directory.readSync();
      if (!entry) return;
      const name = join(path, entry.name);
      if (this.#count(name)) directories.push(name);
      if (count % ENTRIES_PER_LOOK === 0) await this.#otherWork();
    }
  }

  // Says whether it is a directory.
  #count(path: string): boolean {
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (!found) return false;
    const key = `${found.dev}:${found.ino}`;
    const isDirectory = found.isDirectory();
    const isLinked = !isDirectory && found.nlink > 1;
    if (!isLinked || !this.#linked.has(key)) this.bytes += found.blocks * BLOCK_BYTES;
    if (isLinked) this.#linked.add(key);
    return isDirectory;
  }

  async #otherWork(): Promise<void> {
    if (performance.now() < this.#sliceEnd) return;
    await new Promise<void>(resolve => void setImmediate(resolve));
    this.#sliceEnd = performance.now() + SLICE_MS;
  }
}

function openDirectory(path: string): Disposable & Pick<Dir, 'readSync'> {
  const directory = opendirSync(path);
  return { readSync: () => directory.readSync(), [Symbol.dispose]: () => directory.closeSync() };
}

function isGone(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR');
}

/** What a command’s disk use is held to. */
export interface DiskRules {
  readonly of: DiskCut['of'];
  readonly directories: ForkDirectories;
  /** What the whole fork may take; null for no limit. */
  readonly limitBytes: number | null;
  /** What layers of earlier commands take of it. */
  readonly earlierBytes: number;
}

/** The disk use of a command that is being watched. */
export interface DiskLimit {
  /** Which rule ended the command; null as long as none did. */
  readonly cut: DiskCut | null;
  /** Rejects where the disk cannot be watched any more. The command is ended then. */
  readonly failed: Promise<never>;
  /** The command has ended. */
  stop(): void;
}

/** How the disk is looked at, passed in so that tests own it. */
export interface DiskReaders {
  /** At once: a reading that waits for a thread of its own comes late where the machine is busy. */
  readonly space: (directory: string) => DiskSpace;
  readonly use: (rules: DiskRules) => Promise<DiskUse>;
}

const REAL: DiskReaders = {
  space: directory => statfsSync(directory),
  use: ({ directories: { live, work }, limitBytes, earlierBytes }) =>
    diskUse(live, { blind: work, enough: (limitBytes ?? Infinity) - earlierBytes }),
};

// For a layer of any size; the command is paused for most of that.
const WALK_MS = 120_000;

/** Watches the disk use of a command that writes a fork or a state directory. */
export function limitDisk(
  execution: Execution,
  rules: DiskRules,
  clock: Clock,
  readers: DiskReaders = REAL,
): DiskLimit {
  return new DiskWatch(execution, rules, clock, readers);
}

class DiskWatch implements DiskLimit {
  readonly failed: Promise<never>;
  readonly #execution: Execution;
  readonly #rules: DiskRules;
  readonly #clock: Clock;
  readonly #readers: DiskReaders;
  #cut: DiskCut | null = null;
  #isPaused = false;
  #hasStopped = false;
  #wake: () => void = () => undefined;

  constructor(execution: Execution, rules: DiskRules, clock: Clock, readers: DiskReaders) {
    this.#execution = execution;
    this.#rules = rules;
    this.#clock = clock;
    this.#readers = readers;
    this.failed = new Promise<never>((_, reject) => {
      this.#watch().catch(async (error: unknown) => {
        await this.#end();
        const reason = `the disk use of the ${this.#rules.of} could not be watched: ${String(error)}`;
        reject(new AcodeError('ACODE-SBX-018', { operation: 'watching the disk', reason }, { cause: error }));
      });
    });
    // Only a command that still runs is awaited together with this.
    this.failed.catch(() => undefined);
  }

  get cut(): DiskCut | null {
    return this.#cut;
  }

  stop(): void {
    this.#hasStopped = true;
    this.#wake();
  }

  async #watch(): Promise<void> {
    const { limitBytes, earlierBytes } = this.#rules;
    const own = limitBytes === null ? null : limitBytes - earlierBytes;
    const judge = new DiskJudge(own, this.#space(), this.#clock.monotonic());
    while (!this.#hasStopped) {
      let step = judge.looked(this.#space(), this.#clock.monotonic());
      while (step.kind === 'measure' && !this.#hasStopped) step = await this.#measure(judge, step.paused);
      if (step.kind === 'end' && !this.#hasStopped) {
        this.#cut = { by: step.by, of: this.#rules.of, floorBytes: judge.floorBytes };
        return await this.#end();
      }
      await this.#resume();
      if (step.kind === 'wait') await this.#sleep(step.ms);
    }
    await this.#resume();
  }

  async #measure(judge: DiskJudge, paused: boolean): Promise<DiskStep> {
    if (paused) await this.#pause();
    const from = this.#clock.monotonic();
    const late = (): Error => new Error('its layer was not measured in time');
    const use = await inTime(this.#clock, WALK_MS, this.#readers.use(this.#rules), late);
    const now = this.#clock.monotonic();
    return judge.measured(use, paused, { tookMs: now - from, now });
  }

  #space(): DiskSpace {
    return this.#readers.space(this.#rules.directories.store);
  }

  // To pause takes an engine less time than to kill, and a command that is paused writes nothing while it is being ended.
  async #end(): Promise<void> {
    this.#execution.halt?.();
    await this.#pause();
    await this.#execution.kill('SIGKILL').catch(() => undefined);
    // Some engines deliver a signal only to a command that goes on.
    await this.#resume();
  }

  // One that cannot be paused is measured and ended all the same.
  async #pause(): Promise<void> {
    if (this.#isPaused || !this.#execution.pause) return;
    this.#isPaused = true;
    await this.#execution.pause().catch(() => undefined);
  }

  async #resume(): Promise<void> {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    await this.#execution.resume?.().catch(() => undefined);
  }

  #sleep(ms: number): Promise<void> {
    return new Promise<void>(resolve => {
      const cancel = this.#clock.after(ms, resolve);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
  }
}
