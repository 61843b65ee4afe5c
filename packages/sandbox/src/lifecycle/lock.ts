// Locks between processes of a user: symbolic links that name their holder, so that a holder who died is noticed. The name of a
// lock of the audit log is the record’s own number, so that a lock that is left behind can never stop a later record, and no
// process ever has to remove a lock that another may still hold. docs/adr/0021 has the proof.

import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, readlinkSync, symlinkSync, unlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../contract/ports.ts';
import { codeOf } from '../contract/system-error.ts';
import { ensurePrivateDirectory } from './directories.ts';

/** Directory and owner of the locks. */
export interface LocksOptions {
  /** The user’s runtime directory. */
  readonly directory: string;
  /** The user. */
  readonly uid: number;
  /** The clock that waits go by. */
  readonly clock: Clock;
}

/** How long a caller waits for a lock. */
export interface LockWait {
  /** The longest wait, in milliseconds. */
  readonly deadlineMs: number;
  /** Cancels it. */
  readonly signal: AbortSignal;
  /** Called once where another process holds it. */
  readonly onWait?: () => void;
}

/** A lock that was not free in time. */
export class LockTimeoutError extends Error {
  /** The name of the class. */
  override readonly name = 'LockTimeoutError';
}

// Not one of a row of locks, as the audit log’s are: each has a directory of its own, and this number.
const ONLY = 1;
const FIRST_PAUSE_MS = 5;
const MAX_PAUSE_MS = 100;

/** The locks of one user, by key. */
export class Locks {
  readonly #options: LocksOptions;
  #holder: Holder | null = null;

  constructor(options: LocksOptions) {
    this.#options = options;
  }

  /** Does work while no other process on this machine does work under the same key. */
  async during<Value>(key: string, waiting: LockWait, work: () => Promise<Value>): Promise<Value> {
    const directory = join(
      this.#options.directory,
      'pulls',
      createHash('sha256').update(key).digest('hex').slice(0, 32),
    );
    await ensurePrivateDirectory(join(this.#options.directory, 'pulls'), this.#options.uid);
    await ensurePrivateDirectory(directory, this.#options.uid);
    const generation = await this.#take(directory, waiting);
    try {
      return await work();
    } finally {
      // Only one’s own: the lock of a holder who died below it still keeps others from taking its name.
      releaseLock(directory, ONLY, generation, false);
    }
  }

  async #take(directory: string, { deadlineMs, signal, onWait }: LockWait): Promise<number> {
    const { clock } = this.#options;
    this.#holder ??= thisHolder();
    const deadline = clock.monotonic() + deadlineMs;
    for (let waits = 0; ; waits += 1) {
      signal.throwIfAborted();
      const lock = takeLock(directory, ONLY, this.#holder, true);
      if (lock.held) return lock.generation;
      if (waits === 0) onWait?.();
      if (clock.monotonic() > deadline) {
        const who = lock.holder === null ? lock.path : `process ${lock.holder.pid} (${lock.path})`;
        throw new LockTimeoutError(`${who} held it for ${deadlineMs / 1000} s`);
      }
      const ms = Math.min(FIRST_PAUSE_MS * 2 ** Math.min(waits, 8), MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
      await new Promise<void>(resolve => void clock.after(ms, resolve));
    }
  }
}

// Each is a process that died within microseconds; more of them than this is no accident.
const MAX_GENERATIONS = 1000;
const LOCK = /^lock\.(\d{1,15})(?:\.\d{1,4})?$/;

/** The outcome of asking for a lock. */
export type LockAttempt =
  | { readonly held: true; readonly generation: number }
  /** Another process has it, or had it a moment ago; `holder` where that is known. */
  | { readonly held: false; readonly path: string; readonly holder: Holder | null };

/**
 * Asks for the right to write record `seq`. It counts only once the head of the log, read afterwards, is still the record
 * before it: the process that lost the race holds a lock for a record that exists. Whether a holder is dead is asked only with
 * `examine`: most are alive, and done before that would be known.
 */
export function takeLock(
  directory: string,
  seq: number,
  me: Holder,
  examine: boolean,
  isGone: typeof isProvablyGone = isProvablyGone,
): LockAttempt {
  const gone: string[] = [];
  for (let generation = 0; generation < MAX_GENERATIONS; generation += 1) {
    const path = lockPath(directory, seq, generation);
    if (createLink(path, holderText(me))) {
      if (stillThere(directory, seq, gone)) return { held: true, generation };
      // One that seemed dead had released its lock first, and another process may have it by now.
      removeLink(path);
      return { held: false, path, holder: null };
    }
    if (!examine) return { held: false, path, holder: null };
    const text = readLink(path);
    const holder = text === null ? null : parseHolder(text);
    if (text === null || holder === null || !isGone(holder, me)) return { held: false, path, holder };
    gone.push(text);
  }
  return { held: false, path: lockPath(directory, seq, 0), holder: null };
}

/** Releases a lock. Once the record exists, every lock for it is without meaning, those of the dead included. */
export function releaseLock(directory: string, seq: number, generation: number, written: boolean): void {
  for (let at = generation; at >= (written ? 0 : generation); at -= 1) removeLink(lockPath(directory, seq, at));
}

/** Whether a process holds, or died holding, the lock for a record. */
export function isBeingWritten(directory: string, seq: number): boolean {
  return readLink(lockPath(directory, seq, 0)) !== null;
}

/** Removes the locks that dead processes left for records that exist. */
export function sweepLocks(directory: string, head: number): void {
  for (const name of readdirSync(directory)) {
    const found = LOCK.exec(name);
    if (found && Number(found[1]) <= head) removeLink(join(directory, name));
  }
}

function lockPath(directory: string, seq: number, generation: number): string {
  return join(directory, generation === 0 ? `lock.${seq}` : `lock.${seq}.${generation}`);
}

// All that were found dead below ours, and not only the last: any of them could be in new hands.
function stillThere(directory: string, seq: number, gone: readonly string[]): boolean {
  return gone.every((text, generation) => readLink(lockPath(directory, seq, generation)) === text);
}

// A symbolic link comes into being with its content and only where nothing is; a file would be empty for a moment, and the
// lock of a writer who was killed in that moment would name no holder.
function createLink(path: string, text: string): boolean {
  try {
    symlinkSync(text, path);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

function readLink(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch (error) {
    const code = codeOf(error);
    if (code === 'ENOENT') return null;
    // Something that is not a lock of ours stands there; it names no process, so none can be proved dead.
    if (code === 'EINVAL') return '';
    throw error;
  }
}

function removeLink(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
}

/** The holder of a lock, as the lock names it. An unknown part is `-`, and proves nothing. */
export interface Holder {
  readonly pid: number;
  /** When the process started, in ticks since boot: process ids are used again. */
  readonly start: string;
  readonly boot: string;
  /** The namespace that the process id counts in. */
  readonly namespace: string;
  /** The machine, since a home directory may be shared by several. */
  readonly machine: string;
}

/** How a process is found; passed in so that tests can be another machine. */
export interface Processes {
  /** Whether there is a process with this id; null where that cannot be said. */
  exists(pid: number): boolean | null;
  /** When it started and whether it can still do anything; null where that cannot be read. */
  inspect(pid: number): { readonly start: string; readonly over: boolean } | null;
}

const UNKNOWN = '-';
const TEXT = /^(\d{1,10})\.(\d{1,20}|-)\.([0-9a-f]{16}|-)\.(\d{1,20}|-)\.([0-9a-f]{8})$/;

/** This process. */
export function thisHolder(): Holder {
  return {
    pid: process.pid,
    start: system.inspect(process.pid)?.start ?? UNKNOWN,
    boot: attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').replaceAll('-', '').slice(0, 16)),
    namespace: namespaceOfThis(),
    machine: machine(),
  };
}

/** The text of a holder. */
export function holderText({ pid, start, boot, namespace, machine: on }: Holder): string {
  return `${pid}.${start}.${boot}.${namespace}.${on}`;
}

/** The holder that a text names; null where it names none. */
export function parseHolder(text: string): Holder | null {
  const found = TEXT.exec(text);
  if (!found) return null;
  const [, pid = '', start = '', boot = '', namespace = '', on = ''] = found;
  return { pid: Number(pid), start, boot, namespace, machine: on };
}

/** Whether a holder is certainly dead, seen from `me`. A holder of unknown state counts as alive. */
export function isProvablyGone(holder: Holder, me: Holder, processes: Processes = system): boolean {
  if (holder.machine !== me.machine) return false;
  if (holder.boot !== me.boot) return holder.boot !== UNKNOWN && me.boot !== UNKNOWN;
  if (holder.namespace !== me.namespace || !namespaceCounts(me)) return false;
  const exists = processes.exists(holder.pid);
  return exists === true ? isAnother(holder, processes) : exists === false;
}

// Whether the process that has this id now is not the holder, or is but will never do anything again.
function isAnother({ pid, start }: Holder, processes: Processes): boolean {
  const found = processes.inspect(pid);
  // A mount of /proc can hide processes that exist, so that a failed read is no proof.
  return found !== null && start !== UNKNOWN && (found.start !== start || found.over);
}

// On Linux a process id says nothing without its namespace; other systems have one for all.
function namespaceCounts({ namespace }: Holder): boolean {
  return namespace !== UNKNOWN || process.platform !== 'linux';
}

const system: Processes = {
  exists(pid) {
    try {
      process.kill(pid, 0);
      return true;
    } catch (error) {
      const code = codeOf(error);
      if (code === 'ESRCH') return false;
      return code === 'EPERM' ? true : null;
    }
  },
  inspect(pid) {
    try {
      return processLine(readFileSync(`/proc/${pid}/stat`, 'latin1'));
    } catch {
      return null;
    }
  },
};

/** What /proc/<pid>/stat says. A zombie can do nothing once its last thread has ended. */
export function processLine(text: string): { start: string; over: boolean } | null {
  // The name of the program stands in brackets, and may hold spaces and brackets itself.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, threads, start] = [fields[0], fields[17], fields[19]];
  if (start === undefined || !/^\d+$/.test(start)) return null;
  return { start, over: (state === 'Z' || state === 'X') && (threads === '1' || threads === '0') };
}

function namespaceOfThis(): string {
  // A /proc of another namespace would number us differently, and everybody else too.
  if (attempt(() => readlinkSync('/proc/self')) !== String(process.pid)) return UNKNOWN;
  return /\[(\d+)\]/.exec(attempt(() => readlinkSync('/proc/self/ns/pid')))?.[1] ?? UNKNOWN;
}

function machine(): string {
  const id = attempt(() => readFileSync('/etc/machine-id', 'utf8').trim());
  const name = id === '' || id === UNKNOWN ? hostname() : id;
  return createHash('sha256').update(name).digest('hex').slice(0, 8);
}

function attempt(read: () => string): string {
  try {
    return read();
  } catch {
    return UNKNOWN;
  }
}
