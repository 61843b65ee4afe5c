// Writer’s state of the chain: its last record and current file, checked again before each record, and read
// again only where another process has written.

import { AcodeError } from '../../contract/errors.ts';
import type { AuditKind } from '../../contract/audit.ts';
import { LogFile, fileExists, fileNames, firstOf, namesIn } from './files.ts';
import type { Ending } from './files.ts';
import { NO_HASH } from './record.ts';
import type { Sealed } from './record.ts';
import { sweepLocks } from '../../lifecycle/lock.ts';

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
