// Finds processes of a sandbox that left its process group: by a variable that every process inherits and few take away.
//
// A process in a session of its own cannot be followed in any other way without a namespace. One that also clears its
// environment is not found; levels with namespaces have no such gap.

import { readFileSync, readdirSync } from 'node:fs';
import { identify, isAlive } from './identity.ts';
import type { ProcessIdentity } from './identity.ts';

/** The variable that marks every process of a sandbox. */
export const MARK = 'ACODE_SANDBOX_ID';

const MAX_ROUNDS = 20;

// The living processes that carry the mark of a sandbox; none where the system does not show environments.
function markedProcesses(sandboxId: string): ProcessIdentity[] {
  return numbers().flatMap(pid => {
    const found = hasMark(pid, sandboxId) ? identify(pid) : null;
    return found ? [found] : [];
  });
}

/** Ends the processes that carry the mark, and what they start meanwhile; says how many there were. */
export function endMarked(sandboxId: string): number {
  const ended = new Set<string>();
  // A process that forks faster than it is found is given up after some rounds: this level is no boundary.
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const found = markedProcesses(sandboxId);
    if (found.length === 0) break;
    for (const one of found) {
      ended.add(`${one.pid} ${one.startTime}`);
      end(one);
    }
  }
  return ended.size;
}

function end(found: ProcessIdentity): void {
  try {
    if (isAlive(found)) process.kill(found.pid, 'SIGKILL');
  } catch {
    // It ended meanwhile.
  }
}

function numbers(): number[] {
  try {
    return readdirSync('/proc')
      .filter(name => /^\d+$/.test(name))
      .map(Number);
  } catch {
    return [];
  }
}

function hasMark(pid: number, sandboxId: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(`${MARK}=${sandboxId}`);
  } catch {
    // Another user’s, or gone.
    return false;
  }
}
