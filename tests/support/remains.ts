// What a session has beside the engine while it lives, and must not leave when it is over: its reaper and its owner’s socket.

import { readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

const MAX_WORDLESS_MS = 1000;

/** The reapers of every session in a runtime directory ($XDG_RUNTIME_DIR): each carries a path in it among its words. */
export function reapersIn(runtime: string): number[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const words = wordsOf(`/proc/${name}`);
      return words.includes('acode-reaper') && words.includes(`${runtime}/`) ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}

// A shell that becomes a program has no words for a moment, which is not to be taken for its end. What has ended has no program
// either, and reading that throws.
function wordsOf(directory: string): string {
  const deadline = performance.now() + MAX_WORDLESS_MS;
  for (;;) {
    const words = readFileSync(`${directory}/cmdline`, 'utf8');
    if (words !== '' || performance.now() > deadline) return words;
    readlinkSync(`${directory}/exe`);
  }
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
