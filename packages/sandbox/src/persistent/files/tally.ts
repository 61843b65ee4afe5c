// Counts what a transfer moves, against the bounds it was given.

import { AcodeError } from '../../contract/errors.ts';
import type { TransferReport } from '../../contract/sandbox.ts';

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

  /** Counts bytes of a file that nobody said the size of. */
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
