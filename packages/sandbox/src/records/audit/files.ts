// The chain of the audit log on disk, as its writer has it: its last record and current file, checked again before each record, and read
// again only where another process has written.
//
// Each file is named by the first record it holds, so that the next one is known without a list, and the chain continues from file to
// file without one ever being renamed.

import * as fs from 'node:fs';
import { constants } from 'node:fs';
import { join } from 'node:path';
import type { AuditFindings, AuditHead, AuditKind } from '../../contract/audit.ts';
import { AcodeError } from '../../contract/errors.ts';
import { codeOf } from '../../contract/system-error.ts';
import { MAX_LINE, headOf, NO_HASH } from './record.ts';
import { chooseChanges } from '../../contract/changes.ts';
import type { RunResult } from '../../contract/result.ts';
import type { Sealed } from './record.ts';
import { sweepLocks } from '../../lifecycle/lock.ts';

const NAME = /^(\d{12})\.jsonl$/;
const NEWLINE = 0x0a;
const FIRST_LOOK = 4096;
const ATTEMPTS = 3;

/** The name of the file that begins with a record. */
export function fileName(seq: number): string {
  return `${String(seq).padStart(12, '0')}.jsonl`;
}

/** The record that a file begins with, by its name; null where it is not a file of the log. */
export function firstOf(name: string): number | null {
  const found = NAME.exec(name);
  return found ? Number(found[1]) : null;
}

/** The names of the files, oldest first. */
export function fileNames(names: readonly string[]): string[] {
  return names.filter(name => NAME.test(name)).sort();
}

/** The last record of a file, and where it ends. */
export interface LastRecord extends AuditHead {
  readonly kind: AuditKind;
}

/** What is known of a file up to its last newline. */
export interface Ending {
  /** Null where the file holds no whole record. */
  readonly last: LastRecord | null;
  /** The bytes of whole records. */
  readonly end: number;
  /** The bytes there are; more than `end` where a record is being written, or was when its writer died. */
  readonly size: number;
}

/** One file, open for writing at its end. */
export class LogFile {
  readonly path: string;
  readonly first: number;
  readonly #descriptor: number;
  readonly #inode: number;
  readonly #device: number;

  private constructor(path: string, first: number, descriptor: number, found: { ino: number; dev: number }) {
    this.path = path;
    this.first = first;
    this.#descriptor = descriptor;
    this.#inode = found.ino;
    this.#device = found.dev;
  }

  /** Opens a file of the log, or makes it. What is not an ordinary file of this user is refused. */
  static open(directory: string, first: number, uid: number, make: boolean): LogFile {
    const path = join(directory, fileName(first));
    const flags = constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    const descriptor = fs.openSync(path, make ? flags | constants.O_CREAT : flags, 0o600);
    try {
      const found = fs.fstatSync(descriptor);
      if (!found.isFile() || found.uid !== uid) throw new Error('it is not an ordinary file of the current user');
      if ((found.mode & 0o077) !== 0) fs.fchmodSync(descriptor, 0o600);
      if (make) syncDirectory(directory);
      return new LogFile(path, first, descriptor, found);
    } catch (error) {
      fs.closeSync(descriptor);
      throw error;
    }
  }

  /** The bytes of the file; null where another file, or none, stands at its path by now. */
  sizeNow(): number | null {
    const found = fs.lstatSync(this.path, { throwIfNoEntry: false });
    return found?.ino === this.#inode && found.dev === this.#device ? found.size : null;
  }

  /** Looks at the end of the file. Throws where the last whole line is no record: nothing may follow what is broken. */
  ending(): Ending {
    for (let attempt = 1; ; attempt += 1) {
      const { size } = fs.fstatSync(this.#descriptor);
      const { line, end } = this.#lastLine(size, FIRST_LOOK);
      if (line === null) return { last: null, end, size };
      const last = headOf(line);
      if (last !== null) return { last, end, size };
      // Without the lock, a torn line may be cut off and written over while it is read: a damaged line remains damaged.
      if (attempt === ATTEMPTS) throw damaged(this.path);
    }
  }

  /** Writes a line at the end, whole or not at all. */
  append(line: string, end: number): number {
    const bytes = Buffer.from(line);
    try {
      if (fs.writeSync(this.#descriptor, bytes) !== bytes.length) throw new ShortWrite();
    } catch (error) {
      // A torn line does no harm, since its writer never acknowledged it; remove it anyway.
      this.cutTo(end);
      throw error;
    }
    return end + bytes.length;
  }

  /** Cuts off what stands after the last whole record. */
  cutTo(end: number): void {
    fs.ftruncateSync(this.#descriptor, end);
  }

  /** Waits until the disk has it all. */
  flush(): void {
    fs.fdatasyncSync(this.#descriptor);
  }

  /** The descriptor, for doing the same without being waited for. */
  get descriptor(): number {
    return this.#descriptor;
  }

  /** Lets go of it. */
  close(): void {
    fs.closeSync(this.#descriptor);
  }

  #lastLine(size: number, look: number): { line: Buffer | null; end: number } {
    const from = Math.max(0, size - look);
    const bytes = Buffer.alloc(size - from);
    const there = bytes.subarray(0, fs.readSync(this.#descriptor, bytes, 0, bytes.length, from));
    const newline = there.lastIndexOf(NEWLINE);
    const before = newline <= 0 ? -1 : there.lastIndexOf(NEWLINE, newline - 1);
    if (newline >= 0 && (before >= 0 || from === 0))
      return { line: there.subarray(before + 1, newline), end: from + newline + 1 };
    if (from === 0) return { line: null, end: 0 };
    // A torn line and the whole one before it are never longer than this together.
    if (look > 2 * MAX_LINE) throw new Error('its last line is longer than any record');
    return this.#lastLine(size, look * 4);
  }
}

/** A write that the system cut short: the disk is full, or a limit was reached. */
class ShortWrite extends Error {
  readonly code = 'ENOSPC';
}

/** Whether there is a file that begins with this record. */
function fileExists(directory: string, seq: number): boolean {
  return fs.lstatSync(join(directory, fileName(seq)), { throwIfNoEntry: false }) !== undefined;
}

/** The names in the directory; none where it does not exist. */
function namesIn(directory: string): string[] {
  try {
    return fs.readdirSync(directory);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return [];
    throw error;
  }
}

// Otherwise a file that was synced could be gone after a power cut, because its name never reached the disk.
function syncDirectory(directory: string): void {
  const descriptor = fs.openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    fs.fsyncSync(descriptor);
  } finally {
    fs.closeSync(descriptor);
  }
}

function damaged(file: string): AcodeError {
  return new AcodeError('ACODE-AUD-001', {
    file,
    reason: 'its last record is damaged',
    remedy:
      'acode writes nothing after a damaged record. `acode audit verify` shows details. To begin a new log, move the directory away unchanged, so that it can be investigated.',
  });
}

/** What is known of a workspace after a run. */
export type Scanned = Pick<RunResult, 'riskyChanges' | 'scan'> & Partial<Pick<RunResult, 'changed'>>;

const MAX_CHANGES = 64;
const MAX_PATH = 200;
const MAX_REASON = 600;

/** What a scan found, as much of it as a record has room for. Pure. */
export function findingsOf({ riskyChanges, changed, scan }: Scanned): AuditFindings {
  const { shown, incomplete, omitted } = chooseChanges(riskyChanges, MAX_CHANGES);
  const reason = incomplete.map(one => one.reason).join('; ');
  return {
    ...(changed ? { changed: { ...changed } } : {}),
    scan,
    ...(shown.length === 0
      ? {}
      : {
          riskyChanges: shown.map(({ kind, path }) => ({ kind, path: shortened(path, MAX_PATH) })),
          riskyChangesTotal: shown.length + omitted,
        }),
    ...(reason === '' ? {} : { scanReason: shortened(reason, MAX_REASON) }),
  };
}

function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}

/** The last record of the chain; `kind` is null before the first. */
export interface ChainHead {
  readonly seq: number;
  readonly hash: string;
  readonly kind: AuditKind | null;
}

const NONE: ChainHead = { seq: 0, hash: NO_HASH, kind: null };

/** The end of the chain, as one process sees it. */
export class Chain {
  readonly #directory: string;
  readonly #uid: number;
  #head: ChainHead = NONE;
  #file: LogFile | null = null;
  #end = 0;
  #torn = false;
  #begun = false;

  constructor(directory: string, uid: number) {
    this.#directory = directory;
    this.#uid = uid;
  }

  get head(): ChainHead {
    return this.#head;
  }

  /** The bytes of whole records in the file that is written to. */
  get size(): number {
    return this.#end;
  }

  /** Whether the next record is the first of a file that follows another. */
  get beginsFile(): boolean {
    return this.#head.seq > 0 && this.#file?.first === this.#head.seq + 1;
  }

  /** The file that is written to; null where there is none yet. */
  get path(): string | null {
    return this.#file?.path ?? null;
  }

  get descriptor(): number {
    if (!this.#file) throw new Error('nothing was written yet');
    return this.#file.descriptor;
  }

  /** Looks for the first time, and takes away what dead writers left. */
  begin(): void {
    if (this.#begun) return;
    this.look();
    sweepLocks(this.#directory, this.#head.seq);
    this.#begun = true;
  }

  /** Looks whether the chain has grown. Throws where it has shrunk, or is another one: what it said is not said any more. */
  look(): void {
    const size = this.#file?.sizeNow() ?? null;
    const moved = size === null || fileExists(this.#directory, this.#head.seq + 1);
    if (moved) this.#adopt(this.#find());
    // Compared with the end of the last whole record and nothing else: a torn line that was replaced may have been as long.
    else if (size !== this.#end && this.#file) this.#adopt({ file: this.#file, ...this.#file.ending(), before: null });
  }

  /** Writes the next record. Only for the process that has the lock, and has read the head since. */
  append(sealed: Sealed, kind: AuditKind, rotates: boolean): void {
    const file = rotates || !this.#file ? this.#make(sealed.seq) : this.#file;
    // Bytes after the last whole record were never acknowledged, and their writer has died.
    if (this.#torn) file.cutTo(this.#end);
    this.#torn = false;
    this.#end = file.append(sealed.line, this.#end);
    this.#head = { seq: sealed.seq, hash: sealed.hash, kind };
    if (rotates) sweepLocks(this.#directory, sealed.seq);
  }

  close(): void {
    this.#file?.close();
    this.#file = null;
    this.#begun = false;
  }

  #make(first: number): LogFile {
    // All of the old file before any of the new one: after a power cut the chain may be shorter, but has no gap.
    this.#file?.flush();
    const file = LogFile.open(this.#directory, first, this.#uid, true);
    this.#file?.close();
    this.#file = file;
    this.#end = 0;
    return file;
  }

  #find(): Found {
    const names = fileNames(namesIn(this.#directory));
    const newest = names.at(-1);
    if (newest === undefined) return { file: null, last: null, before: null, end: 0, size: 0 };
    const file = LogFile.open(this.#directory, firstOf(newest) ?? 0, this.#uid, false);
    try {
      const ending = file.ending();
      // A writer who died after making the file, and before writing to it, leaves it empty.
      const before = ending.last === null ? this.#lastBefore(names.at(-2)) : null;
      const last = ending.last ?? before;
      if (ending.last === null && file.first !== (last?.seq ?? 0) + 1) throw new Error('records before it are missing');
      return { file, ...ending, before };
    } catch (error) {
      file.close();
      throw error;
    }
  }

  #lastBefore(name: string | undefined): ChainHead | null {
    if (name === undefined) return null;
    const file = LogFile.open(this.#directory, firstOf(name) ?? 0, this.#uid, false);
    try {
      return file.ending().last;
    } finally {
      file.close();
    }
  }

  #adopt({ file, last, before, end, size }: Found): void {
    const head = last ?? before ?? NONE;
    const given = this.#file;
    if (isBehind(head, this.#head)) {
      if (file !== given) file?.close();
      throw shrunk(file?.path ?? this.#directory, this.#head.seq);
    }
    if (file !== given) given?.close();
    this.#file = file;
    this.#head = head;
    this.#end = end;
    this.#torn = size > end;
  }
}

function isBehind(head: ChainHead, seen: ChainHead): boolean {
  return head.seq < seen.seq || (head.seq === seen.seq && head.hash !== seen.hash);
}

function shrunk(file: string, seq: number): AcodeError {
  const detail = 'this process has seen it in the log, and it is not there any more';
  return new AcodeError('ACODE-AUD-002', { file, line: 0, seq, fault: 'truncated', detail });
}

/** The end of the chain as it was found. */
interface Found extends Ending {
  readonly file: LogFile | null;
  /** The last record of the file before, where this one holds none. */
  readonly before: ChainHead | null;
}

/** How many records there are to each signature, at the most. */
export const CHECKPOINT_EVERY = 256;

/** What a record is, and what it follows. */
export interface RecordPosition {
  readonly seq: number;
  readonly kind: AuditKind;
  /** Whether it is the first record of its file. */
  readonly beginsFile: boolean;
  /** The number of the last checkpoint before it; 0 where there is none. */
  readonly checkpoint: number;
}

/**
 * Whether a record stands where only a checkpoint can: at the beginning of a file that follows another, or further from the
 * last checkpoint than a writer ever writes. Two checkpoints never follow each other, so right after one there is none.
 */
export function isInPlaceOfCheckpoint({ seq, kind, beginsFile, checkpoint }: RecordPosition): boolean {
  if (kind === 'checkpoint') return false;
  return seq - checkpoint > CHECKPOINT_EVERY || (beginsFile && checkpoint !== seq - 1);
}
