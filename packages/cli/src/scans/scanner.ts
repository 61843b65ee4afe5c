// Scanner: finishes the pending scans of a workspace, one process at a time.

import type { ScanJob, ScanReport } from '@acode/sandbox';
import type { ScanStore, Stored, StoredJob } from './store.ts';

/** How scans are done, and who gets the report. */
export interface ScannerParts {
  readonly scan: (jobs: readonly ScanJob[], signal: AbortSignal) => AsyncIterable<ScanReport>;
  /** Told of each scan that found something, when it is written down. */
  readonly found: (report: ScanReport, jobs: readonly StoredJob[]) => void;
  /** Cancels it. What was not scanned is reported, unless `handsOn`. */
  readonly signal: AbortSignal;
  /** Whether unfinished scans remain on disk for another process. */
  readonly handsOn?: boolean;
}

/**
 * Does every scan that is written down, also those that come meanwhile. Where another process does them already, that one
 * sees the new ones before it ends.
 */
export async function scanStored(store: ScanStore, parts: ScannerParts): Promise<void> {
  store.forgetStarted();
  while (store.jobs().length > 0 && !isHandedOn(parts)) {
    if (!store.lock()) return;
    try {
      for (let jobs = store.jobs(); jobs.length > 0 && !isHandedOn(parts); jobs = store.jobs())
        await scanThese(store, jobs, parts);
    } finally {
      // A job that came before this, and not before the last question, is seen by the next turn of the loop.
      store.unlock();
    }
  }
}

function isHandedOn({ signal, handsOn = false }: ScannerParts): boolean {
  return handsOn && signal.aborted;
}

async function scanThese(store: ScanStore, jobs: readonly Stored<StoredJob>[], parts: ScannerParts): Promise<void> {
  const { scan, found, signal } = parts;
  const left = new Set(jobs);
  try {
    for await (const report of scan(
      jobs.map(({ content }) => content.job),
      signal,
    )) {
      if (isHandedOn(parts)) return;
      const ids = new Set(report.jobs.map(({ correlationId }) => correlationId));
      const done = [...left].filter(({ content }) => ids.has(content.job.correlationId));
      for (const one of done) left.delete(one);
      store.finish(done, report);
      if (report.riskyChanges.length > 0)
        found(
          report,
          done.map(({ content }) => content),
        );
    }
  } finally {
    // A scan that failed without a report is reported like one that ended early.
    const failed = { path: '.', kind: 'scan-incomplete', reason: 'the scan failed' } as const;
    if (left.size > 0 && !isHandedOn(parts)) store.finish([...left], { riskyChanges: [failed], complete: false });
  }
}
