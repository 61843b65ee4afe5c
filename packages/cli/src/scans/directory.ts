// Directory of scans that continue after their commands. Every call loads this file, so it imports next to nothing.

import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { stateDirectory } from '../serve/identity.ts';

/** The command that does such scans; not shown in help. */
export const SCAN_COMMAND = 'scan-workspace';

/** The directory of all such scans: in the user’s state directory, never where a sandbox writes. The library decides the same. */
export function allScans(): string {
  return join(stateDirectory(process.env), 'scans');
}

/** Whether any workspace has scans that are running or not reported yet. Most of the time there are none. */
export function hasScans(): boolean {
  try {
    return lstatSync(allScans(), { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}
