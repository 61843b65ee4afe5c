// Brings files of the host in: a tree as an archive made while it is sent, without following a link of it anywhere.

import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, read, readSync } from 'node:fs';
import type { Dirent, Stats } from 'node:fs';
import { promisify } from 'node:util';
import { AcodeError } from '../../contract/errors.ts';
import type { TransferOptions, TransferReport } from '../../contract/sandbox.ts';
import { WRITING, modeWords, send } from './content.ts';
import { codeOf, fileError } from './errno.ts';
import { HostDirectory } from './arrival.ts';
import { asText } from './listing.ts';
import { PLACE_FILE, REMOVE_PART, UNPACK, parentOf, prefixOf } from './programs.ts';
import type { Place, Programs, Task } from './programs.ts';
import { gathered, tarEnd, tarHeader, tarPadding } from '../../workspace/archive/tar-read.ts';
import { Tally } from './options.ts';

const PORTION = 256 * 1024;
const PERMISSIONS = 0o777;
const CLEARING_MS = 10_000;
const readAt = promisify(read);

/** Brings a file or a tree in. */
export async function upload(
  programs: Programs,
  hostPath: string,
  place: Place,
  options: TransferOptions,
): Promise<TransferReport> {
  const tally = new Tally(hostPath, { maxBytes: Infinity, maxEntries: Infinity, ...options });
  // The caller’s own name may lead through links; what it names may be none.
  const top = openSync(hostPath, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stats = fstatSync(top);
    if (stats.isDirectory()) {
      using directory = HostDirectory.open(hostPath);
      if (!isSame(stats, directory)) throw changed(hostPath);
      await send(programs, treeTask(place, options.signal), gathered(tree(directory, '', tally), PORTION));
    } else if (stats.isFile()) {
      tally.file(stats.size);
      const content = gathered(contentOf({ file: top, size: stats.size, path: hostPath }), PORTION);
      const part = partBeside(place);
      await send(programs, fileTask(place, part, stats, options.signal), content, () => removePart(programs, part));
    } else throw fileError('EINVAL', { syscall: 'open', path: hostPath });
  } finally {
    closeSync(top);
  }
  return tally.report();
}

function isSame(stats: Stats, directory: HostDirectory): boolean {
  const opened = directory.openFile('.', constants.O_RDONLY);
  try {
    const now = fstatSync(opened);
    return now.ino === stats.ino && now.dev === stats.dev;
  } finally {
    closeSync(opened);
  }
}

function treeTask({ written, inside }: Place, signal: AbortSignal | undefined): Task {
  const attempt = { syscall: 'open', path: written };
  return { script: UNPACK, words: [inside], operation: 'upload', attempt, signal };
}

function fileTask(
  { written, inside }: Place,
  part: string,
  { mode, size }: Stats,
  signal: AbortSignal | undefined,
): Task {
  const attempt = { syscall: 'open', path: written };
  const words = [inside, parentOf(inside), ...modeWords(mode), part, String(size)];
  return { script: PLACE_FILE, words, operation: 'upload', attempt, unless: WRITING, signal };
}

function partBeside({ inside }: Place): string {
  return `${prefixOf(parentOf(inside))}.acode-${randomBytes(8).toString('hex')}.part`;
}

// The program removes it itself, unless it was killed first. The failure is already reported.
async function removePart(programs: Programs, part: string): Promise<void> {
  const task: Task = {
    script: REMOVE_PART,
    words: [part],
    operation: 'upload',
    attempt: { syscall: 'unlink', path: part },
  };
  await programs.run(task, { withinMs: CLEARING_MS }).catch(() => undefined);
}

async function* tree(directory: HostDirectory, way: string, tally: Tally): AsyncGenerator<Buffer, void, undefined> {
  yield* branch(directory, way, tally);
  yield tarEnd();
}

async function* branch(directory: HostDirectory, way: string, tally: Tally): AsyncGenerator<Buffer, void, undefined> {
  for (const entry of directory.list()) {
    const name = entry.name.toString('latin1');
    const path = way === '' ? name : `${way}/${name}`;
    if (entry.isDirectory()) yield* subdirectory(directory, name, path, tally);
    else if (entry.isFile()) yield* fileEntry(directory, name, path, tally);
    else tally.skip(asText(path), reasonFor(entry));
  }
}

function reasonFor(entry: Dirent<Buffer>): string {
  return entry.isSymbolicLink() ? 'it is a symbolic link' : 'it is neither a file nor a directory';
}

async function* subdirectory(
  parent: HostDirectory,
  name: string,
  path: string,
  tally: Tally,
): AsyncGenerator<Buffer, void, undefined> {
  using directory = attempted(parent, name, path, tally, () => parent.enter(name));
  if (!directory) return;
  tally.directory();
  const descriptor = directory.openFile('.', constants.O_RDONLY);
  const { mode, mtimeMs } = fstatSync(descriptor);
  closeSync(descriptor);
  // The program that unpacks it writes into it.
  yield tarHeader({ name: path, kind: 'directory', mode: (mode & PERMISSIONS) | 0o700, size: 0, modifiedMs: mtimeMs });
  yield* branch(directory, path, tally);
}

async function* fileEntry(
  parent: HostDirectory,
  name: string,
  path: string,
  tally: Tally,
): AsyncGenerator<Buffer, void, undefined> {
  const opened = attempted(parent, name, path, tally, () => parent.openFile(name, constants.O_RDONLY));
  if (opened === null) return;
  try {
    const stats = fstatSync(opened);
    if (!stats.isFile()) {
      tally.skip(asText(path), 'it is neither a file nor a directory');
      return;
    }
    const { size, mode, mtimeMs } = stats;
    tally.file(size);
    yield tarHeader({ name: path, kind: 'file', mode: mode & PERMISSIONS, size, modifiedMs: mtimeMs });
    yield* contentOf({ file: opened, size, path: parent.nameOf(name) });
    yield tarPadding(size);
  } finally {
    closeSync(opened);
  }
}

// Between being listed and being opened, anything may have taken its place.
function attempted<Value>(
  parent: HostDirectory,
  name: string,
  path: string,
  tally: Tally,
  open: () => Value,
): Value | null {
  try {
    return open();
  } catch (error) {
    const code = codeOf(error);
    if (code !== 'ENOENT' && code !== 'ELOOP' && code !== 'ENOTDIR')
      throw fileError(code, { syscall: 'open', path: parent.nameOf(name) }, error);
    tally.skip(asText(path), 'it was replaced while it was read');
    return null;
  }
}

interface Content {
  readonly file: number;
  readonly size: number;
  readonly path: string;
}

// Exactly as many bytes as were announced. A small file is read in one go: waiting for each would take longer than reading it.
async function* contentOf({ file: descriptor, size, path }: Content): AsyncGenerator<Buffer, void, undefined> {
  for (let at = 0; at < size;) {
    const buffer = Buffer.allocUnsafe(Math.min(PORTION, size - at));
    const bytesRead =
      size <= PORTION
        ? readSync(descriptor, buffer, 0, buffer.length, at)
        : (await readAt(descriptor, buffer, 0, buffer.length, at)).bytesRead;
    if (bytesRead === 0) throw changed(path);
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

function changed(path: string): AcodeError {
  return new AcodeError('ACODE-FIL-004', { path });
}
