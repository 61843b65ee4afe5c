// The limits and counters of control groups, in the words of version 1 and version 2. Pure.

import type { Limits } from '../../contract/policy.ts';
import type { Usage } from '../../contract/result.ts';

/** The parts of the kernel that hold groups of processes to something. */
export type Controller = 'memory' | 'pids' | 'cpu' | 'cpuacct';

/** One limit as it is written and read back. */
export interface Setting {
  readonly controller: Controller;
  readonly file: string;
  readonly value: string;
  /** Whether the sandbox is not made without it; others depend on how the kernel was built. */
  readonly needed: boolean;
}

/** What a group has counted. */
export interface Counted {
  readonly oomKills: number;
  readonly pidsRefused: number;
}

const PAGE_BYTES = 4096;
const PERIOD_US = 100_000;
// The kernel takes no less.
const LEAST_QUOTA_US = 1000;
// The process of bubblewrap that waits outside the sandbox is in the group too.
const OUTSIDE = 1;

/** What is written into a group for its limits, in this order. */
export function settingsFor(version: 1 | 2, limits: Limits): readonly Setting[] {
  const memory = pages(limits.memoryBytes);
  const quota = Math.max(LEAST_QUOTA_US, Math.round(limits.cpus * PERIOD_US));
  const pids = String(limits.pids + OUTSIDE);
  if (version === 2)
    return [
      { controller: 'memory', file: 'memory.max', value: String(memory), needed: true },
      { controller: 'memory', file: 'memory.swap.max', value: String(pages(limits.swapBytes)), needed: false },
      { controller: 'pids', file: 'pids.max', value: pids, needed: true },
      { controller: 'cpu', file: 'cpu.max', value: `${quota} ${PERIOD_US}`, needed: true },
    ];
  return [
    { controller: 'memory', file: 'memory.limit_in_bytes', value: String(memory), needed: true },
    // Memory and swap together; never less than memory alone, so it comes after it.
    {
      controller: 'memory',
      file: 'memory.memsw.limit_in_bytes',
      value: String(pages(limits.memoryBytes + limits.swapBytes)),
      needed: false,
    },
    { controller: 'pids', file: 'pids.max', value: pids, needed: true },
    { controller: 'cpu', file: 'cpu.cfs_period_us', value: String(PERIOD_US), needed: true },
    { controller: 'cpu', file: 'cpu.cfs_quota_us', value: String(quota), needed: true },
  ];
}

type Read = (controller: Controller, file: string) => Promise<string | null>;

/** Reads what a group has counted. */
export async function counted(version: 1 | 2, read: Read): Promise<Counted & { readonly usage?: Usage }> {
  return version === 2 ? countedInOne(read) : countedApart(read);
}

async function countedInOne(read: Read): Promise<Counted & { readonly usage?: Usage }> {
  const [events, peak, pids, cpu] = await Promise.all([
    read('memory', 'memory.events'),
    read('memory', 'memory.peak'),
    read('pids', 'pids.events'),
    read('memory', 'cpu.stat'),
  ]);
  return {
    oomKills: field(events, 'oom_kill'),
    pidsRefused: field(pids, 'max'),
    ...usage(peak, field(cpu, 'usage_usec') / 1e3, field(cpu, 'throttled_usec') / 1e3),
  };
}

async function countedApart(read: Read): Promise<Counted & { readonly usage?: Usage }> {
  const [oom, peak, pids, cpu, time] = await Promise.all([
    read('memory', 'memory.oom_control'),
    read('memory', 'memory.max_usage_in_bytes'),
    read('pids', 'pids.events'),
    read('cpu', 'cpu.stat'),
    read('cpuacct', 'cpuacct.usage'),
  ]);
  return {
    oomKills: field(oom, 'oom_kill'),
    pidsRefused: field(pids, 'max'),
    ...usage(peak, Number(time ?? 0) / 1e6, field(cpu, 'throttled_time') / 1e6),
  };
}

function usage(peak: string | null, cpuMs: number, throttledMs: number): { usage?: Usage } {
  return peak === null ? {} : { usage: { peakMemoryBytes: Number(peak), cpuMs, throttledMs } };
}

function field(content: string | null, name: string): number {
  const line = (content ?? '').split('\n').find(row => row.startsWith(`${name} `));
  return line === undefined ? 0 : Number(line.slice(name.length + 1));
}

// The kernel counts in whole pages.
function pages(bytes: number): number {
  return Math.floor(bytes / PAGE_BYTES) * PAGE_BYTES;
}
