// Whether anything in a warm sandbox has run since it began to wait, as the kernel counts it.
//
// The shell that waits is the image’s own, so what changes in the workspace meanwhile may be its work. It may also be the user’s,
// and mostly is. A process that was asleep at two moments and was not switched in between has not run in between.

import { readFileSync, readdirSync } from 'node:fs';
import type { Clock } from '../../../contract/ports.ts';
import type { RestPeriod } from '../../../contract/scan.ts';
import { clockOffsetMs, setBackMs } from '../../../workspace/file-times.ts';

const GROUPS = '/sys/fs/cgroup';
// A shell has begun to wait soon after its container was verified; where the machine is busy, later.
const LOOKS_AFTER_MS = [100, 400, 1000, 3000, 10_000];
const COUNTED = /^State:\s+S|^Threads:\s+1$|^(?:non)?voluntary_ctxt_switches:\s+\d+$/;
const START_TIME = 19;

interface Reading {
  readonly processes: string;
  readonly beganMs: number;
  readonly endedMs: number;
  readonly clockOffset: number;
}

/** Watches a sandbox that waits. `init` is its first process: the engine’s own, which wakes up every second and does nothing. */
export class RestWatch {
  readonly #init: number;
  readonly #clock: Clock;
  #first: Reading | null = null;
  #cancel: () => void = () => undefined;

  constructor(init: number, clock: Clock) {
    this.#init = init;
    this.#clock = clock;
    this.#lookLater(0);
  }

  /** The time up to now in which nothing has run in it; null where something has, or it cannot be seen from here. */
  period(): RestPeriod | null {
    const first = this.#first;
    const now = first && read(this.#init);
    if (!now || now.processes !== first.processes) return null;
    // Where the clock was set back, times of files say nothing about which came first.
    if (setBackMs(first.clockOffset, now.clockOffset, now.beganMs - first.endedMs) > 0) return null;
    return { fromMs: first.endedMs, toMs: now.beganMs };
  }

  stop(): void {
    this.#cancel();
  }

  #lookLater(at: number): void {
    const ms = LOOKS_AFTER_MS[at];
    if (ms === undefined) return;
    this.#cancel = this.#clock.after(ms, () => {
      const now = read(this.#init);
      if (now?.processes !== this.#first?.processes) this.#first = now;
      this.#lookLater(at + 1);
    });
  }
}

// Null where a process is awake, or not all can be seen.
function read(init: number): Reading | null {
  try {
    const beganMs = Date.now();
    const clockOffset = clockOffsetMs();
    const group = groupOf(init);
    const pids = group && pidsIn(group, init);
    if (!pids || pids.length === 0) return null;
    const processes = pids.map(counted);
    // One that was started meanwhile is in the second list, or has ended.
    if (processes.includes(null) || pidsIn(group, init)?.join() !== pids.join()) return null;
    return { processes: processes.join('\n'), beganMs, endedMs: Date.now(), clockOffset };
  } catch {
    return null;
  }
}

// The directory of a control group: one that holds the process, since this process may see another part of the hierarchy.
function groupOf(pid: number): string | null {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('\n');
  const places = lines.flatMap(line => {
    const [, controllers = '', path = ''] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? [];
    if (path === '' || path === '/') return [];
    return controllers === '' ? [`${GROUPS}${path}`] : [`${GROUPS}/${controllers}${path}`];
  });
  return places.find(place => listed(place)?.includes(pid)) ?? null;
}

// Every process but the first; null where there is a group below, whose processes would not be listed.
function pidsIn(group: string, init: number): readonly number[] | null {
  if (readdirSync(group, { withFileTypes: true }).some(entry => entry.isDirectory())) return null;
  return listed(group)?.filter(pid => pid !== init) ?? null;
}

function listed(group: string): readonly number[] | null {
  try {
    return readFileSync(`${group}/cgroup.procs`, 'utf8')
      .split('\n')
      .filter(line => line !== '')
      .map(Number)
      .sort((one, other) => one - other);
  } catch {
    return null;
  }
}

// Who a process is and how often it was switched; null where it is awake, or has threads that are counted by themselves.
function counted(pid: number): string | null {
  const lines = readFileSync(`/proc/${pid}/status`, 'utf8')
    .split('\n')
    .filter(line => COUNTED.test(line));
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const started = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[START_TIME];
  return lines.length === 4 && started !== undefined ? [pid, started, ...lines].join(' ') : null;
}
