// When a background process ends by itself: nobody uses it, or what it serves is not there any more.

import { closeSync, constants, lstatSync, openSync, statSync } from 'node:fs';
import { directoryMark } from './request.ts';

/** After so long without a command it ends. */
const IDLE_MS = 10 * 60_000;
// How late it may notice that it is not wanted any more.
const CHECK_MS = 1000;

/** What a background process looks at. */
export interface Watched {
  readonly workspace: string;
  /** The path of its socket. */
  readonly socket: string;
  /** The file it was started from. */
  readonly entry: string;
  /** How long nothing has run; 0 while something does. */
  idleMs(): number;
}

/** Why it ends. */
export type EndReason = 'idle' | 'workspace gone' | 'socket gone' | 'acode replaced';

/** The longest idle time: `ACODE_SERVE_IDLE_SECONDS` may shorten it, and never lengthen. */
export function longestIdle(env: Readonly<Record<string, string | undefined>>): number {
  const asked = Number(env['ACODE_SERVE_IDLE_SECONDS'] || NaN) * 1000;
  return asked > 0 ? Math.min(asked, IDLE_MS) : IDLE_MS;
}

/** Calls `end` once, when the process is not wanted any more. */
export function watchLifetime(watched: Watched, longestIdleMs: number, end: (why: EndReason) => void): Disposable {
  // Held open: the number of a directory that was removed could be given to the next one at once.
  const held = openSync(watched.workspace, constants.O_RDONLY | constants.O_DIRECTORY);
  const before = marks(watched);
  const timer = setInterval(() => {
    const why = reasonToEnd(before, marks(watched), watched.idleMs() >= longestIdleMs);
    if (why === null) return;
    clearInterval(timer);
    end(why);
  }, CHECK_MS);
  return {
    [Symbol.dispose]: () => {
      clearInterval(timer);
      closeSync(held);
    },
  };
}

interface Marks {
  readonly workspace: string | null;
  readonly socket: string | null;
  readonly entry: string | null;
}

function reasonToEnd(before: Marks, now: Marks, isIdle: boolean): EndReason | null {
  // One that was removed and made anew is another one, though it has the same path.
  if (before.workspace !== now.workspace) return 'workspace gone';
  // Whoever has its place now is found in its stead.
  if (before.socket !== now.socket) return 'socket gone';
  // What it has not loaded yet is another version’s by now.
  if (before.entry !== now.entry) return 'acode replaced';
  return isIdle ? 'idle' : null;
}

function marks({ workspace, socket, entry }: Watched): Marks {
  return {
    workspace: markOf(() => directoryMark(statSync(workspace))),
    socket: markOf(() => directoryMark(lstatSync(socket))),
    entry: markOf(() => `${directoryMark(statSync(entry))} ${statSync(entry).mtimeMs}`),
  };
}

function markOf(look: () => string): string | null {
  try {
    return look();
  } catch {
    return null;
  }
}
