// Scan of the workspace after a run, once nothing of the sandbox runs that could still write.

import { basename, dirname, join } from 'node:path';
import type { Clock } from '../contract/ports.ts';
import type { RiskyChange } from '../contract/result.ts';
import type { RestPeriod, ScanRoot } from '../contract/scan.ts';
import type { MountSpec } from '../contract/spec.ts';
import { addCounts } from './change-counts.ts';
import { clockOffsetMs, setBackMs, fromText, lstat } from './directory-look.ts';
import type { ScanWindow } from './directory-look.ts';
import { ENVIRONMENT_NAMES } from './environments.ts';
import { isInPlace, isWithin } from './file-identity.ts';
import { protectedPaths } from './protected-paths.ts';
import { BUDGET, NOTHING_WRITTEN, notLookedAt, scanPath } from './risky.ts';
import type { LookBudget, Scan, ScanOptions } from './risky.ts';

/** What is known of a run that has ended. */
export interface EndedRun {
  readonly mounts: readonly MountSpec[];
  /** When its sandbox did not exist yet, by the clock of the kernel: a caller’s own clock says nothing about files. */
  readonly sinceMs: number;
  /** When its sandbox was there and nothing of it ran. */
  readonly rest?: RestPeriod | undefined;
  /** Whether something was brought into the workspace for it, whether or not it could write there itself. */
  readonly brought?: boolean;
  /** How long the caller has waited; absent if no caller waits. */
  readonly tookMs?: number;
  /** What {@link clockOffsetMs} said when the run began: where the clock was set back since, the scan begins earlier. */
  readonly clockOffset?: number;
  /** Settles when no process of the sandbox is left. */
  readonly dead: Promise<unknown>;
  /** What {@link absentEnvironments} said when the run began; where it is absent, no environment is taken for a new one. */
  readonly absent?: readonly string[];
  /** Whether the sandbox outlives the command: then what the command started may still write. */
  readonly persistent?: boolean;
}

// The scan adds little to the time that the caller has already waited, however large the workspace is.
const SHARE = 0.12;
const MIN_MS = 20;

// A killed container ends within moments; the caller of a run waits no longer than this for it.
const DEATH_MS = 2000;
const MAX_MESSAGE = 200;

/** What of a scan is still to be done, as another scan of the same directories for the same time. */
export interface ScanRest {
  readonly directories: readonly ScanRoot[];
  readonly sinceMs: number;
  /** When nothing of the sandbox lived any more; null where that is not known. */
  readonly untilMs: number | null;
  readonly rest?: RestPeriod | undefined;
  /** Whether the scan remains incomplete for another reason, whatever the rest of it finds. */
  readonly final: boolean;
}

/** The scan of a run; `rest` where its budget was not enough. */
export interface RunScan extends Scan {
  readonly rest: ScanRest | null;
}

/** The scan of a run; complete and without changes where it could not write anything. */
export async function changesOfRun(run: EndedRun, clock: Clock): Promise<RunScan> {
  const { mounts, dead, tookMs = Infinity, brought = false, clockOffset } = run;
  const roots = rootsOf(mounts, run.absent, brought);
  if (roots.length === 0) return { ...NOTHING_WRITTEN, rest: null };
  const ended = await settledWithin(dead, clock);
  // By the clock of the kernel, like the beginning; changes after this are not the sandbox’s.
  const back = clockOffset === undefined ? 0 : setBackMs(clockOffset, clockOffsetMs(), tookMs);
  // What was written before the clock was set back has a time that is still to come.
  const untilMs = ended && !run.persistent ? Date.now() + back : null;
  const sinceMs = run.sinceMs - back;
  const patience = Math.max(MIN_MS, tookMs * SHARE);
  // What was written before the clock was set back may look as if it was written while nothing ran.
  const atRest = back === 0 ? run.rest : undefined;
  const found = await scanRoots(roots, windowOf(sinceMs, untilMs, atRest), { budget: { patience } });
  const rest = found.spent ? { directories: roots, sinceMs, untilMs, rest: atRest, final: !ended } : null;
  const late = 'the sandbox was not seen to end, so it may have written after the scan';
  return { ...(ended ? found : incomplete(found, late)), rest };
}

function windowOf(sinceMs: number, untilMs: number | null, rest: RestPeriod | undefined): ScanWindow {
  return { sinceMs, untilMs: untilMs ?? Infinity, rests: rest ? [rest] : [] };
}

/**
 * What stands for the scan of a run that was cancelled: its caller has left and waits for none. `gone` says whether nothing
 * of the sandbox lives any more.
 */
export function changesOfCancelledRun(
  mounts: readonly MountSpec[],
  sinceMs: number,
  gone: boolean,
  { absent, rest: atRest, persistent = false }: Pick<EndedRun, 'absent' | 'rest' | 'persistent'> = {},
): RunScan {
  const roots = rootsOf(mounts, absent);
  if (roots.length === 0) return { ...NOTHING_WRITTEN, rest: null };
  const untilMs = gone && !persistent ? Date.now() : null;
  const rest = { directories: roots, sinceMs, untilMs, rest: atRest, final: !gone };
  const reason = gone
    ? 'the command was cancelled, so the workspace was not scanned'
    : 'the command was cancelled and its sandbox was not seen to end, so it may have written after the scan';
  return { ...incomplete(NOTHING_WRITTEN, reason), rest };
}

/** What is to be scanned after a run with these mounts; with `brought`, the workspace even where it was read-only. */
function rootsOf(mounts: readonly MountSpec[], absent: readonly string[] = [], brought = false): ScanRoot[] {
  // A fork leaves the directory below it as it was.
  const written = mounts.filter(
    ({ purpose, readOnly, overlay, copyOf }) =>
      (purpose === 'workspace' && (brought || (!readOnly && !overlay && copyOf === undefined))) ||
      (purpose === 'additional' && !readOnly),
  );
  const repositories = mounts.filter(({ purpose }) => purpose === 'worktree').map(({ source }) => source);
  // What lies in another one is scanned with it.
  const outermost = written.filter(({ source }) => !written.some(other => isBelow(source, other.source)));
  return outermost.map(mount => ({
    path: mount.source,
    ...(mount.purpose === 'workspace' ? {} : { shownAs: mount.target }),
    ...(mount.purpose === 'workspace' && repositories.length > 0 ? { repositories } : {}),
    skipped: [...protectedNames(mounts, mount, brought)],
    ...absentIn(mount.source, absent),
  }));
}

function absentIn(root: string, absent: readonly string[]): Pick<ScanRoot, 'absent'> {
  const names = absent.filter(path => dirname(path) === root).map(path => basename(path));
  return names.length > 0 ? { absent: names } : {};
}

/** The places for virtual environments, at the top of what a run with these mounts can write, where there is nothing now. */
export function absentEnvironments(mounts: readonly MountSpec[]): readonly string[] {
  return rootsOf(mounts)
    .flatMap(({ path }) => ENVIRONMENT_NAMES.map(name => join(path, name)))
    .filter(path => lstat(fromText(path)) === null);
}

function isBelow(path: string, directory: string): boolean {
  return path !== directory && isWithin(path, directory);
}

/** Scans all of these, each with its share of the budget. */
export async function scanRoots(
  roots: readonly ScanRoot[],
  window: ScanWindow,
  { budget, signal }: Pick<ScanOptions, 'budget' | 'signal'> = {},
): Promise<Scan> {
  let sum = NOTHING_WRITTEN;
  for (const { path, shownAs, skipped, absent = [], repositories = [] } of roots) {
    const writable = roots.map(root => root.path).filter(other => other !== path);
    const options = {
      budget: shareOf({ ...BUDGET, ...budget }, roots.length),
      ...(signal ? { signal } : {}),
      skipped: new Set(skipped),
      absent: new Set(absent),
      repositories,
      writable,
    };
    // oxlint-disable-next-line no-await-in-loop -- one after the other: together they would only take turns on one thread
    const found = await scanPath(path, window, options).catch(failed);
    sum = {
      riskyChanges: [...sum.riskyChanges, ...found.riskyChanges.map(change => shown(change, shownAs))],
      changed: addCounts(sum.changed, found.changed),
      complete: sum.complete && found.complete,
      spent: sum.spent || found.spent,
    };
  }
  return sum;
}

// Whatever a command has planted to break the scan, its caller gets the result of the command.
function failed(cause: unknown): Scan {
  const message = cause instanceof Error ? cause.message : String(cause);
  return incomplete(NOTHING_WRITTEN, `the scan failed: ${message.slice(0, MAX_MESSAGE)}`);
}

function shareOf(budget: LookBudget, roots: number): LookBudget {
  const { entries, directories, milliseconds, patience } = budget;
  return {
    ...budget,
    entries: Math.ceil(entries / roots),
    directories: Math.ceil(directories / roots),
    milliseconds: milliseconds / roots,
    patience: patience / roots,
  };
}

function shown(change: RiskyChange, shownAs: string | undefined): RiskyChange {
  if (shownAs === undefined) return change;
  return { ...change, path: change.path === '.' ? shownAs : `${shownAs}/${change.path}` };
}

function incomplete(scan: Scan, reason: string): Scan {
  return { ...scan, riskyChanges: [...scan.riskyChanges, notLookedAt(reason)], complete: false };
}

// Not those that a process on the host has replaced meanwhile: nothing is mounted over them any more. What was brought may lie in
// any but those that a request may not name.
function protectedNames(mounts: readonly MountSpec[], { source: root }: MountSpec, brought: boolean): Set<string> {
  const own = mounts.filter(
    mount => mount.purpose === 'protected' && dirname(mount.source) === root && isInPlace(mount),
  );
  const known = brought ? own.filter(({ source }) => protectedPaths(root).includes(source)) : own;
  return new Set(known.map(({ source }) => basename(source)));
}

async function settledWithin(dead: Promise<unknown>, clock: Clock): Promise<boolean> {
  let cancel: () => void = () => undefined;
  const late = new Promise<boolean>(resolve => {
    cancel = clock.after(DEATH_MS, () => resolve(false));
  });
  const seen = dead.then(
    () => true,
    () => false,
  );
  try {
    return await Promise.race([seen, late]);
  } finally {
    cancel();
  }
}
