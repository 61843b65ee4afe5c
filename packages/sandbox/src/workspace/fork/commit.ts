// The steps of an apply, forward and back: each is found out from what is on the disk, so that any of them can be repeated.
//
// A file is taken away by a rename, which takes whatever is there, and its successor gets the path by a hard link, which never replaces
// anything. So what another program saves at the same time ends up in the area or at the path, and nowhere else.

import {
  linkSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmdirSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
} from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import type { ForkConflict, ForkKept, ForkRefusal } from '../../contract/fork.ts';
import { codeOf, reasonOf } from '../../contract/system-error.ts';
import type { ApplyArea, ApplyStep, Journal, StepState } from './journal.ts';
import { digestOf, isNoWay, nameOf, openBelow, parentOf } from './tree.ts';
import type { OpenDirectory, TreeEntry } from './tree.ts';
import { namesIn, processIds } from '../../lifecycle/processes.ts';

type Exchange = Extract<ApplyStep, { before: unknown }>;
type ModeChange = Exclude<ApplyStep, Exchange>;

/** How far an apply is. */
export interface ApplyProgress {
  readonly done: number;
  readonly total: number;
  /** The path that is next. */
  readonly path: string;
}

/** What keeps an apply from going on. */
export interface Obstacles {
  readonly conflicts: readonly ForkConflict[];
  readonly refused: readonly ForkRefusal[];
}

class Clash extends Error {
  readonly conflict: ForkConflict;

  constructor(path: string, reason: ForkConflict['reason'] = 'meanwhile') {
    super(reason);
    this.conflict = { path, reason };
  }
}

// Often enough for other work of this process, and rarely enough to cost nothing.
const YIELD_EVERY = 128;

/** Takes the steps of a journal in a workspace. */
export class Commit {
  readonly #root: OpenDirectory;
  readonly #area: ApplyArea;
  readonly #journal: Journal;
  /** Whether this process wrote the new files, and so need not read them again. */
  readonly #isFresh: boolean;
  /** What was left where it is. */
  readonly kept: ForkKept[];

  constructor(root: OpenDirectory, area: ApplyArea, journal: Journal, isFresh: boolean) {
    this.#root = root;
    this.#area = area;
    this.#journal = journal;
    this.#isFresh = isFresh;
    this.kept = journal.header.kept.map(path => ({ path, reason: 'not-empty' as const }));
  }

  /** Takes all steps, then checks what they replaced; null where all of it was as expected. */
  async forward(onProgress?: (progress: ApplyProgress) => void): Promise<Obstacles | null> {
    const { steps } = this.#journal;
    for (const [at, step] of steps.entries()) {
      onProgress?.({ done: at, total: steps.length, path: step.path });
      try {
        await this.#take(step, String(at));
      } catch (error) {
        if (!isNoWay(error) || !this.#isGone(step, String(at))) return obstacle(step.path, error);
      }
      if (at % YIELD_EVERY === 0) await setImmediate();
    }
    const conflicts = await this.#unexpected();
    return conflicts.length > 0 ? { conflicts, refused: [] } : null;
  }

  /** Undoes all steps, the last first. */
  async back(): Promise<void> {
    const { steps, times } = this.#journal;
    this.kept.length = 0;
    for (const [at, step] of [...steps.entries()].reverse()) {
      await this.#undo(step, String(at));
      if (at % YIELD_EVERY === 0) await setImmediate();
    }
    for (const [path, modifiedNs] of [...times].reverse()) this.#setTime(path, modifiedNs);
  }

  /** The directories whose entries the steps change. */
  directories(): string[] {
    return [...new Set(this.#journal.steps.map(({ path }) => parentOf(path)))];
  }

  async #take(step: ApplyStep, number: string): Promise<void> {
    using directory = openBelow(this.#root, parentOf(step.path));
    const name = nameOf(step.path);
    if (!('before' in step)) return setMode(directory, name, step);
    await this.#settle(directory, step, number);
    const now = directory.inspect(name);
    const isTaken = this.#isTaken(now, number);
    if (this.#isDone(now, step, number)) return finishDirectory(directory, name, step);
    if (isTaken && now !== null) return this.#leave(directory, step, number);
    if (!isTaken && !this.#clear(directory, step, number, now)) return;
    await this.#put(directory, step, number);
  }

  // Whether a step that is repeated has removed something whose directory was removed after it.
  #isGone(step: ApplyStep, number: string): boolean {
    if (this.#isFresh || !('before' in step) || step.after !== null) return false;
    return step.before?.kind === 'directory' || this.#area.old.inspect(number) !== null;
  }

  // Whether the old file is in the area alone. A rollback that was cut short has given it its path back, and so has two names for it:
  // a rename from one to the other would do nothing.
  #isTaken(now: TreeEntry | null, number: string): boolean {
    const old = this.#area.old.inspect(number);
    if (old === null) return false;
    if (now?.inode !== old.inode) return true;
    unlinkSync(this.#area.old.at(number));
    return false;
  }

  #isDone(now: TreeEntry | null, { after, before }: Exchange, number: string): boolean {
    if (after === null || now === null) return after === now;
    if (after.kind === 'directory') return now.kind === 'directory' && before?.kind !== 'directory';
    return this.#isPut(now, after, number);
  }

  // Whether something is what a step has put there. The new file keeps its name in the area, so that no other has its number.
  #isPut(now: TreeEntry, after: StepState, number: string): boolean {
    if (after.kind === 'link') return now.kind === 'link' && now.target === after.target;
    return now.kind === 'file' && now.inode === this.#area.fresh.inspect(number)?.inode;
  }

  // Takes away what is there; false where it is a directory that is kept.
  #clear(directory: OpenDirectory, step: Exchange, number: string, now: TreeEntry | null): boolean {
    const { path, before, after } = step;
    if (before === null) return true;
    if (before.kind !== 'directory') {
      if (now === null) throw new Clash(path);
      renameSync(directory.at(nameOf(path)), this.#area.old.at(number));
      return true;
    }
    if (now !== null && now.kind !== 'directory') throw new Clash(path);
    if (now === null || removeEmpty(directory, nameOf(path))) return true;
    if (after !== null) throw new Clash(path, 'not-empty');
    this.kept.push({ path, reason: 'not-empty' });
    return false;
  }

  async #put(directory: OpenDirectory, { path, after }: Exchange, number: string): Promise<void> {
    const name = nameOf(path);
    try {
      if (after?.kind === 'link') symlinkSync(after.target, directory.at(name));
      else if (after?.kind === 'directory') makeDirectory(directory, name, after.mode);
      else if (after) {
        // The area may be in the workspace, and time has passed.
        if (!this.#isFresh && (await digestOf(this.#area.fresh, number)).sha256 !== after.sha256) throw new Clash(path);
        linkSync(this.#area.fresh.at(number), directory.at(name));
      }
    } catch (error) {
      throw codeOf(error) === 'EEXIST' ? new Clash(path) : error;
    }
  }

  async #undo(step: ApplyStep, number: string): Promise<void> {
    try {
      using directory = openBelow(this.#root, parentOf(step.path));
      if ('before' in step) await this.#undoExchange(directory, step, number);
      else undoMode(directory, nameOf(step.path), step);
    } catch (error) {
      if (!isNoWay(error)) throw error;
      // The way to it is gone. What was taken from there must not go with it.
      if ('before' in step) this.#rescue(step, number);
    }
  }

  async #undoExchange(directory: OpenDirectory, step: Exchange, number: string): Promise<void> {
    const name = nameOf(step.path);
    await this.#settle(directory, step, number);
    const now = directory.inspect(name);
    const isTaken = this.#isTaken(now, number);
    if (now !== null) await this.#takeBack(directory, step, number, now);
    const isFree = directory.inspect(name) === null;
    if (isTaken) {
      if (!isFree || !putBack(this.#area.old, number, directory, name)) this.#leave(directory, step, number);
    } else if (isFree && step.before?.kind === 'directory') makeDirectory(directory, name, step.before.mode);
  }

  // Removes what the step has put there, and nothing else.
  async #takeBack(directory: OpenDirectory, step: Exchange, number: string, now: TreeEntry): Promise<void> {
    const { path, before, after } = step;
    if (after?.kind === 'directory') {
      const isMade = now.kind === 'directory' && before?.kind !== 'directory';
      if (isMade && !removeEmpty(directory, nameOf(path))) this.kept.push({ path, reason: 'not-empty' });
    } else if (after !== null && this.#isPut(now, after, number)) {
      renameSync(directory.at(nameOf(path)), this.#area.away.at(number));
      await this.#settle(directory, step, number);
    }
  }

  // What a rollback took: the apply’s own is removed, and what a program saved there meanwhile gets its path back.
  async #settle(directory: OpenDirectory, { path, after }: Exchange, number: string): Promise<void> {
    const { away } = this.#area;
    const found = away.inspect(number);
    if (found === null) return;
    if (after !== null && this.#isPut(found, after, number) && (await isSame(away, number, found, after))) {
      unlinkSync(away.at(number));
    } else if (!putBack(away, number, directory, nameOf(path))) {
      const earlier = this.#preserve(directory, away, number, path);
      this.kept.push({ path, reason: 'saved', ...earlier });
    }
  }

  // Another program’s file is at the path: it stays, and the file that was there before the apply gets a name beside it.
  #leave(directory: OpenDirectory, { path }: Exchange, number: string): void {
    this.kept.push({ path, reason: 'saved', ...this.#preserve(directory, this.#area.old, number, path) });
  }

  #rescue({ path }: Exchange, number: string): void {
    for (const from of [this.#area.old, this.#area.away]) {
      if (from.inspect(number) === null) continue;
      const top = openBelow(this.#root, '');
      try {
        this.kept.push({ path, reason: 'saved', ...this.#preserve(top, from, number, nameOf(path)) });
      } finally {
        top[Symbol.dispose]();
      }
    }
  }

  #preserve(directory: OpenDirectory, from: OpenDirectory, number: string, path: string): { earlier: string } {
    for (let copy = 1; ; copy += 1) {
      const suffix = `.acode-before${copy === 1 ? '' : `-${copy}`}`;
      // A name may have 255 bytes.
      const name = `${Buffer.from(nameOf(path)).subarray(0, 200).toString()}${suffix}`;
      if (putBack(from, number, directory, name)) {
        const parent = parentOf(path);
        return { earlier: parent === '' ? name : `${parent}/${name}` };
      }
    }
  }

  // Everything that was taken away has to be what the plan was made for, and nobody may write to it any more. No path leads to these
  // files by now: a process that has one open opened it before.
  async #unexpected(): Promise<ForkConflict[]> {
    const conflicts: ForkConflict[] = [];
    const writers = writersOf(this.#area.old);
    for (const [at, step] of this.#journal.steps.entries()) {
      if (!('before' in step) || step.before === null || step.before.kind === 'directory') continue;
      const number = String(at);
      const found = this.#area.old.inspect(number);
      // Left for another program’s file.
      if (found === null) continue;
      const pid = writers.get(number);
      if (pid !== undefined) conflicts.push({ path: step.path, reason: 'open', pid });
      else if (!(await isSame(this.#area.old, number, found, step.before)))
        conflicts.push({ path: step.path, reason: 'meanwhile' });
      if (at % YIELD_EVERY === 0) await setImmediate();
    }
    return conflicts;
  }

  #setTime(path: string, modifiedNs: string): void {
    if (this.kept.some(({ path: kept, earlier }) => [kept, earlier ?? kept].some(each => parentOf(each) === path)))
      return;
    try {
      using directory = openBelow(this.#root, path);
      // Node gives times as seconds: they are right to the microsecond.
      const seconds = Number(BigInt(modifiedNs) / 1000n) / 1e6;
      const { atimeMs } = statSync(directory.self);
      utimesSync(directory.self, atimeMs / 1000, seconds);
    } catch (error) {
      if (!isNoWay(error) && codeOf(error) !== 'EPERM') throw error;
    }
  }
}

function obstacle(path: string, error: unknown): Obstacles {
  if (error instanceof Clash) return { conflicts: [error.conflict], refused: [] };
  if (isNoWay(error)) return { conflicts: [{ path, reason: 'parent' }], refused: [] };
  if (codeOf(error) === '') throw error;
  return { conflicts: [], refused: [{ path, reason: 'not-permitted', detail: reasonOf(error) }] };
}

async function isSame(directory: OpenDirectory, name: string, found: TreeEntry, expected: StepState): Promise<boolean> {
  if (expected.kind === 'link') return found.kind === 'link' && found.target === expected.target;
  if (expected.kind !== 'file' || found.kind !== 'file') return false;
  return found.mode === expected.mode && (await digestOf(directory, name)).sha256 === expected.sha256;
}

function setMode(directory: OpenDirectory, name: string, { path, from, to }: ModeChange): void {
  const now = directory.inspect(name);
  if (now?.kind !== 'file' && now?.kind !== 'directory') throw new Clash(path);
  if (now.mode === to) return;
  if (now.mode !== from || !directory.setMode(name, now.inode, to)) throw new Clash(path);
}

function undoMode(directory: OpenDirectory, name: string, { from, to }: ModeChange): void {
  const now = directory.inspect(name);
  if ((now?.kind === 'file' || now?.kind === 'directory') && now.mode === to) directory.setMode(name, now.inode, from);
}

// The bit that the kernel hands on from the directory above stays: files in it are to have its group.
const SET_GROUP = 0o2000;

function makeDirectory(directory: OpenDirectory, name: string, mode: number): void {
  mkdirSync(directory.at(name), 0o700);
  setDirectoryMode(directory, name, mode);
}

// One that was made, before the process that made it could set its mode.
function finishDirectory(directory: OpenDirectory, name: string, { after }: Exchange): void {
  if (after?.kind === 'directory') setDirectoryMode(directory, name, after.mode);
}

function setDirectoryMode(directory: OpenDirectory, name: string, mode: number): void {
  const made = directory.inspect(name);
  if (made?.kind === 'directory') directory.setMode(name, made.inode, mode | (made.mode & SET_GROUP));
}

function removeEmpty(directory: OpenDirectory, name: string): boolean {
  try {
    rmdirSync(directory.at(name));
    return true;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return true;
    if (codeOf(error) === 'ENOTEMPTY' || codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

// Gives a file of the area a path, and never one that is taken.
function putBack(from: OpenDirectory, number: string, directory: OpenDirectory, name: string): boolean {
  try {
    linkSync(from.at(number), directory.at(name));
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    // A directory, or a file of another user, has no second name.
    if (codeOf(error) !== 'EPERM') throw error;
    if (directory.inspect(name) !== null) return false;
    renameSync(from.at(number), directory.at(name));
    return true;
  }
  unlinkSync(from.at(number));
  return true;
}

const OPEN_OLD = /\/old\/(\d+)$/;
const ACCESS = 0o3;

// Processes that have a file of the area open for writing, by the number of the file. Only those of the same user can be seen.
function writersOf(old: OpenDirectory): Map<string, number> {
  const writers = new Map<string, number>();
  for (const pid of processIds()) {
    if (pid === process.pid) continue;
    for (const descriptor of namesIn(`/proc/${pid}/fd`)) {
      const number = openedOld(old, `/proc/${pid}`, descriptor);
      if (number !== null) writers.set(number, pid);
    }
  }
  return writers;
}

// By its path first: asking a file system that does not answer, such as one of a server that is away, would never end.
function openedOld(old: OpenDirectory, process_: string, descriptor: string): string | null {
  try {
    const number = OPEN_OLD.exec(readlinkSync(`${process_}/fd/${descriptor}`))?.[1];
    if (number === undefined) return null;
    const inode = statSync(`${process_}/fd/${descriptor}`, { bigint: true }).ino;
    if (old.inspect(number)?.inode !== inode) return null;
    const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`${process_}/fdinfo/${descriptor}`, 'utf8'))?.[1] ?? '0';
    return (Number.parseInt(flags, 8) & ACCESS) === 0 ? null : number;
  } catch {
    // The process or the descriptor is gone.
    return null;
  }
}
