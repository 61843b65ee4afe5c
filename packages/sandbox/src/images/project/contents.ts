// Files of a build context: read as exactly the versions that were found, and without hashing again what has not changed.

import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { Context, ContextEntry, FileVersion } from './context.ts';
import { Pauses } from '../../lifecycle/clock.ts';

const AT_ONCE = 16;
const CHUNK = 256 * 1024;
const MAX_MEMORY = 64 * 1024 ** 2;
// A file that has just changed may change again within the same tick of the clock that stamps it: its hash is not kept.
const SETTLED_MS = 2000;
// A FIFO that has taken a file’s place would be waited for without O_NONBLOCK, and a link be followed without O_NOFOLLOW.
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const LINE = /^([0-9.:]+) ([0-9a-f]{64})$/;

/** Where hashes are kept from one time to the next. */
export interface HashStore {
  readonly file: string;
  readonly uid: number;
}

/** The hash of each file’s content, by path. What is in the store and has not changed is not read. */
export async function hashContents(
  context: Context,
  store: HashStore,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const known = recall(store);
  const began = Date.now();
  const hashes = new Map<string, string>();
  const fresh: ContextEntry[] = [];
  for (const entry of context.entries) {
    if (entry.kind !== 'file') continue;
    const before = known.get(keyOf(entry.version));
    if (before === undefined) fresh.push(entry);
    else hashes.set(entry.path, before);
  }
  await hashFresh(context.root, fresh, hashes, signal);
  if (fresh.length > 0) await remember(store, context, hashes, began - SETTLED_MS);
  return hashes;
}

async function hashFresh(
  root: string,
  fresh: readonly ContextEntry[],
  hashes: Map<string, string>,
  signal: AbortSignal,
): Promise<void> {
  const waiting = fresh.values();
  // Small files are read in one go, so that other work would wait until the last of them.
  const pauses = new Pauses(signal);
  const work = async (): Promise<void> => {
    for (const entry of waiting) {
      signal.throwIfAborted();
      const hash = createHash('sha256');
      for await (const chunk of contentOf(root, entry)) hash.update(chunk);
      if (pauses.isDue) await pauses.take();
      hashes.set(entry.path, hash.digest('hex'));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** The bytes of a file, exactly as many as were found; another file, or another version of it, is an error. */
export async function* contentOf(root: string, entry: ContextEntry): AsyncGenerator<Buffer, void, undefined> {
  if (entry.size <= CHUNK) yield readSmall(root, entry);
  else yield* readLarge(root, entry);
}

// In one go: for most files of a project, waiting for each step of it would take many times longer than the steps.
function readSmall(root: string, entry: ContextEntry): Buffer {
  let file: number;
  try {
    file = openSync(join(root, entry.path), FLAGS);
  } catch (cause) {
    throw changed(entry.path, cause);
  }
  try {
    assertSame(fstatSync(file), entry);
    const buffer = Buffer.alloc(entry.size);
    for (let at = 0; at < entry.size;) {
      const count = readSync(file, buffer, at, entry.size - at, at);
      if (count === 0) throw changed(entry.path);
      at += count;
    }
    assertSame(fstatSync(file), entry);
    return buffer;
  } finally {
    closeSync(file);
  }
}

async function* readLarge(root: string, entry: ContextEntry): AsyncGenerator<Buffer, void, undefined> {
  const file = await opened(root, entry);
  try {
    let left = entry.size;
    while (left > 0) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(Math.min(CHUNK, left)), 0);
      if (bytesRead === 0) throw changed(entry.path);
      left -= bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
    assertSame(await file.stat(), entry);
  } finally {
    await file.close();
  }
}

async function opened(root: string, entry: ContextEntry): Promise<FileHandle> {
  const file = await open(join(root, entry.path), FLAGS).catch((cause: unknown) => {
    throw changed(entry.path, cause);
  });
  try {
    // A link in the middle of the path may lead to another file, which has another inode.
    assertSame(await file.stat(), entry);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

function assertSame({ dev, ino, size, mtimeMs, ctimeMs }: Stats, { path, version }: ContextEntry): void {
  const now = keyOf({ device: dev, inode: ino, size, modifiedMs: mtimeMs, changedMs: ctimeMs });
  if (now !== keyOf(version)) throw changed(path);
}

/** Forgets what is kept, so that everything is read anew. */
export async function forgetHashes({ file }: HashStore): Promise<void> {
  await rm(file, { force: true });
}

// What cannot be read, or was written by another user, is ignored.
function recall({ file, uid }: HashStore): ReadonlyMap<string, string> {
  const known = new Map<string, string>();
  const kept = readPrivateFile(file, { maxBytes: MAX_MEMORY, uid });
  for (const line of kept?.text.split('\n') ?? []) {
    const [, key, hash] = LINE.exec(line) ?? [];
    if (key !== undefined && hash !== undefined) known.set(key, hash);
  }
  return known;
}

async function remember(
  { file, uid }: HashStore,
  { entries }: Context,
  hashes: ReadonlyMap<string, string>,
  settledBefore: number,
): Promise<void> {
  const lines = entries.flatMap(({ path, version }) => {
    const hash = hashes.get(path);
    return hash === undefined || version.changedMs > settledBefore ? [] : [`${keyOf(version)} ${hash}\n`];
  });
  await ensurePrivateDirectory(dirname(file), uid);
  writePrivateFile(file, lines.join(''), { durable: false });
}

function keyOf({ device, inode, size, modifiedMs, changedMs }: FileVersion): string {
  return `${device}:${inode}:${size}:${modifiedMs}:${changedMs}`;
}

/** The error for a project that is written to while it is read. */
export function changed(path: string, cause?: unknown): AcodeError {
  return new AcodeError(
    'ACODE-IMG-002',
    {
      path,
      reason: 'it changed while it was read',
      remedy: 'Build again when nothing writes to the project.',
    },
    cause === undefined ? {} : { cause },
  );
}
