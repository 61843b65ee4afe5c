// The files of a sandbox, in the shape of `node:fs/promises`: every path is handled by a program inside and never by this host, which a
// link inside could lead to its own files.

import { constants } from 'node:fs';
import type { Readable } from 'node:stream';
import type { Clock } from '../../contract/ports.ts';
import type {
  ContentOptions,
  DirectoryEntry,
  DirectoryOptions,
  FileCall,
  FileChange,
  FileStats,
  Files,
  ReadingOptions,
  StreamOptions,
  TransferOptions,
  TransferReport,
  WritingOptions,
} from '../../contract/sandbox.ts';
import type { Inside } from '../../isolation/backend.ts';
import { systemClock, Pauses } from '../../lifecycle/clock.ts';
import { Arrival, riskyArrivals } from './arrival.ts';
import { checkedMode, modeWords, octal, readWhole, refused, streamOf, write } from './content.ts';
import type { ListingBounds } from './content.ts';
import { download } from './download.ts';
import { codeIn, codeOf, fileError, rangeError } from './errno.ts';
import {
  CALL,
  bounding,
  directoryMode,
  encoded,
  fileMode,
  flagged,
  optionsOf,
  readFlag,
  withEncoding,
  withMode,
  writeFlag,
} from './options.ts';
import { Programs, assertPath, endsInDots, leadsBelow, parentOf, placeOf, prefixOf } from './programs.ts';
import type { Place, Task } from './programs.ts';
import * as scripts from './scripts.ts';
import { ENTRIES, NAMES } from './scripts.ts';
import { NamesReader, WalkReader, asText, entryOf, readStats } from './listing.ts';
import { upload } from './upload.ts';
import { changesBelow } from './watching.ts';

const READING = { ...CALL, encoding: encoded, flag: readFlag };
const STREAMING = { ...CALL, encoding: encoded, flags: readFlag };
const WRITING = { ...CALL, encoding: encoded, flag: writeFlag, mode: fileMode };
const LISTING = { ...CALL, withFileTypes: flagged, recursive: flagged, maxBytes: bounding };
const MAKING = { ...CALL, recursive: flagged, mode: directoryMode };
const REMOVING = { ...CALL, recursive: flagged, force: flagged };
const WATCHING = { ...CALL, recursive: flagged };
const MOVING = { ...CALL, maxBytes: bounding, maxEntries: bounding };
const MAX_ACCESS = constants.R_OK | constants.W_OK | constants.X_OK;

/** What is known of the sandbox whose files they are. */
export interface FilesContext {
  /** Where a relative path begins. */
  readonly workdir: string;
  readonly clock?: Clock;
}

/**
 * The files of a sandbox.
 *
 * @param inside where programs run in it
 */
export function filesOf(inside: Inside, { workdir, clock = systemClock }: FilesContext): Files {
  return new SandboxFiles(new Programs(inside, clock), workdir, clock);
}

// Links are never removed, copied over or written through by accident: each call has a script of its own that says what is meant.
class SandboxFiles implements Files {
  readonly #programs: Programs;
  readonly #workdir: string;
  readonly #clock: Clock;

  constructor(programs: Programs, workdir: string, clock: Clock) {
    this.#programs = programs;
    this.#workdir = workdir;
    this.#clock = clock;
  }

  readFile(path: string, options: BufferEncoding | (ContentOptions & { encoding: BufferEncoding })): Promise<string>;
  readFile(path: string, options?: (ContentOptions & { encoding?: null }) | null): Promise<Buffer>;
  async readFile(path: string, options?: BufferEncoding | ContentOptions | null): Promise<string | Buffer> {
    const { encoding, ...call } = optionsOf(withEncoding(options), READING);
    const content = await readWhole(this.#programs, this.#place(path, 'open'), call);
    return encoding ? content.toString(encoding) : content;
  }

  async writeFile(
    path: string,
    data: string | Uint8Array | Readable,
    options?: BufferEncoding | WritingOptions | null,
  ): Promise<void> {
    const how = { flag: 'w' as const, ...optionsOf(withEncoding(options), WRITING), operation: 'writeFile' };
    return write(this.#programs, this.#place(path, 'open'), data, how);
  }

  async appendFile(
    path: string,
    data: string | Uint8Array,
    options?: BufferEncoding | WritingOptions | null,
  ): Promise<void> {
    const how = { flag: 'a' as const, ...optionsOf(withEncoding(options), WRITING), operation: 'appendFile' };
    return write(this.#programs, this.#place(path, 'open'), data, how);
  }

  createReadStream(path: string, options?: BufferEncoding | StreamOptions): Readable {
    assertPath(path, 'path');
    const how = optionsOf(withEncoding(options), STREAMING);
    return streamOf(this.#programs, () => this.#place(path, 'open'), how);
  }

  readdir(path: string, options?: { withFileTypes?: false } & ReadingOptions): Promise<string[]>;
  readdir(path: string, options: { withFileTypes: true } & ReadingOptions): Promise<DirectoryEntry[]>;
  async readdir(
    path: string,
    options?: { withFileTypes?: boolean } & ReadingOptions,
  ): Promise<string[] | DirectoryEntry[]> {
    const { withFileTypes = false, ...reading } = optionsOf(options, LISTING);
    const place = this.#place(path, 'scandir');
    return withFileTypes ? readEntries(this.#programs, place, reading) : readNames(this.#programs, place, reading);
  }

  async mkdir(path: string, options?: number | DirectoryOptions | null): Promise<void> {
    const { recursive = false, mode, signal } = optionsOf(withMode(options), MAKING);
    const script = recursive ? scripts.MKDIR_PARENTS : scripts.MKDIR;
    const [masked] = modeWords(mode);
    await this.#do('mkdir', script, this.#place(path, 'mkdir'), [masked], { signal });
  }

  async rm(path: string, options?: { recursive?: boolean; force?: boolean } & FileCall): Promise<void> {
    const { recursive = false, force = false, signal } = optionsOf(options, REMOVING);
    const task: Partial<Task> = { operation: 'rm', signal };
    try {
      await this.#do('unlink', scripts.REMOVE, this.#place(path, 'lstat'), [recursive ? 'yes' : ''], task);
    } catch (error) {
      if (!force || codeOf(error) !== 'ENOENT') throw error;
    }
  }

  async rmdir(path: string, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    await this.#do('rmdir', scripts.RMDIR, this.#place(path, 'rmdir'), [], { signal });
  }

  async unlink(path: string, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    await this.#do('unlink', scripts.UNLINK, this.#place(path, 'unlink'), [], { signal });
  }

  async rename(from: string, to: string, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    const [here, there] = this.#pair(from, to, 'rename', ['oldPath', 'newPath']);
    const dots = endsInDots(here.inside) || endsInDots(there.inside) ? 'yes' : '';
    const words = [there.inside, parentOf(here.inside), parentOf(there.inside), dots];
    await this.#do('rename', scripts.RENAME, here, words, { signal, attempt: attemptOf('rename', here, there) });
  }

  async copyFile(from: string, to: string, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    const [here, there] = this.#pair(from, to, 'copyfile', ['src', 'dest']);
    const attempt = attemptOf('copyfile', here, there);
    await this.#do('copyfile', scripts.COPY, here, [there.inside], { signal, attempt, operation: 'copyFile' });
  }

  async stat(path: string, options?: FileCall): Promise<FileStats> {
    return this.#stats('stat', scripts.STAT, path, optionsOf(options, CALL).signal);
  }

  async lstat(path: string, options?: FileCall): Promise<FileStats> {
    return this.#stats('lstat', scripts.LSTAT, path, optionsOf(options, CALL).signal);
  }

  async access(path: string, mode: number = constants.F_OK, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    if (checkedMode(mode) > MAX_ACCESS) throw rangeError('mode', `>= 0 && <= ${MAX_ACCESS}`, mode);
    const tests = [
      ...(mode & constants.R_OK ? ['-r'] : []),
      ...(mode & constants.W_OK ? ['-w'] : []),
      ...(mode & constants.X_OK ? ['-x'] : []),
    ];
    await this.#do('access', scripts.ACCESS, this.#place(path, 'access'), tests, { signal });
  }

  async chmod(path: string, mode: number, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    // With fewer digits, GNU’s chmod would leave some bits of a directory as they were.
    const digits = octal(checkedMode(mode) & 0o7777).padStart(5, '0');
    await this.#do('chmod', scripts.CHMOD, this.#place(path, 'chmod'), [digits], { signal });
  }

  async readlink(path: string, options?: FileCall): Promise<string> {
    const { signal } = optionsOf(options, CALL);
    return (await this.#do('readlink', scripts.READLINK, this.#place(path, 'readlink'), [], { signal })).toString();
  }

  async symlink(target: string, path: string, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    const [, there] = this.#pair(target, path, 'symlink', ['target', 'path']);
    const attempt = { syscall: 'symlink', path: target, dest: path };
    const task: Task = {
      script: scripts.SYMLINK,
      words: [target, there.inside],
      operation: 'symlink',
      attempt,
      signal,
    };
    await this.#programs.run(task);
  }

  async truncate(path: string, length = 0, options?: FileCall): Promise<void> {
    const { signal } = optionsOf(options, CALL);
    if (!Number.isSafeInteger(length)) throw rangeError('len', 'an integer', length);
    const words = [String(Math.max(0, length))];
    await this.#do('open', scripts.TRUNCATE, this.#place(path, 'open'), words, { signal, operation: 'truncate' });
  }

  async realpath(path: string, options?: FileCall): Promise<string> {
    const { signal } = optionsOf(options, CALL);
    return (await this.#do('realpath', scripts.REALPATH, this.#place(path, 'realpath'), [], { signal })).toString();
  }

  watch(path: string, options?: { recursive?: boolean } & FileCall): AsyncIterable<FileChange> {
    const how = optionsOf(options, WATCHING);
    return changesBelow(this.#programs, this.#clock, this.#place(path, 'watch'), how);
  }

  async upload(hostPath: string, path: string, options?: TransferOptions): Promise<TransferReport> {
    assertPath(hostPath, 'hostPath');
    return upload(this.#programs, hostPath, this.#place(path, 'open'), optionsOf(options, MOVING));
  }

  async download(path: string, hostPath: string, options?: TransferOptions): Promise<TransferReport> {
    assertPath(hostPath, 'hostPath');
    const how = optionsOf(options, MOVING);
    const sinceMs = Date.now();
    const report = await download(this.#programs, this.#place(path, 'open'), kind => Arrival.at(hostPath, kind), how);
    const riskyChanges = await riskyArrivals(hostPath, sinceMs);
    return riskyChanges.length === 0 ? report : { ...report, riskyChanges };
  }

  #place(path: string, syscall: string): Place {
    return placeOf(path, this.#workdir, { syscall });
  }

  #pair(from: string, to: string, syscall: string, names: readonly [string, string]): [Place, Place] {
    assertPath(from, names[0]);
    assertPath(to, names[1]);
    try {
      return [this.#place(from, syscall), this.#place(to, syscall)];
    } catch (error) {
      // Whichever of the two it is, node names both.
      throw fileError(codeOf(error), { syscall, path: from, dest: to });
    }
  }

  async #stats(
    call: 'stat' | 'lstat',
    script: scripts.Script,
    path: string,
    signal: AbortSignal | undefined,
  ): Promise<FileStats> {
    const stats = readStats((await this.#do(call, script, this.#place(path, call), [], { signal })).toString('latin1'));
    if (!stats) throw fileError('EIO', { syscall: call, path });
    return stats;
  }

  async #do(
    syscall: string,
    script: scripts.Script,
    place: Place,
    words: readonly string[],
    task: Partial<Task>,
  ): Promise<Buffer> {
    return this.#programs.run({
      script,
      words: [place.inside, ...words],
      operation: syscall,
      attempt: { syscall, path: place.written },
      ...task,
    });
  }
}

function attemptOf(syscall: string, from: Place, to: Place): Task['attempt'] {
  return { syscall, path: from.written, dest: to.written };
}

// More is nothing that one call should answer, nor that one process should hold.
const MAX_BYTES = 256 * 1024 ** 2;
const MAX_ENTRIES = 2_000_000;
const WITHIN_MS = 300_000;

/** How a directory is read. */
export interface Reading extends FileCall {
  readonly recursive?: boolean;
  readonly maxBytes?: number;
}

/** The names in a directory, or the ways from it to everything below it. */
async function readNames(programs: Programs, place: Place, options: Reading): Promise<string[]> {
  const reader = new NamesReader(boundsOf(place, options), waysBelow(place, options));
  await programs.read(taskFor(place, options, 'names'), WITHIN_MS, chunk => reader.push(chunk));
  return sortedBy(reader.finish(), way => way, new Pauses(null));
}

/** The same, with what each is. */
async function readEntries(programs: Programs, place: Place, options: Reading): Promise<DirectoryEntry[]> {
  const found: Found[] = [];
  const wayOf = waysBelow(place, options);
  const reader = new WalkReader(boundsOf(place, options), ({ name, facts }) =>
    found.push({ way: wayOf(asText(name)), mode: facts?.mode ?? null }),
  );
  const { stderr } = await programs.read(taskFor(place, options, 'entries'), WITHIN_MS, async chunk => {
    await reader.push(chunk);
  });
  assertFinished(stderr, place);
  reader.finish();
  return described(found, place);
}

interface Found {
  readonly way: string;
  readonly mode: number | null;
}

function boundsOf({ written }: Place, { maxBytes = MAX_BYTES }: Reading): ListingBounds {
  return { path: written, maxBytes, maxEntries: MAX_ENTRIES };
}

function taskFor(place: Place, { recursive = false, signal }: Reading, kind: 'names' | 'entries'): Task {
  return {
    script: kind === 'names' ? NAMES : ENTRIES,
    words: [place.inside, prefixOf(place.inside), recursive ? '' : '1'],
    operation: 'readdir',
    attempt: { syscall: 'scandir', path: place.written },
    signal,
  };
}

// An entry that disappears during the walk is not an error; one that may not be read is.
function assertFinished(stderr: string, place: Place): void {
  if (!/^acode-unfinished$/m.test(stderr)) return;
  const code = codeIn(stderr);
  if (code !== 'ENOENT') throw fileError(code ?? 'EIO', { syscall: 'scandir', path: place.written });
}

// Callers put the names they get behind paths of their own: no name leads elsewhere.
function waysBelow({ inside, written }: Place, { recursive = false }: Reading): (name: string) => string {
  // As it reads when it was bytes meanwhile.
  const prefix = Buffer.from(prefixOf(inside)).toString();
  return name => {
    const way = name.slice(prefix.length);
    if (!name.startsWith(prefix) || !leadsBelow(way) || (!recursive && way.includes('/')))
      throw refused(written, name === '' ? 'a name in it is empty' : 'a name in it lies elsewhere');
    return way;
  };
}

async function described(found: readonly Found[], place: Place): Promise<DirectoryEntry[]> {
  const pauses = new Pauses(null);
  const prefix = prefixOf(place.written);
  const entries: DirectoryEntry[] = [];
  for (const { way, mode } of await sortedBy(found, entry => entry.way, pauses)) {
    const slash = way.lastIndexOf('/');
    const parent = slash === -1 ? place.written : `${prefix}${way.slice(0, slash)}`;
    entries.push(entryOf(way.slice(slash + 1), parent, mode));
    if (pauses.isDue) await pauses.take();
  }
  return entries;
}

// A few milliseconds of work, wherever it is done in one go.
const RUN = 4096;

/** The items in the order of their keys, with pauses. Equal ones stay as they were. */
export async function sortedBy<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  pauses: Pauses,
): Promise<Item[]> {
  let runs: Item[][] = [];
  for (let at = 0; at < items.length; at += RUN) {
    runs.push(items.slice(at, at + RUN).sort((one, other) => order(keyOf(one), keyOf(other))));
    if (pauses.isDue) await pauses.take();
  }
  while (runs.length > 1) {
    const longer: Item[][] = [];
    for (let at = 0; at < runs.length; at += 2)
      longer.push(await merged(runs[at] ?? [], runs[at + 1] ?? [], keyOf, pauses));
    runs = longer;
  }
  return runs[0] ?? [];
}

async function merged<Item>(
  ones: readonly Item[],
  others: readonly Item[],
  keyOf: (item: Item) => string,
  pauses: Pauses,
): Promise<Item[]> {
  // What comes in order, or in the opposite one, as many file systems give it, is put together as it is.
  if (isBefore(ones, others, keyOf)) return ones.concat(others);
  if (isBefore(others, ones, keyOf)) return others.concat(ones);
  const all: Item[] = [];
  let [here, there] = [0, 0];
  let [one, other] = [ones[0], others[0]];
  while (one !== undefined && other !== undefined) {
    if (order(keyOf(one), keyOf(other)) <= 0) {
      all.push(one);
      one = ones[++here];
    } else {
      all.push(other);
      other = others[++there];
    }
    if (all.length % RUN === 0 && pauses.isDue) await pauses.take();
  }
  // One of the two has nothing left.
  return all.concat(ones.slice(here), others.slice(there));
}

// Strictly, so that equal ones stay as they were.
function isBefore<Item>(ones: readonly Item[], others: readonly Item[], keyOf: (item: Item) => string): boolean {
  const [last, first] = [ones.at(-1), others[0]];
  return last === undefined || first === undefined || order(keyOf(last), keyOf(first)) < 0;
}

function order(one: string, other: string): number {
  return one < other ? -1 : Number(one > other);
}
