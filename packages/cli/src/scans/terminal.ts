// Terminal notice after a command has ended: only on the same terminal, and only at its prompt.

import { closeSync, constants, fstatSync, lstatSync, openSync, readlinkSync, writeSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { isatty } from 'node:tty';
import { processFacts } from './process.ts';
import type { CallersTerminal } from './store.ts';

/** The terminal at the standard error of a process of this user; null where it has none, or the system does not tell. */
export function terminalOf(pid: number, uid: number): CallersTerminal | null {
  try {
    const path = readlinkSync(`/proc/${pid}/fd/2`);
    const facts = processFacts(pid);
    const leader = facts && processFacts(facts.session);
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (!path.startsWith('/dev/') || !leader || leader.terminal === 0 || !found || !isOwn(found, uid)) return null;
    return { path, device: found.rdev, madeMs: found.ctimeMs, leader: facts.session, leaderStart: leader.start };
  } catch {
    return null;
  }
}

/** What became of a word to a terminal. `busy`: another program has it, and would have its screen spoilt. */
export type Said = 'said' | 'busy' | 'gone';

/**
 * Writes lines to a terminal, beginning on a fresh one. Only while the shell that leads its session waits at its prompt: what an
 * editor or another command shows is left alone.
 */
export function sayOn(terminal: CallersTerminal, uid: number, lines: readonly string[]): Said {
  const leader = processFacts(terminal.leader);
  if (leader?.start !== terminal.leaderStart || leader.terminal === 0) return 'gone';
  if (leader.foreground !== leader.group) return 'busy';
  return writeTo(terminal, uid, `\r\n${lines.map(line => `${line}\r\n`).join('')}`) ? 'said' : 'gone';
}

// A shell that edits its line has switched off what would turn a line feed into a new line, so the text has both.
function writeTo({ path, device, madeMs }: CallersTerminal, uid: number, text: string): boolean {
  let file = -1;
  try {
    file = openSync(path, constants.O_WRONLY | constants.O_NOCTTY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    const found = fstatSync(file);
    // Names of terminals are used again; one that was made later is another one.
    const isSame = found.rdev === device && found.ctimeMs === madeMs;
    if (!isSame || !isOwn(found, uid) || !isatty(file)) return false;
    writeSync(file, text);
    return true;
  } catch {
    return false;
  } finally {
    if (file >= 0) closeSync(file);
  }
}

function isOwn(found: Stats, uid: number): boolean {
  return found.isCharacterDevice() && found.uid === uid;
}
