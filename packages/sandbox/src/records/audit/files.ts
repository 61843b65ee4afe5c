// The files of the log: each is named by the first record it holds, so that the next one is known without a list, and the
// chain continues from file to file without one ever being renamed.

import * as fs from 'node:fs';
import { constants } from 'node:fs';
import { join } from 'node:path';
import type { AuditFindings, AuditHead, AuditKind } from '../../contract/audit.ts';
import { AcodeError } from '../../contract/errors.ts';
import { codeOf } from '../../contract/system-error.ts';
import { MAX_LINE, headOf } from './record.ts';
import { chooseChanges } from '../../contract/changes.ts';
import type { RunResult } from '../../contract/result.ts';

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
export function fileExists(directory: string, seq: number): boolean {
  return fs.lstatSync(join(directory, fileName(seq)), { throwIfNoEntry: false }) !== undefined;
}

/** The names in the directory; none where it does not exist. */
export function namesIn(directory: string): string[] {
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
