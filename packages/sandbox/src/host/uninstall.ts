// Uninstall: reports every trace of acode on engine and disk, and removes it on request.

import { lstat, readdir, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fallbackRuntime } from '../lifecycle/directories.ts';
import { AcodeError } from '../contract/errors.ts';
import type {
  CleanupReport,
  OwnDirectory,
  Remote,
  SparedTrace,
  UninstallOptions,
  UninstallReport,
} from '../contract/host.ts';
import type { ImagePruneReport } from '../contract/images.ts';
import type { Host } from '../run/host.ts';
import type { ImageHost } from '../images/pulls.ts';
import { prune } from '../images/images.ts';
import { discardForks } from './forks.ts';
import { cleanup } from './inventory.ts';
import { liveOwners } from '../lifecycle/ownership.ts';
import { forgottenStages, removeForgottenStages } from '../images/project/stage.ts';
import { survey } from './sweep.ts';
import type { Operation } from '../records/telemetry.ts';

// The entries that acode itself creates in its directories. Anything else there belongs to another program: an
// environment variable may point anywhere, and a directory of that name may have another purpose.
const OWN_ENTRIES: Readonly<Record<OwnDirectory['what'], RegExp>> = {
  config: /^(?:(?:agents|config|fleet|swarm|worker)\.yml|tenants|config\.schema\.v\d+\.json)(?:\.[0-9a-f]{16})?$/,
  state:
    /^(?:agents|applies|ca|code-cache|egress|f|fleet|grants|leases|kept|logins|masks|run|trust|logs|audit|project-images|scans|users|serve-announced|programs|states|swarms|images\.json(?:\.[0-9a-f]{16})?)$/,
  runtime:
    /^(?:owners|commands|networks|memory|pulls|bubblewrap-held(?:\.\d+)?|host(?:\.[0-9a-f]{16})?|reaped\.(?:jsonl|[0-9a-f-]{36})|serve-[0-9a-f]{16}\.sock(?:\.\d+)?|swarm-[0-9a-f]{8}\.sock|recent-commands|seccomp-[0-9a-f]{32}\.json(?:\.[0-9a-f-]{36})?)$/,
};

const AUDIT = 'audit';
// Beside the state directory: of programs that may run, with sessions and forks of tenants.
const SERVICES = ['acode-worker', 'acode-e2b'];
const FORKS = 'f';
// What an interrupted apply of a fork, and a swarm whose tasks have forks, need to go on.
const APPLIES = 'applies';
const SWARMS = 'swarms';

/** Reports the resources on the engine, and removes them on request; only reports the files on disk. */
export async function uninstallFromEngine(
  host: ImageHost,
  options: UninstallOptions,
  operation: Operation,
  signal: AbortSignal,
): Promise<UninstallReport> {
  const { purge = false, force = false } = options;
  // Includes the fallback directory, which a session uses for its sockets if another user owns the usual one.
  const places = new Set([host.directories.runtime, fallbackRuntime(host.directories.state)]);
  const counted = await Promise.all([...places].map(place => liveOwners(place)));
  const sessions = counted.reduce((sum, count) => sum + count, 0);
  const spares = purge && !force;
  if (sessions > 0 && spares) throw new AcodeError('ACODE-SBX-022', { sessions });
  const copies = await forgottenStages(host.identity);
  const directories = await ownDirectories(host);
  const spared = await sparedTraces(host, directories, options);
  const services = await existing(SERVICES.map(name => join(dirname(host.directories.state), name)));
  const about = { sessions, directories, left: [], spared, copies, services };
  try {
    await removeForks(host, { purge, spared }, signal);
    const cleared = await clearEngine(host, { purge, force }, operation, signal);
    // Copies last, since a running sandbox would still write to them.
    const purged = await removeCopies(host, purge && isClean(cleared), signal);
    return { ...about, ...cleared, engineProblem: null, purged };
  } catch (error) {
    // A user without an engine still wants the disk clean, but must request it with `force`: sandboxes may remain on
    // the engine.
    if (signal.aborted || spares) throw error;
    const purged = await removeCopies(host, purge, signal);
    return { ...about, engine: null, elsewhere: [], images: null, engineProblem: reasonOf(error), purged };
  }
}

// Before images are removed: the engine removes what its kernel left in forks, and needs an image for that.
async function removeForks(
  host: Host,
  { purge, spared }: { readonly purge: boolean; readonly spared: readonly SparedTrace[] },
  signal: AbortSignal,
): Promise<void> {
  if (purge && !spared.some(({ what }) => what === 'forks')) await discardForks(host, signal);
}

/** Removes the staged copies if requested; returns whether all of them are removed. */
async function removeCopies({ identity }: Host, asked: boolean, signal: AbortSignal): Promise<boolean> {
  if (!asked) return false;
  return (await removeForgottenStages(signal, identity)).failed.length === 0;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The resources found on the engine. */
interface Cleared {
  readonly engine: CleanupReport;
  readonly images: ImagePruneReport;
  readonly elsewhere: readonly Remote[];
}

async function clearEngine(
  host: ImageHost,
  { purge, force }: { readonly purge: boolean; readonly force: boolean },
  operation: Operation,
  signal: AbortSignal,
): Promise<Cleared> {
  const reach = { allSessions: force || !purge, everyHost: purge && force };
  const engine = await cleanup(host, { ...reach, force: true, volumes: true, dryRun: !purge }, operation, signal);
  // After the containers, which would block their removal; and before the index of pulled images is removed.
  const images = await prune(host, { dryRun: !purge, olderThanDays: 0 }, operation, signal);
  return { engine, images, elsewhere: await ofOtherHosts(host, signal) };
}

// The audit log is evidence; the configuration and the changes in forks are the user’s own work: each is removed only on request.
async function sparedTraces(
  host: Host,
  directories: readonly OwnDirectory[],
  { purge = false, audit = false, config = false, forks = false }: UninstallOptions,
): Promise<SparedTrace[]> {
  if (!purge) return [];
  const withChanges = (await (await host.forks()).list()).some(({ layers }) => layers.length > 0);
  const places = directories.flatMap(({ what, path }): SparedTrace[] => {
    if (what === 'config' && !config) return [{ what: 'config', path }];
    if (what !== 'state') return [];
    return [
      ...(audit ? [] : [{ what: 'audit' as const, path: join(path, AUDIT) }]),
      ...(forks || !withChanges
        ? []
        : [FORKS, APPLIES, SWARMS].map(name => ({ what: 'forks' as const, path: join(path, name) }))),
    ];
  });
  const found = new Set(await existing(places.map(({ path }) => path)));
  return places.filter(({ path }) => found.has(path));
}

/**
 * Removes acode’s entries from its own directories, except the spared ones, and then the empty directories. Returns the
 * entries that remain without being spared. If a directory is a symbolic link, only the link is removed.
 */
export async function removeDirectories({
  directories,
  spared,
}: Pick<UninstallReport, 'directories' | 'spared'>): Promise<string[]> {
  const left: string[] = [];
  const kept = new Set(spared.map(({ path }) => path));
  for (const { what, path } of directories)
    if (!kept.has(path)) left.push(...(await removeOwn(path, OWN_ENTRIES[what], kept)));
  return left;
}

async function removeOwn(directory: string, own: RegExp, kept: ReadonlySet<string>): Promise<string[]> {
  const found = await lstat(directory).catch(() => null);
  if (!found?.isDirectory()) {
    await rm(directory, { force: true });
    return [];
  }
  const names = await readdir(directory);
  // What cannot be removed is named below.
  for (const name of names.filter(one => own.test(one) && !kept.has(join(directory, one))))
    await rm(join(directory, name), { recursive: true, force: true }).catch(() => undefined);
  try {
    await rmdir(directory);
    return [];
  } catch {
    const left = await readdir(directory).catch(() => []);
    if (left.length === 0) return [directory];
    return left.map(name => join(directory, name)).filter(path => !kept.has(path));
  }
}

// Resources of this user with a different runtime directory: from before a reboot, or from another machine that uses
// the same engine. acode cannot tell the two apart.
async function ofOtherHosts(host: Host, signal: AbortSignal): Promise<Remote[]> {
  const { sandboxes, belongings } = await survey(host, signal);
  const remote = [
    ...sandboxes.map(({ thing: { name }, verdict }) => ({ kind: 'container' as const, name, verdict })),
    ...belongings.map(({ thing: { kind, name }, verdict }) => ({ kind, name, verdict })),
  ];
  return remote.filter(({ verdict }) => verdict.because === 'another host').map(({ kind, name }) => ({ kind, name }));
}

// An image that was not removed is in use by others, or its name now refers to another image: it is no longer a trace
// of acode.
function isClean({ engine: { failed, kept, belongings }, images, elsewhere }: Cleared): boolean {
  return [failed, kept, belongings.failed, belongings.kept, images.failed, elsewhere].every(
    ({ length }) => length === 0,
  );
}

async function ownDirectories({ directories }: Host): Promise<OwnDirectory[]> {
  const all = (['config', 'state', 'runtime'] as const).map(async what => {
    const size = await sizeOf(directories[what]);
    return size ? [{ what, path: directories[what], ...size }] : [];
  });
  return (await Promise.all(all)).flat();
}

async function existing(paths: readonly string[]): Promise<string[]> {
  const found = await Promise.all(paths.map(path => lstat(path).catch(() => null)));
  return paths.filter((_, at) => found[at] !== null);
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
