// Who holds a lock, in a text short enough for a symbolic link, and whether they are provably gone.

import { createHash } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { codeOf } from '../contract/system-error.ts';

/** What is known of a process, as its locks say it. An unknown part is `-`, and proves nothing. */
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
  look(pid: number): { readonly start: string; readonly over: boolean } | null;
}

const UNKNOWN = '-';
const TEXT = /^(\d{1,10})\.(\d{1,20}|-)\.([0-9a-f]{16}|-)\.(\d{1,20}|-)\.([0-9a-f]{8})$/;

/** This process. */
export function thisHolder(): Holder {
  return {
    pid: process.pid,
    start: system.look(process.pid)?.start ?? UNKNOWN,
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

/** Whether a holder is gone beyond doubt, seen from `me`. Whatever cannot be known counts as alive. */
export function isProvablyGone(holder: Holder, me: Holder, processes: Processes = system): boolean {
  if (holder.machine !== me.machine) return false;
  if (holder.boot !== me.boot) return holder.boot !== UNKNOWN && me.boot !== UNKNOWN;
  if (holder.namespace !== me.namespace || !namespaceCounts(me)) return false;
  const exists = processes.exists(holder.pid);
  return exists === true ? isAnother(holder, processes) : exists === false;
}

// Whether the process that has this id now is not the holder, or is but will never do anything again.
function isAnother({ pid, start }: Holder, processes: Processes): boolean {
  const found = processes.look(pid);
  // A mount of /proc can hide processes that exist, so that not being able to look is no proof.
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
  look(pid) {
    try {
      return processLine(readFileSync(`/proc/${pid}/stat`, 'latin1'));
    } catch {
      return null;
    }
  },
};

/** What /proc/<pid>/stat says. A zombie can do nothing any more once its last thread is gone. */
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
