// Whose turn it is to write a record. The name of a lock is the record’s own number, so that a lock that is left behind can
// never stop a later record, and nobody ever has to take away a lock that somebody may still hold. docs/adr/0021 has the proof.

import { readlinkSync, readdirSync, symlinkSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '../contract/system-error.ts';
import { holderText, isProvablyGone, parseHolder } from './lock-holder.ts';
import type { Holder } from './lock-holder.ts';

// Each is a process that died within microseconds; more of them than this is no accident.
const MAX_GENERATIONS = 1000;
const LOCK = /^lock\.(\d{1,15})(?:\.\d{1,4})?$/;

/** What came of asking for the turn. */
export type Turn =
  | { readonly held: true; readonly generation: number }
  /** Somebody else has it, or had it a moment ago; `holder` where that is known. */
  | { readonly held: false; readonly path: string; readonly holder: Holder | null };

/**
 * Asks for the right to write record `seq`. It counts only once the head of the log, read afterwards, is still the record
 * before it: whoever lost the race holds a lock for a record that exists. Whether a holder is dead is asked only with
 * `examine`: most are alive, and done before that would be known.
 */
export function takeTurn(
  directory: string,
  seq: number,
  me: Holder,
  examine: boolean,
  isGone: typeof isProvablyGone = isProvablyGone,
): Turn {
  const gone: string[] = [];
  for (let generation = 0; generation < MAX_GENERATIONS; generation += 1) {
    const path = lockPath(directory, seq, generation);
    if (create(path, holderText(me))) {
      if (stillThere(directory, seq, gone)) return { held: true, generation };
      // One that seemed dead had given its turn back first, and somebody may have it by now.
      remove(path);
      return { held: false, path, holder: null };
    }
    if (!examine) return { held: false, path, holder: null };
    const text = read(path);
    const holder = text === null ? null : parseHolder(text);
    if (text === null || holder === null || !isGone(holder, me)) return { held: false, path, holder };
    gone.push(text);
  }
  return { held: false, path: lockPath(directory, seq, 0), holder: null };
}

/** Gives the turn back. Once the record exists, every lock for it is without meaning, those of the dead included. */
export function endTurn(directory: string, seq: number, generation: number, written: boolean): void {
  for (let at = generation; at >= (written ? 0 : generation); at -= 1) remove(lockPath(directory, seq, at));
}

/** Whether anybody holds, or died holding, the turn for a record. */
export function isBeingWritten(directory: string, seq: number): boolean {
  return read(lockPath(directory, seq, 0)) !== null;
}

/** Takes away what the dead left for records that exist. */
export function sweepTurns(directory: string, head: number): void {
  for (const name of readdirSync(directory)) {
    const found = LOCK.exec(name);
    if (found && Number(found[1]) <= head) remove(join(directory, name));
  }
}

function lockPath(directory: string, seq: number, generation: number): string {
  return join(directory, generation === 0 ? `lock.${seq}` : `lock.${seq}.${generation}`);
}

// All that were found dead below ours, and not only the last: any of them could be in new hands.
function stillThere(directory: string, seq: number, gone: readonly string[]): boolean {
  return gone.every((text, generation) => read(lockPath(directory, seq, generation)) === text);
}

// A symbolic link comes into being with its content and only where nothing is; a file would be empty for a moment, and the
// lock of a writer who was killed in that moment would name nobody.
function create(path: string, text: string): boolean {
  try {
    symlinkSync(text, path);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

function read(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT') return null;
    // Something that is no lock of ours stands there; it names nobody, so nobody can be proved dead.
    if (code === 'EINVAL') return '';
    throw error;
  }
}

function remove(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}
