// Recent commands: when the last command in each workspace ended. A second one soon after starts a background process.

import { closeSync, constants, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import type { SocketDirectory } from './socket-path.ts';

const FILE = 'recent-commands';
const MAX_ENTRIES = 32;
const MAX_BYTES = 4096;
const LINE = /^(serve-[0-9a-f]{16}\.sock) (\d{1,15})$/;
// A link or a pipe of that name is not ours.
const PLAIN = constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Two commands within this time make a workspace one that is worked in. */
const RECENT_MS = 10 * 60_000;

/**
 * Notes that a command ended. There is no lock: where two commands write at once one of them may be forgotten, and the
 * background process starts one command later.
 *
 * @param name the name of the socket that a server for such commands would have
 * @returns whether another such command had ended within the last ten minutes
 */
export function noteEnd(place: SocketDirectory, name: string, now: number): boolean {
  let wasRecent = false;
  change(place, ends => {
    wasRecent = isRecent(ends, name, now);
    // The one that was noted last is the last to be forgotten.
    ends.delete(name);
    ends.set(name, now);
  });
  return wasRecent;
}

/** Begins to count anew, because a server was started: should it end at once, it is started again by two further commands. */
export function forgetEnds(place: SocketDirectory, name: string): void {
  change(place, ends => ends.delete(name));
}

/** Whether such a command ended within the last ten minutes. */
export function endedRecently(place: SocketDirectory, name: string, now: number): boolean {
  try {
    const file = openSync(place.path(FILE), constants.O_RDONLY | PLAIN);
    try {
      return isRecent(endsIn(file), name, now);
    } finally {
      closeSync(file);
    }
  } catch {
    return false;
  }
}

function change(place: SocketDirectory, edit: (ends: Map<string, number>) => void): void {
  const file = openSync(place.path(FILE), constants.O_RDWR | constants.O_CREAT | PLAIN, 0o600);
  try {
    const ends = endsIn(file);
    edit(ends);
    const lines = [...ends].slice(-MAX_ENTRIES).map(([name, at]) => `${name} ${at}\n`);
    const bytes = Buffer.from(lines.join(''));
    writeSync(file, bytes, 0, bytes.length, 0);
    ftruncateSync(file, bytes.length);
  } finally {
    closeSync(file);
  }
}

// A time that is still to come was written before the clock was set back.
function isRecent(ends: ReadonlyMap<string, number>, name: string, now: number): boolean {
  const at = ends.get(name);
  return at !== undefined && at <= now && now - at < RECENT_MS;
}

// Two that wrote at once may have left half a line; it does not count.
function endsIn(file: number): Map<string, number> {
  const buffer = Buffer.alloc(MAX_BYTES);
  const text = buffer.toString('utf8', 0, readSync(file, buffer, 0, MAX_BYTES, 0));
  return new Map(
    text.split('\n').flatMap(line => {
      const [, name, at] = LINE.exec(line) ?? [];
      return name === undefined ? [] : [[name, Number(at)] as const];
    }),
  );
}
