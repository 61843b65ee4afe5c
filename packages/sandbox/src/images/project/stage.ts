// A copy of a project to install its dependencies in: the sandbox that does it writes there, and never in the project.

import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, lstat, mkdir, mkdtemp, open, readdir, realpath, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path';
import { changed, contentOf } from './contents.ts';
import type { Context, ContextEntry } from './context.ts';
import { removeTree } from '../../workspace/removal.ts';

// Made for what is large and may live longer than memory: many systems have the other one in memory.
const LARGE_TEMPORARY = '/var/tmp';
const PREFIX = 'acode-project-';
const FORGOTTEN_MS = 48 * 3600 * 1000;

/** What could not be removed, and why. */
export interface Unremoved {
  readonly path: string;
  readonly reason: string;
}

/** A copy of a context. Disposing of it removes it, as far as it can be removed: what is left is removed by a later build. */
export class Stage implements AsyncDisposable {
  readonly root: string;
  readonly #left: (what: Unremoved) => void;

  private constructor(root: string, left: (what: Unremoved) => void) {
    this.root = root;
    this.#left = left;
  }

  /** Copies the files of a context to a directory of its own. `left` hears of every copy that could not be removed. */
  static async of(
    context: Context,
    hashes: ReadonlyMap<string, string>,
    { host, left }: { readonly host: string; readonly left: (what: Unremoved) => void },
    signal: AbortSignal,
  ): Promise<Stage> {
    for (const what of (await removeForgottenStages(signal)).failed) left(what);
    const stage = new Stage(await realpath(await mkdtemp(join(temporary(), prefixOf(host)))), left);
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

  // Never an error of the build: the image is made, or it failed for another reason.
  async [Symbol.asyncDispose](): Promise<void> {
    const failed = await removed(this.root);
    if (failed) this.#left(failed);
  }
}

/** Copies that are no longer used, and those of them that could not be removed. */
export interface ForgottenStages {
  readonly removed: readonly string[];
  readonly failed: readonly Unremoved[];
}

/**
 * Removes the copies that a process left behind which was killed: those that are older than any build takes, and all of
 * one host without a running build.
 */
export async function removeForgottenStages(
  signal: AbortSignal,
  evenNewOf: string | null = null,
): Promise<ForgottenStages> {
  const report = { removed: new Array<string>(), failed: new Array<Unremoved>() };
  for (const path of await forgottenStages(evenNewOf)) {
    signal.throwIfAborted();
    const failed = await removed(path);
    if (failed) report.failed.push(failed);
    else report.removed.push(path);
  }
  return report;
}

/** The copies of this user’s that are older than any build takes, and all of one host where that is named. */
export async function forgottenStages(evenNewOf: string | null): Promise<string[]> {
  const time = Date.now() - FORGOTTEN_MS;
  const isOf = (name: string): boolean => evenNewOf !== null && name.startsWith(prefixOf(evenNewOf));
  const parent = temporary();
  const names = (await readdir(parent).catch(() => [])).filter(name => name.startsWith(PREFIX));
  const found = await Promise.all(
    names.map(async name => {
      const path = join(parent, name);
      const stats = await lstat(path).catch(() => null);
      return stats?.isDirectory() && stats.uid === process.getuid?.() && (stats.ctimeMs < time || isOf(name))
        ? [path]
        : [];
    }),
  );
  return found.flat();
}

async function removed(path: string): Promise<Unremoved | null> {
  try {
    await removeTree(path);
    return null;
  } catch (error) {
    return { path, reason: error instanceof Error ? error.message : String(error) };
  }
}

// Who else has a runtime directory of their own on this machine may be building.
function prefixOf(host: string): string {
  return `${PREFIX}${createHash('sha256').update(host).digest('hex').slice(0, 12)}-`;
}

// An empty or relative one would be a directory of the workspace.
function temporary(): string {
  const { TMPDIR: named } = process.env;
  if (named !== undefined && isAbsolute(named)) return named;
  return existsSync(LARGE_TEMPORARY) ? LARGE_TEMPORARY : tmpdir();
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
