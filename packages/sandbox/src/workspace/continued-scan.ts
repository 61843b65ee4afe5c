// Background scan after a run: the same directories and the same time again, with a budget that no caller waits for.

import type { RiskyChange } from '../contract/result.ts';
import type { RestPeriod, ScanJob, ScanReport } from '../contract/scan.ts';
import { scanRoots } from './after-run.ts';
import { NOTHING_WRITTEN, notLookedAt } from './risky.ts';
import type { LookBudget, Scan } from './risky.ts';

// Time limit of one background scan.
const MAX_SCAN_MS = 60_000;

// Time is the bound: these only keep the memory of the scan finite.
const BUDGET: Partial<LookBudget> = {
  entries: 10_000_000,
  directories: 2_000_000,
  milliseconds: MAX_SCAN_MS,
  patience: Infinity,
};
// However many commands came meanwhile, the workspace is not walked more often than this for them.
const MAX_SCANS = 4;

/** How scans go on. */
export interface ContinuedScanOptions {
  /** Ends the scan early; what it has found until then is its result, and incomplete. */
  readonly signal?: AbortSignal;
  /** How long it rests after each slice of work, in milliseconds; 0 unless the thread has other work. */
  readonly restMs?: number;
  /** How long one scan may take, in milliseconds; 60,000 by default. */
  readonly maxMs?: number;
}

/** Does the scans of these jobs, one after the other, and reports each as it ends. */
export async function* scanJobs(
  jobs: readonly ScanJob[],
  { signal, restMs = 0, maxMs = MAX_SCAN_MS }: ContinuedScanOptions = {},
): AsyncGenerator<ScanReport> {
  for (const { jobs: group, sinceMs, untilMs } of groupsOf(jobs)) {
    const directories = group[0]?.directories ?? [];
    const window = { sinceMs, untilMs, rests: restsOf(group) };
    const budget = { ...BUDGET, milliseconds: maxMs, restMs };
    const found = await scanRoots(directories, window, { budget, ...(signal ? { signal } : {}) }).catch(failed);
    const known = new Set(group.flatMap(job => job.known.map(keyOf)));
    const riskyChanges = found.riskyChanges.filter(
      change => change.kind === 'scan-incomplete' || !known.has(keyOf(change)),
    );
    yield { jobs: group, riskyChanges, changed: found.changed, complete: found.complete };
  }
}

/** The report of a scan that did not finish and found nothing. */
export function unfinishedScan(jobs: readonly ScanJob[], reason: string): ScanReport {
  const { changed } = NOTHING_WRITTEN;
  return { jobs, riskyChanges: [notLookedAt(reason)], changed, complete: false };
}

// Every failure is reported: a scan that ends without a report would look like one that found nothing.
function failed(error: unknown): Scan {
  const reason = `the scan failed: ${error instanceof Error ? error.message : String(error)}`;
  return { ...NOTHING_WRITTEN, riskyChanges: [notLookedAt(reason)], complete: false };
}

interface Group {
  readonly jobs: readonly ScanJob[];
  readonly sinceMs: number;
  readonly untilMs: number;
}

/**
 * Jobs that one walk can do. Commands that ran at the same time share one. Those that ran one after the other have their own,
 * so that the user’s changes in between are not reported; beyond a few of them, those with the least time in between share one.
 */
export function groupsOf(jobs: readonly ScanJob[]): readonly Group[] {
  const places = new Map<string, ScanJob[]>();
  for (const job of jobs) {
    const place = JSON.stringify(job.directories);
    places.set(place, [...(places.get(place) ?? []), job]);
  }
  return [...places.values()].flatMap(inOnePlace);
}

function inOnePlace(jobs: readonly ScanJob[]): Group[] {
  const groups: Group[] = [];
  for (const job of [...jobs].sort((one, other) => one.sinceMs - other.sinceMs)) {
    const own: Group = { jobs: [job], sinceMs: job.sinceMs, untilMs: job.untilMs ?? Infinity };
    const last = groups.at(-1);
    if (last && own.sinceMs <= last.untilMs) groups[groups.length - 1] = together(last, own);
    else groups.push(own);
  }
  while (groups.length > MAX_SCANS) mergeNearest(groups);
  return groups;
}

function mergeNearest(groups: Group[]): void {
  let nearest = 0;
  let least = Infinity;
  for (const [at, { sinceMs }] of groups.entries()) {
    const before = groups[at - 1];
    if (!before || sinceMs - before.untilMs >= least) continue;
    nearest = at - 1;
    least = sinceMs - before.untilMs;
  }
  const [one, other] = groups.slice(nearest, nearest + 2);
  if (one && other) groups.splice(nearest, 2, together(one, other));
}

/** When nothing of these jobs ran: between two of them, and while every sandbox that was there was at rest. */
export function restsOf(jobs: readonly ScanJob[]): readonly RestPeriod[] {
  const active = jobs.flatMap(({ sinceMs, untilMs, rest }) => {
    const end = untilMs ?? Infinity;
    return rest ? [[sinceMs, rest.fromMs] as const, [rest.toMs, end] as const] : [[sinceMs, end] as const];
  });
  const rests: RestPeriod[] = [];
  let fromMs: number | null = null;
  for (const [start, end] of active.sort(([one], [other]) => one - other)) {
    if (fromMs !== null && start > fromMs) rests.push({ fromMs, toMs: start });
    fromMs = Math.max(fromMs ?? 0, end);
  }
  return rests;
}

function together(one: Group, other: Group): Group {
  return {
    jobs: [...one.jobs, ...other.jobs],
    sinceMs: Math.min(one.sinceMs, other.sinceMs),
    untilMs: Math.max(one.untilMs, other.untilMs),
  };
}

function keyOf({ kind, path }: Pick<RiskyChange, 'kind' | 'path'>): string {
  return `${kind} ${path}`;
}
