// What a scan of the workspace found, as much of it as a record has room for. Pure.

import type { AuditFindings } from '../../contract/audit.ts';
import { chooseChanges } from '../../contract/changes.ts';
import type { RunResult } from '../../contract/result.ts';

/** What is known of a workspace after a run. */
export type Scanned = Pick<RunResult, 'riskyChanges' | 'scan'> & Partial<Pick<RunResult, 'changed'>>;

const MAX_CHANGES = 64;
const MAX_PATH = 200;
const MAX_REASON = 600;

/** What a scan found, as much of it as a record has room for. Pure. */
export function findingsOf({ riskyChanges, changed, scan }: Scanned): AuditFindings {
  const { shown, incomplete, omitted } = chooseChanges(riskyChanges, MAX_CHANGES);
  const reason = incomplete.map(one => one.reason).join('; ');
  return {
    ...(changed ? { changed: { ...changed } } : {}),
    scan,
    ...(shown.length === 0
      ? {}
      : {
          riskyChanges: shown.map(({ kind, path }) => ({ kind, path: shortened(path, MAX_PATH) })),
          riskyChangesTotal: shown.length + omitted,
        }),
    ...(reason === '' ? {} : { scanReason: shortened(reason, MAX_REASON) }),
  };
}

function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}
