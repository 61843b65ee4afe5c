// What a session has beside the engine while it lives, and must not leave when it is over: its reaper and its owner’s socket.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** The reapers of every session in a runtime directory ($XDG_RUNTIME_DIR): each carries a path in it among its words. */
export function reapersIn(runtime: string): number[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      return words.includes('acode-reaper') && words.includes(`${runtime}/`) ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

/** The sockets of owners in a runtime directory. */
export function ownerSocketsIn(runtime: string): string[] {
  try {
    const found = readdirSync(join(runtime, 'acode'), { recursive: true, withFileTypes: true });
    return found.filter(entry => entry.isSocket()).map(({ name }) => name);
  } catch {
    return [];
  }
}
