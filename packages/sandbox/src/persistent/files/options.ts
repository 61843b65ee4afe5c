// Options of file calls. An unknown one is refused: ignoring an option loses data, such as that
// of a file that was to be appended to.

import { AcodeError } from '../../contract/errors.ts';
import type { TransferReport, WriteFlag } from '../../contract/sandbox.ts';
import { checkedMode } from './content.ts';
import { typeError, valueError } from './errno.ts';

/** Looks at the value of one option, and gives what it means; undefined where that is what would be done anyway. */
export type Check<Value> = (value: unknown, field: string) => Value | undefined;

/** The options that a call understands. */
export type Fields<Shape> = { readonly [Field in keyof Shape]: Check<Shape[Field]> };

/** Takes the options of a call, and throws at the first that is not understood. One that is undefined asks for nothing. */
export function optionsOf<Shape extends object>(given: unknown, known: Fields<Shape>): Partial<Shape> {
  if (given === undefined || given === null) return {};
  if (typeof given !== 'object') throw refused('options', `must be an object, and is of type ${typeof given}`);
  // Those that are inherited count as well, as they do in node.
  for (const field in given)
    if (!Object.hasOwn(known, field) && Reflect.get(given, field) !== undefined)
      throw refused(field, 'is not an option that this call knows');
  const taken: Partial<Shape> = {};
  for (const field in known) {
    const value: unknown = Reflect.get(given, field);
    const meant = value === undefined ? undefined : known[field](value, field);
    if (meant !== undefined) taken[field] = meant;
  }
  return taken;
}

/** The same for calls that take an encoding in place of all options. */
export function withEncoding(given: unknown): unknown {
  return typeof given === 'string' ? { encoding: given } : given;
}

/** The same for calls that take a mode in place of all options. */
export function withMode(given: unknown): unknown {
  return typeof given === 'number' ? { mode: given } : given;
}

const EXCLUSIVE: ReadonlySet<unknown> = new Set(['wx', 'xw', 'ax', 'xa']);
// What node knows, and is more than writing a file from its beginning or its end.
const OTHER_FLAGS: ReadonlySet<unknown> = new Set('r r+ rs sr rs+ sr+ w+ wx+ xw+ a+ ax+ xa+ as sa as+ sa+'.split(' '));
const SPECIAL_BITS = 0o7000;
const STICKY_BIT = 0o1000;

/** Yes or no. */
export const flagged: Check<boolean> = (value, field) => {
  if (typeof value === 'boolean') return value;
  throw typeError(`options.${field}`, 'of type boolean', value);
};

const cancelling: Check<AbortSignal> = (value, field) => {
  if (value instanceof AbortSignal) return value;
  throw typeError(`options.${field}`, 'an instance of AbortSignal', value);
};

/** How much there may be. */
export const bounding: Check<number> = (value, field) => {
  if (typeof value === 'number' && value >= 0) return value;
  throw refused(field, 'must be a number that is not negative');
};

/** How text is made of bytes, or bytes of text; none for bytes as they are. */
export const encoded: Check<BufferEncoding> = value => {
  if (value === null || value === '') return undefined;
  if (typeof value === 'string' && Buffer.isEncoding(value)) return value;
  throw valueError('encoding', 'is invalid encoding', value);
};

/** How a file is opened to be read. */
export const readFlag: Check<'r'> = (value, field) => {
  if (value === null || value === 'r') return undefined;
  throw otherFlag(value, field, 'r');
};

/** How a file is opened to be written. */
export const writeFlag: Check<WriteFlag> = (value, field) => {
  if (value === null) return undefined;
  if (value === 'w' || value === 'a') return value;
  if (EXCLUSIVE.has(value)) return 'wx';
  throw otherFlag(value, field, 'w, a, wx and ax');
};

/** The mode of a file that is made. */
export const fileMode: Check<number> = (value, field) => modeWithout(SPECIAL_BITS, value, field);

/** The mode of a directory that is made; the kernel heeds no other special bit of one than this. */
export const directoryMode: Check<number> = (value, field) => modeWithout(STICKY_BIT, value, field);

/** What every call takes. */
export const CALL = { signal: cancelling };

function modeWithout(bits: number, value: unknown, field: string): number | undefined {
  if (value === null) return undefined;
  const mode = checkedMode(value);
  if ((mode & bits) === 0) return mode;
  throw refused(field, 'has special bits, which chmod gives to what is there');
}

function otherFlag(value: unknown, field: string, known: string): Error {
  if (!OTHER_FLAGS.has(value) && value !== 'w' && value !== 'a' && !EXCLUSIVE.has(value))
    return valueError('flags', 'is invalid', value);
  return refused(field, `is ${String(value)}, and this call knows ${known} only`);
}

function refused(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', {
    field,
    reason,
    remedy: 'Leave it out: what is not understood is never ignored. docs/sessions.md says which options there are.',
  });
}

// What is left out is reported, and so held: names as long as a sandbox can make them would fill the memory of this host.
const MAX_SKIPPED_BYTES = 16 * 1024 ** 2;

/** How much a transfer may be. */
export interface Bounds {
  readonly maxBytes: number;
  readonly maxEntries: number;
}

/** What was transferred so far. */
export class Tally {
  readonly #path: string;
  readonly #bounds: Bounds;
  readonly #skipped: { path: string; reason: string }[] = [];
  #files = 0;
  #directories = 0;
  #bytes = 0;
  #announced = 0;
  #skippedBytes = 0;

  constructor(path: string, bounds: Bounds) {
    this.#path = path;
    this.#bounds = bounds;
  }

  /** Refuses what would be too much before any of it comes. What is skipped has to come by, too. */
  announce(size: number): void {
    this.#announced += size;
    if (this.#announced > this.#bounds.maxBytes) throw this.#tooMuch(`${this.#bounds.maxBytes} bytes`);
  }

  /** Counts a file by the size it is said to have. */
  file(size: number): void {
    this.#files++;
    this.bytes(size);
    this.#countEntry();
  }

  /** Counts bytes of a file of unknown size. */
  bytes(count: number): void {
    this.#bytes += count;
    if (this.#bytes > this.#bounds.maxBytes) throw this.#tooMuch(`${this.#bounds.maxBytes} bytes`);
  }

  /** Counts a directory. */
  directory(): void {
    this.#directories++;
    this.#countEntry();
  }

  /** Counts directories that only the names of others spoke of. */
  made(directories: number): void {
    if (directories > this.#bounds.maxEntries) throw this.#tooMuch(`${this.#bounds.maxEntries} directories`);
  }

  /** Notes what is left out. */
  skip(path: string, reason: string): void {
    this.#skippedBytes += Buffer.byteLength(path) + reason.length;
    if (this.#skippedBytes > MAX_SKIPPED_BYTES) throw this.#tooMuch('16 MiB of names that are left out');
    this.#skipped.push({ path, reason });
    this.#countEntry();
  }

  /** What came of it. */
  report(): TransferReport {
    return { files: this.#files, directories: this.#directories, bytes: this.#bytes, skipped: this.#skipped };
  }

  // What is skipped is counted too: reporting it takes memory of this host.
  #countEntry(): void {
    const entries = this.#files + this.#directories + this.#skipped.length;
    if (entries > this.#bounds.maxEntries) throw this.#tooMuch(`${this.#bounds.maxEntries} entries`);
  }

  #tooMuch(limit: string): AcodeError {
    return new AcodeError('ACODE-FIL-003', { path: this.#path, limit });
  }
}
