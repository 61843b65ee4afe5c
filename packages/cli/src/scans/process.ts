// Process facts from /proc: start time, terminal and foreground process group. Null on systems without /proc.

import { readFileSync } from 'node:fs';

/** A process and its terminal. */
export interface ProcessFacts {
  /** In ticks since boot. */
  readonly start: string;
  readonly group: number;
  /** The process that leads the session. */
  readonly session: number;
  /** The terminal of the session; 0 where it has none. */
  readonly terminal: number;
  /** The process group in the foreground of that terminal. */
  readonly foreground: number;
}

/** What is known of a process; null where there is none, or the system does not tell. */
export function processFacts(pid: number): ProcessFacts | null {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return null;
  }
}

/** When a process started, which tells it from a later one with the same id. */
export function processStart(pid: number): string | null {
  return processFacts(pid)?.start ?? null;
}

/** The content of /proc/<pid>/stat. */
export function parseStat(text: string): ProcessFacts | null {
  // The name of the program stands in brackets, and may hold spaces and brackets itself.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [, , group, session, terminal, foreground] = fields.map(Number);
  const start = fields[19];
  if (start === undefined || group === undefined || session === undefined) return null;
  return { start, group, session, terminal: terminal ?? 0, foreground: foreground ?? -1 };
}
