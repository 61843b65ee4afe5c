// Takes every trace of acode off engine and disk, after looking at what there is.

import { lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from './contract/errors.ts';
import type { OwnDirectory, UninstallOptions, UninstallReport } from './contract/host.ts';
import type { Host } from './host.ts';
import { cleanup } from './inventory.ts';
import { liveOwners } from './lifecycle/ownership.ts';
import type { Operation } from './telemetry/operation.ts';

/** What is on the engine, and what becomes of it; the disk is looked at and left as it is. */
export async function uninstallFromEngine(
  host: Host,
  options: UninstallOptions,
  operation: Operation,
  signal: AbortSignal,
): Promise<UninstallReport> {
  const { purge = false, force = false } = options;
  const sessions = await liveOwners(host.directories.runtime);
  if (sessions > 0 && purge && !force) throw new AcodeError('ACODE-SBX-022', { sessions });
  const wanted = { force: true, allSessions: force || !purge, volumes: true, dryRun: !purge };
  const directories = await ownDirectories(host);
  const found = await cleanup(host, wanted, operation, signal).catch((error: unknown) => {
    // Who has no engine any more still wants the disk clean, but must have said so: sandboxes may be left on it.
    if (signal.aborted || (purge && !force)) throw error;
    return error instanceof Error ? error.message : String(error);
  });
  return typeof found === 'string'
    ? { engine: null, engineProblem: found, sessions, directories, purged: purge }
    : { engine: found, engineProblem: null, sessions, directories, purged: purge && isClean(found) };
}

/** Removes acode’s own directories. A symbolic link is removed, and what it leads to is not. */
export async function removeDirectories(directories: readonly OwnDirectory[]): Promise<void> {
  for (const { path } of directories) await rm(path, { recursive: true, force: true });
}

function isClean({ failed, belongings }: NonNullable<UninstallReport['engine']>): boolean {
  return failed.length === 0 && belongings.failed.length === 0;
}

async function ownDirectories({ directories }: Host): Promise<OwnDirectory[]> {
  const all = (['config', 'state', 'runtime'] as const).map(async what => {
    const size = await sizeOf(directories[what]);
    return size ? [{ what, path: directories[what], ...size }] : [];
  });
  return (await Promise.all(all)).flat();
}

async function sizeOf(path: string): Promise<{ files: number; bytes: number } | null> {
  const found = await lstat(path).catch(() => null);
  if (!found) return null;
  if (!found.isDirectory()) return { files: 1, bytes: found.size };
  let [files, bytes] = [0, 0];
  for (const name of await readdir(path).catch(() => [])) {
    const inside = await sizeOf(join(path, name));
    files += inside?.files ?? 0;
    bytes += inside?.bytes ?? 0;
  }
  return { files, bytes };
}
