// What appeared in the workspace while a warm sandbox waited that never had a command: written down for the next command to say.

import type { ScanReport } from '@acode/sandbox';
import { ScanStore } from './store.ts';

/** Writes it down. A background process has nobody who reads its log. */
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
