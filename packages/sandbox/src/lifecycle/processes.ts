// The processes of this machine, as the kernel lists them.

import { readdirSync } from 'node:fs';

/** The ids of all processes; empty where the kernel lists none. */
export function processIds(): number[] {
  return namesIn('/proc').map(Number).filter(Number.isInteger);
}

/** Names in a directory of the kernel; empty once the process is gone, or is another user’s. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
