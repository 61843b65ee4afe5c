// Which process a number stands for: numbers are used again, a number together with a start time is not.

import { readFileSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { processIds } from '../../lifecycle/processes.ts';

/** A process of this host that cannot be mistaken for another. */
export interface ProcessIdentity {
  readonly pid: number;
  /** In ticks since the machine started. */
  readonly startTime: string;
}

// How many numbers after its parent’s a child is looked for before all of them are: it is nearly always the next one.
const NEAR = 16;

/** The process with a number, as it is now; null where there is none, or only its remains. */
export function identify(pid: number): ProcessIdentity | null {
  try {
    const { state, startTime } = parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    return isOver(state) ? null : { pid, startTime };
  } catch {
    return null;
  }
}

/** Whether a process still lives. */
export function isAlive({ pid, startTime }: ProcessIdentity): boolean {
  return identify(pid)?.startTime === startTime;
}

/** The only child of a process; null where it has none, or several. */
export async function onlyChild(parent: number): Promise<number | null> {
  const children = await childrenOf(parent);
  return children.length === 1 ? (children[0] ?? null) : null;
}

/**
 * Whether a process group has a living member. One that has ended and was not buried yet is still a member, and on some
 * machines its burial takes seconds, so where the system lists processes they are looked at one by one.
 */
export function groupLives(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch {
    return false;
  }
  const listed = processIds();
  return listed.length === 0 || listed.some(pid => isLivingMember(pid, group));
}

function isLivingMember(pid: number, group: number): boolean {
  try {
    const stat = parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8'));
    return stat.group === group && !isOver(stat.state);
  } catch {
    return false;
  }
}

function isOver(state: string): boolean {
  return state === 'Z' || state === 'X';
}

const MAX_ROUNDS = 20;

/**
 * Sends a signal to a process and everything below it. False where one of them is not ours to signal, or the kernel does not list
 * children. Repeated until no other is found: one that was not stopped yet may have started one more.
 */
export function signalTree(first: ProcessIdentity, signal: 'SIGSTOP' | 'SIGCONT' | 'SIGKILL'): boolean {
  const done = new Set<number>();
  try {
    for (let round = 0; round < MAX_ROUNDS && isAlive(first); round += 1) {
      const found = treeOf(first.pid).filter(pid => !done.has(pid));
      if (found.length === 0) return true;
      for (const pid of found) {
        done.add(pid);
        process.kill(pid, signal);
      }
    }
  } catch {
    // Not ours, or it ended between the look and the signal.
  }
  return false;
}

function treeOf(top: number): number[] {
  const found = [top];
  for (const pid of found)
    for (const thread of readdirSync(`/proc/${pid}/task`))
      found.push(
        ...readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
      );
  return found;
}

async function childrenOf(parent: number): Promise<number[]> {
  const listed = await readFile(`/proc/${parent}/task/${parent}/children`, 'utf8').catch(() => null);
  if (listed !== null) return listed.split(' ').filter(Boolean).map(Number);
  const isChild = (pid: number): boolean => parentOf(pid) === parent;
  // Kernels may be built without that list.
  const near = Array.from({ length: NEAR }, (_, index) => parent + 1 + index).filter(isChild);
  if (near.length > 0) return near;
  return processIds().filter(isChild);
}

function parentOf(pid: number): number | null {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8')).parent;
  } catch {
    return null;
  }
}

/** Reads the fields of a stat file. The name may hold anything, also parentheses, so they are counted from its end. */
export function parseStat(content: string): {
  readonly state: string;
  readonly parent: number;
  readonly group: number;
  readonly startTime: string;
} {
  const fields = content.slice(content.lastIndexOf(')') + 2).split(' ');
  return { state: fields[0] ?? '', parent: Number(fields[1]), group: Number(fields[2]), startTime: fields[19] ?? '' };
}
