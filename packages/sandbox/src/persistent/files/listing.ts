// Reads what walks inside tell: names alone, each ended by a NUL, or portions of `name NUL … NUL NUL lines of stat NUL` with another
// NUL after the last. What no walk would tell is refused at once, and a long one lets others have their turn.

import { Pauses } from '../../lifecycle/clock.ts';
import { Pieces, refused, tooLarge } from './content.ts';
import type { ListingBounds } from './content.ts';
import type { DirectoryEntry, FileStats } from '../../contract/sandbox.ts';

/** What a walk tells of one entry. The name is in latin1, byte for byte, and with all that leads to it. */
export interface Listed {
  readonly name: string;
  /** Null where it was gone before anything could be known of it. */
  readonly facts: Facts | null;
}

/** What is known of an entry. */
export interface Facts {
  readonly mode: number;
  /** Differs where the content may. */
  readonly version: string;
  readonly ino: string;
}

// The longest path a kernel takes, twice: `find` also prints what lies below one.
const MAX_NAME = 2 * 4096;
// The lines for what a kernel takes as the arguments of one call, several times over.
const MAX_LINES = 16 * 1024 ** 2;
// How many are worked on before anybody asks what time it is, which takes as long as one of them.
const PORTION = 512;
// Each number has its bound, or one look at digits without end would take as long as there are digits.
const DATE = String.raw`[-\d]{1,20} [\d:.]{1,30} [-+\d]{1,10}`;
const FACTS = new RegExp(`([0-9a-f]{1,8}) (\\d{1,20}) (\\d{1,20}) (${DATE}) (${DATE}) `, 'y');

/** Takes names apart while they come in. */
export class NamesReader {
  readonly #bounds: ListingBounds;
  readonly #pieces: Pieces;
  readonly #pauses = new Pauses(null);
  readonly #wayOf: (name: string) => string;
  readonly #ways: string[] = [];

  /** `wayOf` gives the way to a name, or refuses it. */
  constructor(bounds: ListingBounds, wayOf: (name: string) => string) {
    this.#bounds = bounds;
    this.#wayOf = wayOf;
    this.#pieces = new Pieces(bounds, 'utf8', () => MAX_NAME);
  }

  async push(chunk: Buffer): Promise<void> {
    for (const names of this.#pieces.cut(chunk)) {
      for (const name of names) this.#ways.push(this.#wayOf(checked(name, this.#bounds, this.#ways.length)));
      if (this.#pauses.isDue) await this.#pauses.take();
    }
  }

  /** All of them, once no more come. */
  finish(): string[] {
    if (this.#pieces.hasRest) throw cutOff(this.#bounds);
    return this.#ways;
  }
}

/** Takes one walk apart while it comes in, and hands on each entry when all of it is there. */
export class WalkReader {
  readonly #bounds: ListingBounds;
  readonly #pieces: Pieces;
  readonly #pauses = new Pauses(null);
  readonly #keep: (entry: Listed) => void;
  #names: string[] = [];
  #count = 0;
  #expectsLines = false;
  #isOver = false;

  constructor(bounds: ListingBounds, keep: (entry: Listed) => void) {
    this.#bounds = bounds;
    this.#keep = keep;
    this.#pieces = new Pieces(bounds, 'latin1', () => (this.#expectsLines ? MAX_LINES : MAX_NAME));
  }

  /** Whether the walk is complete with this chunk. */
  async push(chunk: Buffer): Promise<boolean> {
    for (const pieces of this.#pieces.cut(chunk)) {
      for (const piece of pieces) {
        if (this.#isOver) throw this.#goesOn();
        if (this.#expectsLines) await this.#match(piece);
        else this.#name(piece);
      }
      if (this.#pauses.isDue) await this.#pauses.take();
    }
    if (this.#isOver && this.#pieces.hasRest) throw this.#goesOn();
    return this.#isOver;
  }

  /** Refuses a walk that is not complete when no more comes. */
  finish(): void {
    if (!this.#isOver) throw cutOff(this.#bounds);
  }

  // A portion has at least one name, and no name is empty.
  #name(name: string): void {
    if (name !== '') this.#names.push(checked(name, this.#bounds, this.#count++));
    else if (this.#names.length > 0) this.#expectsLines = true;
    else this.#isOver = true;
  }

  // The order is the same, and a removed entry has no line.
  async #match(lines: string): Promise<void> {
    let at = 0;
    for (const [index, name] of this.#names.entries()) {
      const found = factsAt(lines, at, name);
      if (found) at = found.end;
      this.#keep({ name, facts: found?.facts ?? null });
      if (index % PORTION === 0 && this.#pauses.isDue) await this.#pauses.take();
    }
    this.#names = [];
    this.#expectsLines = false;
  }

  #goesOn(): Error {
    return refused(this.#bounds.path, 'it continues after its end');
  }
}

// The name after the facts may be of several lines: it is compared as a whole with the one reported before.
function factsAt(lines: string, at: number, name: string): { facts: Facts; end: number } | null {
  FACTS.lastIndex = at;
  const found = FACTS.exec(lines);
  if (!found) return null;
  const end = FACTS.lastIndex + name.length;
  if (lines[end] !== '\n' || !lines.startsWith(name, FACTS.lastIndex)) return null;
  const [, mode = '', size = '', ino = '', modified = '', changed = ''] = found;
  return { facts: { mode: Number.parseInt(mode, 16), ino, version: `${size} ${modified} ${changed}` }, end: end + 1 };
}

// A name that comes after so many others.
function checked(name: string, { path, maxEntries }: ListingBounds, others: number): string {
  if (others >= maxEntries) throw tooLarge(path, `${maxEntries} entries`);
  if (name.length > MAX_NAME) throw refused(path, 'a name in it is longer than any path');
  return name;
}

function cutOff({ path }: ListingBounds): Error {
  return refused(path, 'it ends in the middle');
}

/** Bytes that were read as latin1, as the text they are. */
export function asText(latin1: string): string {
  return /[\u0080-\u00ff]/.test(latin1) ? Buffer.from(latin1, 'latin1').toString('utf8') : latin1;
}

const KIND = 0o170000;
const KINDS = { file: 0o100000, directory: 0o040000, link: 0o120000 } as const;

// mode, size, owner, group, links, inode, seconds, and the same as a date, which alone has the fraction.
const LINE = /^([0-9a-f]+) (\d+) (\d+) (\d+) (\d+) (\d+) (-?\d+) [-\d]+ [\d:]+(?:\.(\d+))?/;

/** What a line of `stat` tells; null where it is none. */
export function readStats(line: string): FileStats | null {
  const [, mode = '', size, uid, gid, nlink, ino, seconds, fraction = ''] = LINE.exec(line) ?? [];
  if (seconds === undefined) return null;
  const mtimeMs = Number(seconds) * 1000 + Number(`0.${fraction || '0'}`) * 1000;
  return {
    ...kindOf(Number.parseInt(mode, 16)),
    size: Number(size),
    mode: Number.parseInt(mode, 16),
    uid: Number(uid),
    gid: Number(gid),
    nlink: Number(nlink),
    ino: Number(ino),
    mtimeMs,
    mtime: new Date(mtimeMs),
  };
}

/** An entry of a directory, of which only the mode is known, or not even that. */
export function entryOf(name: string, parentPath: string, mode: number | null): DirectoryEntry {
  return { name, parentPath, ...kindOf(mode ?? 0) };
}

/** Whether a mode is a directory’s. */
export function isDirectoryMode(mode: number): boolean {
  return (mode & KIND) === KINDS.directory;
}

type Kind = Pick<FileStats, 'isFile' | 'isDirectory' | 'isSymbolicLink'>;

// The same functions for all of one kind: a directory may have a million entries.
const OTHER = kind(0);
const BY_BITS: ReadonlyMap<number, Kind> = new Map(Object.values(KINDS).map(bits => [bits, kind(bits)]));

function kind(bits: number): Kind {
  return {
    isFile: () => bits === KINDS.file,
    isDirectory: () => bits === KINDS.directory,
    isSymbolicLink: () => bits === KINDS.link,
  };
}

function kindOf(mode: number): Kind {
  return BY_BITS.get(mode & KIND) ?? OTHER;
}
