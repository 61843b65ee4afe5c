// Unused warm sandboxes: records files that appeared while one waited, for the next command to report.

import type { ScanReport } from '@acode/sandbox';
import { ScanStore } from './store.ts';

/** Writes it to disk: the log of a background process has no reader. */
export function storeUnused({ jobs, riskyChanges, complete }: ScanReport, image: string): void {
  const uid = process.getuid?.();
  const [first] = jobs;
  if (uid === undefined || !first) return;
  const finding = { askedMs: [Date.now()], image, riskyChanges: [...riskyChanges], complete };
  const add = (): void => ScanStore.make(first.workspace, uid).addFinding(finding);
  try {
    add();
  } catch {
    // A scanner that has ended removes the directory: this may have been the moment.
    add();
  }
}
