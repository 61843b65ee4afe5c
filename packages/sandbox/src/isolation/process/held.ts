// Processes and what they hold: which process a number stands for (numbers are used again, a number together with a start time is not), and
// what the kernel showed of a sandbox when it was verified, held against what it shows when its command comes.
//
// A mount keeps the directory it was made of, whatever becomes of the path; but the kernel takes a mount away when somebody
// on the host removes the directory it lies on, and the number of that directory may be given to the next one. A `.git` that
// was removed and made anew would then look the same in every plan, and be writable inside. The table of mounts tells.

import { readFileSync, readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { isInPlace, isReplaced, isSameFile, isSameNumber } from '../../workspace/file-identity.ts';
import { isEnding, unlessHidden } from '../kernel.ts';
import { processIds } from '../../lifecycle/processes.ts';

const ENDING = Symbol('it ends');
const SLOWEST_LOOK_MS = 20;
const MAX_MS = 5000;
const SOON_MS = 1.5;

/** What was seen of a sandbox that waits. */
export interface Held {
  readonly process: ProcessIdentity;
  /** Its table of mounts, without what becomes of the paths they were made of. */
  readonly mounts: string;
}

/**
 * Looks at a process of a sandbox that was verified; null where it cannot be seen from here. `containerId` is what its
 * control group must name; empty where the process is known to be the sandbox’s.
 */
export function hold(pid: number, containerId: string): Held | null {
  try {
    if (!readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(containerId)) return null;
    const mounts = mountsOf(pid);
    const process = identify(pid);
    return process && { process, mounts };
  } catch (error) {
    return unlessHidden(error);
  }
}

/**
 * Throws where the sandbox has ended, its mounts changed, or a path leads somewhere else than when it was checked. Without a
 * pause between the looks: they are a few files of the kernel’s own, and take less time than one turn of the loop. The table
 * comes last: it is what the command will have.
 */
export function assertHeld({ process, mounts }: Held, spec: Pick<SandboxSpec, 'mounts' | 'identity'>): void {
  assertInPlace(spec, isSameNumber);
  assertMounted({ process, mounts }, spec);
}

function assertMounted({ process, mounts }: Held, spec: Pick<SandboxSpec, 'mounts' | 'identity'>): void {
  const table = tableNow(process.pid);
  if (table === ENDING || !isAlive(process))
    throw new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason: 'it ended while it waited' });
  if (table !== mounts) assertMasked(mounts, table ?? '', spec);
}

// A command may rename a directory above a mask: the kernel shows the mask at another path from then on, and the mask still hides the
// same file. Its last name only somebody on the host can change, because inside it is a mount point.
function assertMasked(before: string, now: string, spec: Pick<SandboxSpec, 'mounts'>): void {
  const masks = new Map(
    spec.mounts.flatMap(({ covers, target }) => (covers ? [[asInTable(target), covers.path] as const] : [])),
  );
  const rows = new Map(rowsOf(now));
  const ids = new Set<string>();
  for (const [id, row] of rowsOf(before)) {
    const path = masks.get(targetOf(row));
    if (path === undefined) continue;
    ids.add(id);
    const found = rows.get(id);
    if (found === undefined || lastName(found) !== lastName(row)) throw different(unmasked(path));
  }
  const others = (table: string): string =>
    rowsOf(table)
      .map(([id, row]) => (ids.has(id) ? id : row))
      .join('\n');
  if (others(before) !== others(now)) throw different('its mounts are not those that were compared with its plan');
}

function unmasked(path: string): string {
  return `${path}, which is masked, was replaced, renamed or removed on this machine, and the mask is gone with it`;
}

function rowsOf(table: string): [id: string, row: string][] {
  return table.split('\n').map(row => [row.slice(0, row.indexOf(' ')), row]);
}

// The field after the number, the number above and the device.
function targetOf(row: string): string {
  return row.split(' ', 4)[3] ?? '';
}

function lastName(row: string): string {
  const target = targetOf(row);
  return target.slice(target.lastIndexOf('/') + 1);
}

// As the kernel writes a path in the table.
function asInTable(path: string): string {
  return path.replaceAll(/[ \t\n\\]/g, sign => `\\${sign.charCodeAt(0).toString(8).padStart(3, '0')}`);
}

/** Throws where a mount source is not the one that was checked; unless told otherwise, although it may have its number. */
export function assertInPlace({ mounts }: Pick<SandboxSpec, 'mounts'>, same = isSameFile): void {
  // All masks have the same source.
  const sources = new Map(mounts.map(mount => [mount.source, mount]));
  const other = [...sources.values()].find(mount => !isInPlace(mount, same));
  if (other) throw different(`${other.source} is not what was checked`);
}

// Where nothing is at the path any more, a directory above it was renamed: the mask is where the file is.
function assertCovered({ mounts }: Pick<SandboxSpec, 'mounts'>): void {
  for (const { covers } of mounts) if (covers && isReplaced(covers)) throw different(unmasked(covers.path));
}

/**
 * A look that throws where what a sandbox has mounted is not what it was: by its table of mounts where that can be seen, else
 * by the birth of what it was made of, which is all that tells a directory from its successor.
 */
export function sameness(spec: Pick<SandboxSpec, 'mounts' | 'identity'>, held: Held | null): () => void {
  return () => {
    if (held) return assertHeld(held, spec);
    assertInPlace(spec);
    assertCovered(spec);
  };
}

/**
 * The same look while a command runs: that somebody has put something else at the path of a mount does not matter as long as
 * the mount is there. Where that cannot be seen, the protected parts alone count: only their mounts go with them.
 */
export function protection(spec: Pick<SandboxSpec, 'mounts' | 'identity'>, held: Held | null): () => void {
  const parts = { mounts: spec.mounts.filter(({ purpose }) => purpose === 'protected') };
  return () => {
    if (held) return assertMounted(held, spec);
    assertInPlace(parts);
    assertCovered(spec);
  };
}

/**
 * Settles when the processes that a sandbox ends with have ended: its first one, since the kernel ends every other before it
 * says so, or all of its runtime’s. That word comes long before an engine’s. Rejects where one lives on.
 */
export async function endOfAll(lives: readonly ProcessIdentity[], clock: Clock): Promise<void> {
  const deadline = clock.monotonic() + MAX_MS;
  // Mostly it is a matter of less than a millisecond, and a timer takes longer than that.
  const soon = performance.now() + SOON_MS;
  while (lives.some(isAlive) && performance.now() < soon)
    await new Promise<void>(resolve => void setImmediate(resolve));
  for (let pauseMs = 1; lives.some(isAlive); pauseMs = Math.min(pauseMs * 2, SLOWEST_LOOK_MS)) {
    if (clock.monotonic() > deadline)
      throw new AcodeError('ACODE-SBX-018', { operation: 'ending the sandbox', reason: 'a process of it lives on' });
    await new Promise<void>(resolve => void clock.after(pauseMs, resolve));
  }
}

// While a process ends, the kernel puts its mounts away before it says that the process is over. One that lives and must not be looked
// at any more is another matter: it could when it was verified.
function tableNow(pid: number): string | typeof ENDING | null {
  try {
    return mountsOf(pid);
  } catch (error) {
    return isEnding(error) ? ENDING : unlessHidden(error);
  }
}

// Without the fourth field: where what is mounted lies on its device. The kernel writes another when somebody renames or replaces
// that on the host, and the mount stays what it was.
function mountsOf(pid: number): string {
  const table = readFileSync(`/proc/${pid}/mountinfo`, 'utf8');
  return table.replaceAll(/^(\S+ \S+ \S+) \S+/gm, '$1');
}

function different(detail: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', { violation: 'MountMismatch', detail });
}

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
