// Looks into directories that untrusted code has filled: no link is followed, nothing but directories is opened; where a link leads inside
// one is worked out as bytes. And change times: whether a file was changed during a run, by the time that only the kernel sets.
//
// Paths and names are byte strings (latin1), because names on Linux are bytes and need not be text.

import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  openSync,
  opendirSync,
  readdirSync,
  readlinkSync,
  statfsSync,
} from 'node:fs';
import type { Dir, Dirent, Stats } from 'node:fs';
import { codeOf } from '../contract/system-error.ts';
import type { RestPeriod } from '../contract/scan.ts';
import { keepsExactTimes } from './file-identity.ts';

/** Why a directory could not be looked into. */
export type Unseen = 'gone' | 'unreadable' | 'elsewhere';

const LINUX = process.platform === 'linux';
const BUFFERED_ENTRIES = 512;
const FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const FILE_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const UNLESS_GONE = { throwIfNoEntry: false } as const;
// oxlint-disable-next-line no-control-regex -- every byte but those that a text has otherwise
const PLAIN = /^[\x01-\x7f]*$/;
// Linux’s O_PATH, which Node.js does not name: needs no right to read, and gives none.
const PATH_ONLY = 0o10000000 | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** A directory that is held open, so that what is asked of it is asked of this one whatever becomes of its path. */
export class DirectoryLook implements Disposable {
  readonly stats: Stats;
  readonly #descriptor: number;
  readonly #path: string;
  #entries: Dir | null = null;

  private constructor(descriptor: number, path: string) {
    this.#descriptor = descriptor;
    this.#path = path;
    this.stats = fstatSync(descriptor);
  }

  /** Opens the directory that really is at a path. One that may not be read has entries that can be asked for by name. */
  static open(path: string): DirectoryLook | Unseen {
    let descriptor: number;
    try {
      descriptor = openDirectory(path);
    } catch (error) {
      return codeOf(error) === 'ENOENT' ? 'gone' : 'unreadable';
    }
    const held = LINUX ? `/proc/self/fd/${descriptor}` : path;
    try {
      // A link in the middle of the path would have led here too.
      if (LINUX && readlinkSync(held, 'latin1') !== path) throw new Error('the path leads through a link');
      return new DirectoryLook(descriptor, held);
    } catch {
      closeSync(descriptor);
      return 'elsewhere';
    }
  }

  /** The next entry, in the order of the file system; null after the last. */
  next(): Dirent | null | 'unreadable' {
    try {
      this.#entries ??= opendirSync(bytes(this.#path), { encoding: 'latin1', bufferSize: BUFFERED_ENTRIES });
      return this.#entries.readSync();
    } catch {
      return 'unreadable';
    }
  }

  /** All entries at once: quicker than one by one, and for directories that are known to be small. */
  all(): Dirent[] | 'unreadable' {
    try {
      return readdirSync(bytes(this.#path), { encoding: 'latin1', withFileTypes: true });
    } catch {
      return 'unreadable';
    }
  }

  /** All names at once, in the order of the file system. */
  names(): string[] | 'unreadable' {
    try {
      return readdirSync(bytes(this.#path), { encoding: 'latin1' });
    } catch {
      return 'unreadable';
    }
  }

  /** Whether a process that knows a name in it can reach that entry. */
  get isEnterable(): boolean {
    return this.lstat('.') !== null;
  }

  /** An entry itself, without following links; null if it was removed. */
  lstat(name: string): Stats | null {
    return lstat(`${this.#path}/${name}`);
  }

  /** Opens a file in it for reading; throws for a link. A FIFO is not waited for: the caller asks the descriptor what it is. */
  openFile(name: string): number {
    return openSync(bytes(`${this.#path}/${name}`), FILE_FLAGS);
  }

  /** Where a symbolic link in it leads, as a byte string; null where it is not one. */
  readlink(name: string): string | null {
    try {
      return readlinkSync(bytes(`${this.#path}/${name}`), 'latin1');
    } catch {
      return null;
    }
  }

  [Symbol.dispose](): void {
    this.#entries?.closeSync();
    closeSync(this.#descriptor);
  }
}

function openDirectory(path: string): number {
  try {
    return openSync(bytes(path), FLAGS);
  } catch (error) {
    if (!LINUX || codeOf(error) !== 'EACCES') throw error;
    return openSync(bytes(path), PATH_ONLY);
  }
}

/** The file at a path, without following links; null if it was removed or cannot be reached. */
export function lstat(path: string): Stats | null {
  try {
    // Most names that are asked for are not there, and an exception for each would cost more than the question.
    // The same bytes as a text cost less to hand over.
    return lstatSync(PLAIN.test(path) ? path : bytes(path), UNLESS_GONE) ?? null;
  } catch {
    return null;
  }
}

/** A byte string as the file system takes it. */
export function bytes(path: string): Buffer {
  return Buffer.from(path, 'latin1');
}

/** Text as a byte string. */
export function fromText(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}

/** A byte string as text. */
export function toText(path: string): string {
  return bytes(path).toString('utf8');
}

/** The time in which a change is taken for one of the run, by the clock of the kernel. */
export interface ScanWindow {
  /** When nothing of the sandbox existed yet. */
  readonly sinceMs: number;
  /** When nothing of the sandbox lived any more; `Infinity` where that is not known. */
  readonly untilMs: number;
  /** When nothing of the sandbox ran, though it was there. */
  readonly rests?: readonly RestPeriod[];
}

// The kernel stamps files by a clock that lags behind the one we read by up to a tick, and may be finer than ours by less than 1 ms.
const CLOCK_LAG_MS = 20;
const FINER_MS = 1;
const SECOND_MS = 1000;
// The coarsest time that a file system in use keeps: FAT has steps of two seconds.
const COARSEST_MS = 2000;
const OVERLAY = 0x794c7630n;
// What clocks are corrected by while they run, at most; anything more is a step.
const SLEW = 0.001;
const STEP_MS = 100;

/** What is said of a file system whose change times prove nothing. */
export const INEXACT =
  'on this file system another clock, or the command itself, may set file times: what the command changed may look older than the run';

/** Tells what was changed in a window of time. */
export class FileTimes {
  readonly #since: number;
  readonly #until: number;
  readonly #rests: readonly RestPeriod[];

  constructor({ sinceMs, untilMs, rests = [] }: ScanWindow, isExact: boolean) {
    this.#since = sinceMs - CLOCK_LAG_MS - (isExact ? 0 : COARSEST_MS);
    this.#until = untilMs + FINER_MS + (isExact ? 0 : COARSEST_MS);
    // Where times are not exact, what was changed in one cannot be distinguished from earlier or later changes.
    this.#rests = isExact
      ? rests.map(({ fromMs, toMs }) => ({ fromMs: fromMs + FINER_MS, toMs: toMs - CLOCK_LAG_MS }))
      : [];
  }

  /** Whether it was last changed in the window. */
  isChanged(stats: Pick<Stats, 'ctimeMs'>): boolean {
    return this.isTouched(stats) && stats.ctimeMs <= this.#until && !this.#isAtRest(stats);
  }

  #isAtRest({ ctimeMs }: Pick<Stats, 'ctimeMs'>): boolean {
    const lastMs = ctimeMs + (isWholeSecond(ctimeMs) ? SECOND_MS : 0);
    return this.#rests.some(({ fromMs, toMs }) => ctimeMs > fromMs && lastMs < toMs);
  }

  /** Whether it was changed in the window or later: the earlier state of a file changed later is unknown. */
  isTouched({ ctimeMs }: Pick<Stats, 'ctimeMs'>): boolean {
    return ctimeMs >= (isWholeSecond(ctimeMs) ? Math.floor(this.#since / SECOND_MS) * SECOND_MS : this.#since);
  }

  /** Whether it was made in the window. */
  isBorn({ birthtimeMs }: Pick<Stats, 'birthtimeMs'>): boolean {
    return birthtimeMs >= this.#since;
  }

  /** Whether it was made in the window, and changed after that: where no time of making is kept, that of the change stands for it. */
  isMade({ birthtimeMs, ctimeMs }: Pick<Stats, 'birthtimeMs' | 'ctimeMs'>): boolean {
    return this.isBorn({ birthtimeMs }) && birthtimeMs < ctimeMs;
  }
}

/** Whether change times in a directory can be relied on. */
export function hasReliableTimes(directory: string): boolean {
  if (process.platform !== 'linux') return true;
  try {
    return keepsExactTimes(directory);
  } catch {
    // The scan says itself that it could not look into it.
    return true;
  }
}

/** Whether when something was made is kept, whatever becomes of it: an overlay makes what comes from a lower layer anew. */
export function keepsBirth(directory: string): boolean {
  try {
    return hasReliableTimes(directory) && statfsSync(directory, { bigint: true }).type !== OVERLAY;
  } catch {
    return false;
  }
}

/** How far the wall clock is ahead of one that is never set. Only the difference between two readings means something. */
export function clockOffsetMs(): number {
  return Date.now() - performance.now();
}

/**
 * By how much the window of a run must begin earlier, since the wall clock was set back while it ran: what was written after
 * that has an earlier time than the run's beginning.
 */
export function setBackMs(offsetBefore: number, offsetNow: number, tookMs: number): number {
  const back = offsetBefore - offsetNow;
  return back > STEP_MS + (Number.isFinite(tookMs) ? tookMs * SLEW : 0) ? back : 0;
}

// A file system that keeps whole seconds says of a change that it happened up to a second before it did.
function isWholeSecond(timeMs: number): boolean {
  return timeMs % SECOND_MS === 0;
}

// As many as the kernel follows.
const MAX_LINKS = 40;
// Links can make a way of 40 times 4,096 bytes; what is longer than this leads nowhere that a person would use.
const MAX_STEPS = 1000;

/** Where a path leads inside a directory. */
export interface LinkTarget {
  /** Relative to the directory, with no link left in it; empty for the directory itself. */
  readonly path: string;
  /** The links on the way, the one that was asked about first; relative to the directory. */
  readonly links: readonly string[];
}

/**
 * Where a path leads inside `root`, or null where it leads out, in a circle, or by too many steps. Asked of the links on its way too: an innocent
 * target may lead through a directory that is a link itself. All paths are byte strings, `path` relative to `root`.
 *
 * @param linkAt reads the target of a link at an absolute path; null where there is none.
 */
export function targetInside(root: string, path: string, linkAt?: (path: string) => string | null): LinkTarget | null {
  return resolved(root, path, linkAt ?? targetOf);
}

function resolved(root: string, path: string, linkAt: (path: string) => string | null): LinkTarget | null {
  const way = steps(path);
  const here: string[] = [];
  const links: string[] = [];
  let taken = 0;
  while (way.length > 0) {
    taken += 1;
    if (taken > MAX_STEPS) return null;
    const step = way.pop() ?? '';
    if (step === '..') {
      if (here.pop() === undefined) return null;
      continue;
    }
    const target = linkAt([root, ...here, step].join('/'));
    if (target === null) {
      here.push(step);
      continue;
    }
    links.push([...here, step].join('/'));
    if (links.length > MAX_LINKS) return null;
    const rest = inside(root, target);
    if (rest === null) return null;
    if (rest !== target) here.length = 0;
    way.push(...steps(rest));
  }
  return { path: here.join('/'), links };
}

/** A path as it was written somewhere: relative to `base`, or absolute; null for an absolute one outside `root`. */
export function writtenInside(root: string, base: string, written: string): string | null {
  const rest = inside(root, written);
  if (rest === null) return null;
  return rest === written ? `${base}/${written}` : rest;
}

// The last first, so that the next is taken from the end.
function steps(path: string): string[] {
  return path
    .split('/')
    .filter(step => step !== '' && step !== '.')
    .reverse();
}

// A relative target as it is, an absolute one relative to the root; null for one that is outside.
function inside(root: string, target: string): string | null {
  if (!target.startsWith('/')) return target;
  if (target === root) return '.';
  return target.startsWith(`${root}/`) ? `./${target.slice(root.length + 1)}` : null;
}

function targetOf(path: string): string | null {
  try {
    return lstatSync(bytes(path), UNLESS_GONE)?.isSymbolicLink() ? readlinkSync(bytes(path), 'latin1') : null;
  } catch {
    // What does not exist leads nowhere further.
    return null;
  }
}
