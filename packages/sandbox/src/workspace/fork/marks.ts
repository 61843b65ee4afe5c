// Marks of the overlay file system in layers: opaque directories and whiteouts, read and made by an ordinary user. Node.js can
// neither read extended attributes nor make device files; GNU tar does both.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ByteReader, headerBlock, tarEnd, tarPadding } from '../archive/tar-read.ts';
import { bytes, fromText } from '../directory-look.ts';

/** What the kernel wrote about an entry of a layer. */
export interface Mark {
  /** Value of `user.overlay.opaque`: `y` hides what is below; `x` announces whiteouts that are marked files. */
  readonly opaque: string | null;
  /** Whether the entry has `user.overlay.whiteout`. */
  readonly isWhiteout: boolean;
}

/** How marks are read and made. */
export interface MarkOptions {
  /** Existing directory of acode’s own, on the file system of the layers. */
  readonly scratch: string;
  readonly signal: AbortSignal;
  /** Path of GNU tar; found in the system’s directories unless given. */
  readonly tar?: string;
}

/** Raised where acode cannot tell what a layer holds. Its message is the reason, without a period. */
export class UnreadableLayersError extends Error {
  override readonly name = 'UnreadableLayersError';
}

const PROGRAMS = ['/usr/bin/tar', '/bin/tar', '/usr/local/bin/tar', '/run/current-system/sw/bin/tar'];
const XATTRS = ['--xattrs', '--xattrs-include=user.overlay.*'];
// What a copy of a layer keeps: the kernel’s other notes are about the files that it was made of.
const COPIED = ['--xattrs', '--xattrs-include=user.overlay.opaque', '--xattrs-include=user.overlay.whiteout'];
const OPAQUE = 'SCHILY.xattr.user.overlay.opaque';
const WHITEOUT = 'SCHILY.xattr.user.overlay.whiteout';
const USTAR = 'ustar\x0000';
const BLOCK = 512;
const MAX_STDERR = 2000;
const MAX_RECORDS = 1024 ** 2;
const TIMEOUT_MS = 120_000;
const CONTROL = 'control';

/**
 * The marks of entries, by their paths (absolute byte strings). A directory with a known mark is read along with them: a program or
 * a file system without extended attributes must not look like a layer without marks.
 */
export async function readMarks(paths: readonly string[], options: MarkOptions): Promise<ReadonlyMap<string, Mark>> {
  if (paths.length === 0) return new Map();
  const scratch = mkdtempSync(join(options.scratch, 'marks-'));
  try {
    await makeMarks(scratch, [{ path: CONTROL, kind: 'opaque', mode: 0o700 }], options);
    const control = fromText(join(scratch, CONTROL));
    const { marks, stderr } = await marksOf([control, ...paths], options);
    if (marks.get(control)?.opaque !== 'y')
      throw new UnreadableLayersError(
        `GNU tar could not read a mark that it had written (${stderr.trim() || 'no error'})`,
      );
    marks.delete(control);
    const missing = paths.find(path => !marks.has(path) && lstatSync(bytes(path), { throwIfNoEntry: false }));
    if (missing !== undefined)
      throw new UnreadableLayersError(`GNU tar reported nothing of ${JSON.stringify(missing)} (${stderr.trim()})`);
    return marks;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

async function marksOf(
  paths: readonly string[],
  options: MarkOptions,
): Promise<{ marks: Map<string, Mark>; stderr: string }> {
  const argv = ['-c', '--format=pax', ...XATTRS, '--no-recursion', '-P', '--null', '-T', '-', '-f', '-'];
  const marks = new Map<string, Mark>();
  const { stderr } = await runTar(argv, lines(paths), options, async stdout => {
    const reader = new ByteReader(stdout);
    for (let next = await nextEntry(reader); next; next = await nextEntry(reader)) marks.set(next.name, next.mark);
    // What fills up the archive too: a stream with something left in it is never closed, and the program would be waited for.
    while ((await reader.some(BLOCK)) !== null);
  });
  return { marks, stderr };
}

function* lines(paths: readonly string[]): Generator<Buffer> {
  for (const path of paths) yield bytes(`${path}\0`);
}

interface MarkedEntry {
  readonly name: string;
  readonly mark: Mark;
}

// One entry of an archive that holds no content: the header, before it perhaps one with records.
async function nextEntry(reader: ByteReader): Promise<MarkedEntry | null> {
  let records: ReadonlyMap<string, string> = new Map();
  for (;;) {
    const block = await reader.exactly(BLOCK);
    if (block.length < BLOCK || block[0] === 0) return null;
    const header = block.toString('latin1');
    const size = Number.parseInt(header.slice(124, 135), 8);
    const content = await contentOf(reader, size);
    if (header[156] === 'x') records = recordsOf(content);
    else if (header[156] !== 'g') return entryOf(header, records);
  }
}

async function contentOf(reader: ByteReader, size: number): Promise<Buffer> {
  if (!(size <= MAX_RECORDS)) throw new UnreadableLayersError('GNU tar wrote a header that is too long');
  const whole = await reader.exactly(Math.ceil(size / BLOCK) * BLOCK);
  return whole.subarray(0, size);
}

function entryOf(header: string, records: ReadonlyMap<string, string>): MarkedEntry {
  const [name, prefix] = [field(header, 0, 100), field(header, 345, 155)];
  const full = records.get('path') ?? (prefix === '' ? name : `${prefix}/${name}`);
  return {
    name: full.length > 1 ? full.replace(/\/$/, '') : full,
    mark: { opaque: records.get(OPAQUE) ?? null, isWhiteout: records.has(WHITEOUT) },
  };
}

function field(header: string, at: number, length: number): string {
  const text = header.slice(at, at + length);
  const end = text.indexOf('\0');
  return end === -1 ? text : text.slice(0, end);
}

// `LENGTH key=value\n`, one after the other; a value may hold any byte.
function recordsOf(content: Buffer): ReadonlyMap<string, string> {
  const records = new Map<string, string>();
  for (let at = 0; at < content.length;) {
    const space = content.indexOf(0x20, at);
    const end = at + Number(content.toString('latin1', at, space));
    if (space === -1 || !(end > space)) throw new UnreadableLayersError('GNU tar wrote records that cannot be read');
    const text = content.toString('latin1', space + 1, end - 1);
    const equals = text.indexOf('=');
    records.set(text.slice(0, equals), text.slice(equals + 1));
    at = end;
  }
  return records;
}

/** One mark to make. */
export interface NewMark {
  /** Relative to the directory, a byte string. */
  readonly path: string;
  /** `opaque`: a directory, made where it is missing. `whiteout`: a device 0:0. `fifo`: a FIFO, which Node.js cannot make. */
  readonly kind: 'opaque' | 'whiteout' | 'fifo';
  /** Mode of the directory, or of the FIFO. */
  readonly mode: number;
}

/** Makes marks below a directory in which nothing else writes. */
export async function makeMarks(directory: string, marks: Iterable<NewMark>, options: MarkOptions): Promise<void> {
  const argv = ['-x', '-p', ...XATTRS, '--no-same-owner', '--no-recursion', '-C', directory, '-f', '-'];
  const { stderr, status } = await runTar(argv, archiveOf(marks), options, async stdout => {
    for await (const chunk of stdout) void chunk;
  });
  if (status !== 0 || stderr !== '')
    throw new UnreadableLayersError(
      `GNU tar could not make the marks of a layer (${stderr.trim() || `status ${status}`})`,
    );
}

/**
 * Copies a layer, marks and holes included, into an empty directory. Nothing may write the layer meanwhile, and the copy shares no file
 * with it.
 */
export async function copyLayer(from: string, to: string, options: MarkOptions): Promise<void> {
  const read = ['-c', '--format=pax', '--sparse', ...COPIED, '-C', from, '-f', '-', '.'];
  const write = ['-x', '-p', ...XATTRS, '--no-same-owner', '--delay-directory-restore', '-C', to, '-f', '-'];
  const results: TarResult[] = [];
  const found = await runTar(read, [], options, async stdout => {
    const made = await runTar(write, stdout, options, async output => {
      for await (const chunk of output) void chunk;
    });
    results.push(made);
  });
  for (const { stderr, status } of [found, ...results])
    if (status !== 0)
      throw new UnreadableLayersError(`GNU tar could not copy a layer (${stderr.trim() || `status ${status}`})`);
}

function* archiveOf(marks: Iterable<NewMark>): Generator<Buffer> {
  for (const { path, kind, mode } of marks) {
    const attribute = kind === 'opaque' ? paxRecord(OPAQUE, 'y') : '';
    const content = bytes(paxRecord('path', path) + attribute);
    const common = { name: Buffer.from('entry'), seconds: 0, magic: USTAR };
    yield headerBlock({ ...common, mode: 0o600, size: content.length, type: 'x' });
    yield content;
    yield tarPadding(content.length);
    const type = TYPES[kind];
    // Both numbers of a device are 0 where the header has none.
    yield headerBlock({ ...common, mode, size: 0, type });
  }
  yield tarEnd();
}

const TYPES: Readonly<Record<NewMark['kind'], string>> = { opaque: '5', whiteout: '3', fifo: '6' };

/** One record of an extended header: its own length, key and value. */
export function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length += 1;
  return `${length}${rest}`;
}

interface TarResult {
  readonly status: number;
  readonly stderr: string;
}

async function runTar(
  argv: readonly string[],
  input: Iterable<Buffer> | AsyncIterable<Buffer>,
  { signal, tar }: MarkOptions,
  read: (stdout: AsyncIterable<Buffer>) => Promise<void>,
): Promise<TarResult> {
  signal.throwIfAborted();
  const deadline = AbortSignal.timeout(TIMEOUT_MS);
  // In the plain locale, so that tar passes names on byte for byte.
  const child = spawn(tar ?? tarProgram(), argv, { env: { LC_ALL: 'C' }, cwd: '/', stdio: 'pipe' });
  // The streams too: a program that has ended already is not waited for either.
  const end = (): void => {
    child.kill('SIGKILL');
    child.stdout.destroy(new Error('it did not end in time'));
  };
  signal.addEventListener('abort', end, { once: true });
  deadline.addEventListener('abort', end, { once: true });
  try {
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => {
      if (stderr.length < MAX_STDERR) stderr += chunk.toString('utf8');
    });
    const closed = once(child, 'close');
    // A program that ends before it has read everything says so by its status.
    const written = pipeline(input, child.stdin).catch(() => undefined);
    await Promise.all([closed, written, read(child.stdout as AsyncIterable<Buffer>)]);
    signal.throwIfAborted();
    return { status: child.exitCode ?? 1, stderr };
  } catch (error) {
    end();
    signal.throwIfAborted();
    if (deadline.aborted) throw new UnreadableLayersError('GNU tar did not end in time');
    if (error instanceof UnreadableLayersError) throw error;
    throw new UnreadableLayersError(
      `GNU tar could not be run (${error instanceof Error ? error.message : String(error)})`,
    );
  } finally {
    signal.removeEventListener('abort', end);
    deadline.removeEventListener('abort', end);
  }
}

function tarProgram(): string {
  const found = PROGRAMS.find(isExecutable);
  if (found === undefined)
    throw new UnreadableLayersError(
      `GNU tar is needed to read the layers, and there is none at ${PROGRAMS.join(', ')}`,
    );
  return found;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
