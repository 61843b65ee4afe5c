// Memory of directories between runs: what each held, so that one that has not changed is not listed again.

import { lstatSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import type { MaskWarning } from '../../contract/masks.ts';
import { readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import type { Repository } from './git-index.ts';

/** Where a search looks, and what git tracks. */
export interface Territory {
  /** Along an index, or everywhere within limits. */
  readonly mode: 'index' | 'walk';
  /** Directories with tracked files. */
  readonly directories: ReadonlySet<string>;
  /** Tracked files whose names a rule may fit. */
  readonly tracked: ReadonlySet<string>;
  readonly warnings: readonly MaskWarning[];
  /** The files it was made from, each with its stamp. */
  readonly indexes: readonly Stamp[];
  /** Device and inode of the git directory. */
  readonly repository: string | null;
}

/** A directory to list: as a whole, or only the files in it. */
export interface Place {
  readonly path: string;
  readonly depth: 'whole' | 'one-level';
}

/** A directory that was listed. */
export interface Row extends Place {
  readonly inode: number;
  /** Change time; NaN where it cannot be relied on. */
  readonly time: number;
  /** Names in it that a rule may fit. */
  readonly names: readonly string[];
  /** Directories in it. */
  readonly directories: readonly string[];
}

/** Change time that stands for a directory that is not there. */
export const ABSENT = -1;

const headerSchema = z.strictObject({
  key: z.string(),
  root: z.tuple([z.number(), z.number()]),
  mode: z.enum(['index', 'walk']),
  isTrusted: z.boolean(),
  isComplete: z.boolean(),
  repository: z.string().nullable(),
  indexes: z.array(z.tuple([z.string(), z.string()])),
  warnings: z.array(z.string()),
  rows: z.int().nonnegative(),
  /** Bytes of the blocks that follow the numbers. */
  blocks: z.tuple([z.int().nonnegative(), z.int().nonnegative(), z.int().nonnegative()]),
});

type Header = z.output<typeof headerSchema>;

const MAX_CACHE_BYTES = 256 * 1024 ** 2;
const MAX_HEADER = 1024 ** 2;

/**
 * Directories as they were at the last run. On disk: a line of JSON, then per directory its inode, its change time and its depth, then
 * three lists of names. Not JSON as a whole: 10⁵ directories would take longer to parse than to ask the kernel about.
 */
export class DirectoryCache {
  readonly paths: readonly string[];
  readonly inodes: Float64Array;
  readonly times: Float64Array;
  readonly #tracked: ReadonlySet<string>;
  readonly #depths: Uint8Array;
  readonly #candidates: readonly string[];
  // Made where it is asked for: most searches never do.
  #rows: ReadonlyMap<string, number> | null = null;
  readonly #header: Omit<Header, 'root' | 'rows' | 'blocks'>;

  private constructor(parts: {
    header: Omit<Header, 'root' | 'rows' | 'blocks'>;
    paths: readonly string[];
    inodes: Float64Array;
    times: Float64Array;
    depths: Uint8Array;
    candidates: readonly string[];
    tracked: ReadonlySet<string>;
  }) {
    this.#header = parts.header;
    this.paths = parts.paths;
    this.inodes = parts.inodes;
    this.times = parts.times;
    this.#depths = parts.depths;
    this.#candidates = parts.candidates;
    this.#tracked = parts.tracked;
  }

  static of(
    rows: readonly Row[],
    { mode, tracked, warnings, indexes, repository }: Territory,
    about: Pick<Header, 'key' | 'isTrusted' | 'isComplete'>,
  ): DirectoryCache {
    return new DirectoryCache({
      header: {
        ...about,
        mode,
        repository,
        indexes: indexes.map(([path, stamp]) => [path, stamp]),
        warnings: warnings.map(warning => JSON.stringify(warning)),
      },
      paths: rows.map(({ path }) => path),
      inodes: Float64Array.from(rows, ({ inode }) => inode),
      times: Float64Array.from(rows, ({ time }) => time),
      depths: Uint8Array.from(rows, ({ depth }) => (depth === 'whole' ? 1 : 0)),
      candidates: rows.flatMap(({ path, names }) => names.map(name => (path === '' ? name : `${path}/${name}`))),
      tracked,
    });
  }

  /** Null where there is none, or none for this workspace and these rules. */
  static read(file: string, key: string, root: Stats): DirectoryCache | null {
    const content = readPrivateFile(file, { maxBytes: MAX_CACHE_BYTES })?.bytes;
    const end = content?.subarray(0, MAX_HEADER).indexOf(0x0a) ?? -1;
    if (!content || end < 0) return null;
    const header = headerFrom(content.toString('utf8', 0, end));
    if (header?.key !== key || header.root[0] !== root.dev || header.root[1] !== root.ino) return null;
    return DirectoryCache.#from(header, content.subarray(end + 1));
  }

  static #from(header: Header, content: Buffer): DirectoryCache | null {
    const { rows, blocks } = header;
    if (rows * 17 + blocks[0] + blocks[1] + blocks[2] !== content.length) return null;
    let at = rows * 17;
    const [paths, candidates, tracked] = blocks.map(length => {
      at += length;
      return namesIn(content.subarray(at - length, at));
    });
    if (paths?.length !== rows || !candidates || !tracked) return null;
    return new DirectoryCache({
      header,
      paths,
      inodes: numbersIn(content.subarray(0, rows * 8)),
      times: numbersIn(content.subarray(rows * 8, rows * 16)),
      depths: new Uint8Array(content.subarray(rows * 16, rows * 17)),
      candidates,
      tracked: new Set(tracked),
    });
  }

  /** Writes it for the next run, unless the disk is full: that makes the next search slower, and this one no less right. */
  write(file: string, { dev, ino }: Stats): void {
    const blocks = [bytesOf(this.paths), bytesOf(this.#candidates), bytesOf(this.#tracked)] as const;
    const header: Header = {
      ...this.#header,
      root: [dev, ino],
      rows: this.paths.length,
      blocks: [blocks[0].length, blocks[1].length, blocks[2].length],
    };
    const numbers = [this.inodes, this.times].map(list => Buffer.from(list.buffer, list.byteOffset, list.byteLength));
    const content = Buffer.concat([Buffer.from(`${JSON.stringify(header)}\n`), ...numbers, this.#depths, ...blocks]);
    try {
      // Lost, it is made again.
      writePrivateFile(file, content, { durable: false });
    } catch {
      return;
    }
  }

  get mode(): Territory['mode'] {
    return this.#header.mode;
  }

  get isTrusted(): boolean {
    return this.#header.isTrusted;
  }

  get isComplete(): boolean {
    return this.#header.isComplete;
  }

  /** Whether git tracks a file, or files in a directory. */
  tracks(path: string, kind: 'file' | 'directory'): boolean {
    if (kind === 'file') return this.#tracked.has(path);
    if (this.mode !== 'index') return false;
    this.#rows ??= new Map(this.paths.map((one, row) => [one, row]));
    return this.#depths[this.#rows.get(path) ?? -1] === 1;
  }

  /** Paths whose names a rule may fit. */
  candidates(): readonly string[] {
    return this.#candidates;
  }

  /** Whether what git tracks is what it was. */
  hasSameIndexes(repository: Repository | null, nowMs: number): boolean {
    const { indexes } = this.#header;
    if (this.#header.repository !== (repository?.identity ?? null)) return false;
    return indexes.every(([path, stamp]) => stamp !== '' && stampOf(path, nowMs)[1] === stamp);
  }

  /** What the survey of repositories found out. */
  warnings(): MaskWarning[] {
    return this.#header.warnings.flatMap((text): MaskWarning[] => {
      const parsed = warningSchema.safeParse(JSON.parse(text));
      return parsed.success ? [parsed.data] : [];
    });
  }

  /** Where the last search looked. */
  territory(): Territory {
    const { mode, indexes, repository } = this.#header;
    const directories = new Set(this.paths.filter((_, row) => this.#depths[row] === 1));
    return { mode, directories, tracked: this.#tracked, warnings: this.warnings(), indexes, repository };
  }

  /** The rows that can be used again, each with the directories and names in it. */
  rowsExcept(stale: ReadonlySet<number>): Map<string, Row> {
    const below = grouped(this.paths.filter(path => path !== ''));
    const names = grouped(this.#candidates);
    const known = new Map<string, Row>();
    for (const [row, path] of this.paths.entries()) {
      if (stale.has(row)) continue;
      known.set(path, {
        path,
        depth: this.#depths[row] === 1 ? 'whole' : 'one-level',
        inode: this.inodes[row] ?? 0,
        time: this.times[row] ?? Number.NaN,
        names: names.get(path) ?? [],
        directories: below.get(path) ?? [],
      });
    }
    return known;
  }
}

const warningSchema = z.strictObject({
  kind: z.literal('tracking-unknown'),
  because: z.enum(['index', 'writable', 'new-repository']),
});

function headerFrom(text: string): Header | null {
  try {
    return headerSchema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

function numbersIn(content: Buffer): Float64Array {
  const numbers = new Float64Array(content.length / 8);
  Buffer.from(numbers.buffer).set(content);
  return numbers;
}

function namesIn(content: Buffer): string[] {
  return content.length === 0 ? [] : content.toString('latin1', 0, content.length - 1).split('\0');
}

function bytesOf(names: Iterable<string>): Buffer {
  let text = '';
  for (const name of names) text += `${name}\0`;
  return Buffer.from(text, 'latin1');
}

// Last names by the directory they are in.
function grouped(paths: readonly string[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const path of paths) {
    const directory = directoryOf(path);
    const group = groups.get(directory);
    if (group) group.push(lastName(path));
    else groups.set(directory, [lastName(path)]);
  }
  return groups;
}

/** The index of a repository. */
export function indexOf({ gitdir }: Repository): string {
  return join(gitdir, 'index');
}

/** A file, and a text that is another after every change; empty where it changed a moment ago. */
export type Stamp = readonly [file: string, stamp: string];

/** The stamp of a file. */
export function stampOf(file: string, nowMs: number): Stamp {
  try {
    const found = lstatSync(file, { throwIfNoEntry: false });
    if (!found) return [file, 'absent'];
    const { dev, ino, size, ctimeMs } = found;
    return [file, ctimeMs + 1000 > nowMs ? '' : `${dev} ${ino} ${size} ${ctimeMs}`];
  } catch {
    return [file, ''];
  }
}

/** The last name of a path. */
export function lastName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** The directory of a path; the top is the empty text. */
export function directoryOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}
