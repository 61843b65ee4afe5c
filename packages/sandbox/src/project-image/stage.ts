// A copy of a project to install its dependencies in: the sandbox that does it writes there, and never in the project.

import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, lstat, mkdir, mkdtemp, open, readdir, realpath, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { changed, contentOf } from './contents.ts';
import type { Context, ContextEntry } from './context.ts';

// Made for what is large and may live longer than memory: many systems have the other one in memory.
const LARGE_TEMPORARY = '/var/tmp';
const PREFIX = 'acode-project-';
const FORGOTTEN_MS = 48 * 3600 * 1000;

/** A copy of a context that is removed when it is disposed of. */
export class Stage implements AsyncDisposable {
  readonly root: string;

  private constructor(root: string) {
    this.root = root;
  }

  /** Copies the files of a context to a directory of its own. */
  static async of(context: Context, hashes: ReadonlyMap<string, string>, signal: AbortSignal): Promise<Stage> {
    const parent = temporary();
    await removeForgotten(parent);
    const stage = new Stage(await realpath(await mkdtemp(join(parent, PREFIX))));
    try {
      for (const entry of context.entries) {
        signal.throwIfAborted();
        await copy(context.root, stage.root, entry, hashes);
      }
      return stage;
    } catch (error) {
      await stage[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await remove(this.root);
  }
}

async function remove(directory: string): Promise<void> {
  await makeRemovable(directory).catch(() => undefined);
  await rm(directory, { recursive: true, force: true, maxRetries: 3 });
}

// Package managers, and whoever wants to be in the way, leave directories that even their owner may not change.
async function makeRemovable(directory: string): Promise<void> {
  await chmod(directory, 0o700);
  for (const entry of await readdir(directory, { withFileTypes: true }))
    if (entry.isDirectory()) await makeRemovable(join(directory, entry.name));
}

// Left by a process that was killed. No build takes that long.
async function removeForgotten(parent: string): Promise<void> {
  const before = Date.now() - FORGOTTEN_MS;
  for (const name of await readdir(parent)) {
    if (!name.startsWith(PREFIX)) continue;
    const found = await lstat(join(parent, name)).catch(() => null);
    if (found?.isDirectory() && found.uid === process.getuid?.() && found.ctimeMs < before)
      await remove(join(parent, name));
  }
}

function temporary(): string {
  return process.env['TMPDIR'] ?? (existsSync(LARGE_TEMPORARY) ? LARGE_TEMPORARY : tmpdir());
}

async function copy(from: string, to: string, entry: ContextEntry, hashes: ReadonlyMap<string, string>): Promise<void> {
  const target = join(to, entry.path);
  // A file may have been brought back from a directory that is left out.
  await mkdir(dirname(target), { recursive: true });
  if (entry.kind === 'directory') await mkdir(target, { recursive: true });
  else if (entry.kind === 'link') await symlink(entry.target ?? '', target);
  else await copyFile(from, target, entry, hashes.get(entry.path));
}

async function copyFile(
  from: string,
  target: string,
  entry: ContextEntry,
  expected: string | undefined,
): Promise<void> {
  const hash = createHash('sha256');
  const file = await open(target, 'wx', 0o600);
  try {
    for await (const chunk of contentOf(from, entry)) {
      hash.update(chunk);
      await file.write(chunk);
    }
  } finally {
    await file.close();
  }
  if (hash.digest('hex') !== expected) throw changed(entry.path);
  await chmod(target, entry.mode);
}
