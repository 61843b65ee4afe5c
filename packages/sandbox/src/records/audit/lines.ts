// Reads the audit log line by line, in parts of bounded size, and without waiting for its writer.

import { constants } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import { codeOf, reasonOf } from '../../contract/system-error.ts';
import { fileName, fileNames, firstOf } from './files.ts';

const NEWLINE = 0x0a;
// Holds many records, and is larger than the longest one.
const PART = 256 * 1024;

/** Consecutive lines. Their buffers are valid until the next part is read. */
export interface Part {
  readonly path: string;
  /** The sequence number of the file’s first record, according to the file name. */
  readonly first: number;
  /** The line number of the first of these lines in the file, from 1. */
  readonly line: number;
  readonly lines: readonly Buffer[];
}

/**
 * Reads one file of the log from its beginning to its current end, and continues from there when the file has grown.
 */
export class LineReader implements AsyncDisposable {
  readonly path: string;
  readonly first: number;
  readonly #handle: FileHandle;
  readonly #buffer = Buffer.allocUnsafe(PART);
  #offset = 0;
  #line = 1;
  #rest = 0;

  private constructor(path: string, first: number, handle: FileHandle) {
    this.path = path;
    this.first = first;
    this.#handle = handle;
  }

  /** Opens a file by its name. Refuses anything but a regular file: reading a FIFO would never end. */
  static async open(directory: string, name: string): Promise<LineReader> {
    const path = join(directory, name);
    const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
      (error: unknown) => {
        throw new AcodeError('ACODE-AUD-004', { file: path, reason: reasonOf(error) }, { cause: error });
      },
    );
    if ((await handle.stat()).isFile()) return new LineReader(path, firstOf(name) ?? 0, handle);
    await handle.close();
    throw new AcodeError('ACODE-AUD-004', { file: path, reason: 'it is not an ordinary file' });
  }

  /** The number of the next line, from 1. */
  get line(): number {
    return this.#line;
  }

  /** Bytes after the last newline: a line that is being written, or that was incomplete when its writer died. */
  get rest(): number {
    return this.#rest;
  }

  /** Whether the next line is longer than any record. */
  get overlong(): boolean {
    return this.#rest === PART;
  }

  /** Reads the next lines; null at the current end of the file. */
  async next(): Promise<Part | null> {
    const { bytesRead } = await this.#handle.read(this.#buffer, 0, PART, this.#offset);
    const bytes = this.#buffer.subarray(0, bytesRead);
    const end = bytes.lastIndexOf(NEWLINE) + 1;
    this.#rest = end === 0 ? bytesRead : 0;
    if (end === 0) return null;
    const lines = split(bytes.subarray(0, end));
    const part = { path: this.path, first: this.first, line: this.#line, lines };
    // An incomplete line is read again: its writer may truncate it and write another.
    this.#offset += end;
    this.#line += lines.length;
    return part;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}

/** The names of the log files, oldest first; empty if there is no log. */
export async function listFiles(directory: string): Promise<string[]> {
  try {
    return fileNames(await readdir(directory));
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return [];
    throw new AcodeError('ACODE-AUD-004', { file: directory, reason: reasonOf(error) }, { cause: error });
  }
}

/** The files that contain a given record and all later ones. */
export function filesFrom(names: readonly string[], seq: number): string[] {
  const before = names.filter(name => name <= fileName(seq));
  return names.slice(Math.max(0, before.length - 1));
}

/** Reads every line of the files, in parts. */
export async function* partsOf(
  directory: string,
  names: readonly string[],
  signal?: AbortSignal,
): AsyncGenerator<Part, void, undefined> {
  for (const name of names) {
    await using reader = await LineReader.open(directory, name);
    for (;;) {
      signal?.throwIfAborted();
      const part = await reader.next();
      if (part === null) break;
      yield part;
    }
  }
}

function split(bytes: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = bytes.indexOf(NEWLINE, at);
    lines.push(bytes.subarray(at, end));
    at = end + 1;
  }
  return lines;
}
