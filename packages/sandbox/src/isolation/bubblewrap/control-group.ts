// Control groups: what holds all processes of a sandbox together to its limits, where this user was given one to divide.

import { randomBytes } from 'node:crypto';
import { access, constants, mkdir, readdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import type { Limits } from '../../contract/policy.ts';
import type { Usage } from '../../contract/result.ts';
import { isWithin } from '../../workspace/file-identity.ts';
import { type KernelMount, parseMountinfo } from '../kernel.ts';
import { identify } from '../process/held.ts';

/** The control groups in which this process may make others, by controller. */
export interface Delegation {
  readonly version: 1 | 2;
  readonly directories: Readonly<Partial<Record<Controller, string>>>;
}

const NEEDED: readonly Controller[] = ['memory', 'pids'];
const ALL: readonly Controller[] = ['memory', 'pids', 'cpu', 'cpuacct'];
const NAME = /^acode-(\d+)-(\d+)-[0-9a-f]{8}$/;
const REMOVAL_MS = 3000;
const PAUSE_MS = 10;

/** Looks for control groups that this process may divide; null where it was given none. */
export async function findDelegation(): Promise<Delegation | null> {
  const [own, mounts] = await Promise.all([text('/proc/self/cgroup'), text('/proc/self/mountinfo')]);
  return delegationAt(placesOf(own ?? '', parseMountinfo(mounts ?? '')));
}

/** Where a process is in the hierarchies of control groups, as paths of the host. */
interface Places {
  /** In version 2: its group, and the top of the hierarchy. */
  readonly unified: { readonly directory: string; readonly top: string } | null;
  /** In version 1: its group by controller. */
  readonly separate: ReadonlyMap<string, string>;
}

/** What may be divided from a place; null where nothing may. */
export async function delegationAt({ unified, separate }: Places): Promise<Delegation | null> {
  return (await divided(unified)) ?? (await apart(separate));
}

/** Where this process is in each hierarchy, as paths of the host. Pure. */
export function placesOf(own: string, mounts: readonly KernelMount[]): Places {
  let unified: Places['unified'] = null;
  const separate = new Map<string, string>();
  for (const line of own.split('\n')) {
    const [, names = '', path = ''] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    const mount =
      path === '' ? undefined : mounts.find(candidate => serves(candidate, names) && isWithin(path, candidate.root));
    if (!mount) continue;
    const directory = join(mount.target, relative(mount.root, path));
    if (names === '') unified = { directory, top: mount.target };
    else for (const name of names.split(',')) separate.set(name, directory);
  }
  return { unified, separate };
}

function serves({ type, superOptions }: KernelMount, names: string): boolean {
  if (names === '') return type === 'cgroup2';
  return type === 'cgroup' && names.split(',').every(name => superOptions.includes(name));
}

// Version 2: the nearest group, from our own upwards, that hands memory and processes on and that we may divide.
async function divided(place: Places['unified']): Promise<Delegation | null> {
  if (!place) return null;
  for (let directory = place.directory; isWithin(directory, place.top); directory = dirname(directory)) {
    const handed = ((await text(join(directory, 'cgroup.subtree_control'))) ?? '').trim().split(' ');
    if (!NEEDED.every(name => handed.includes(name)) || !(await mayDivide(directory))) continue;
    const held = ALL.filter(name => handed.includes(name));
    return { version: 2, directories: Object.fromEntries(held.map(name => [name, directory])) };
  }
  return null;
}

// Version 1: our own group in each hierarchy.
async function apart(places: ReadonlyMap<string, string>): Promise<Delegation | null> {
  const directories: Partial<Record<Controller, string>> = {};
  for (const name of ALL) {
    const directory = places.get(name);
    if (directory !== undefined && (await mayDivide(directory))) directories[name] = directory;
  }
  return NEEDED.every(name => directories[name] !== undefined) ? { version: 1, directories } : null;
}

async function mayDivide(directory: string): Promise<boolean> {
  try {
    await access(directory, constants.W_OK);
    // A process is moved into a group only by who may also move it out of the one above.
    await access(join(directory, 'cgroup.procs'), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** The control group of one sandbox. */
export class ControlGroup {
  readonly #delegation: Delegation;
  readonly #directories: ReadonlyMap<Controller, string>;

  private constructor(delegation: Delegation, directories: ReadonlyMap<Controller, string>) {
    this.#delegation = delegation;
    this.#directories = directories;
  }

  /** Makes one that holds whoever joins it to the limits. */
  static async make(delegation: Delegation, limits: Limits): Promise<ControlGroup> {
    const own = identify(process.pid);
    const name = `acode-${process.pid}-${own?.startTime ?? '0'}-${randomBytes(4).toString('hex')}`;
    const directories = new Map(
      ALL.flatMap(controller => {
        const parent = delegation.directories[controller];
        return parent === undefined ? [] : [[controller, join(parent, name)] as const];
      }),
    );
    const group = new ControlGroup(delegation, directories);
    try {
      for (const directory of group.paths) await mkdir(directory);
      await group.#limit(limits);
      return group;
    } catch (error) {
      await group.remove();
      throw error;
    }
  }

  /** Its directories, each once. */
  get paths(): readonly string[] {
    return [...new Set(this.#directories.values())];
  }

  /** The files that a process writes its number to in order to join. */
  get doors(): readonly string[] {
    return this.paths.map(directory => join(directory, 'cgroup.procs'));
  }

  /** Every limit that is not as planned, in words. */
  async differences(limits: Limits, pid: number): Promise<string[]> {
    const settings = await Promise.all(
      settingsFor(this.#delegation.version, limits).map(setting => this.#difference(setting)),
    );
    const groups = ((await text(`/proc/${pid}/cgroup`)) ?? '').split('\n');
    const outside = this.paths
      .filter(directory => !groups.some(line => line.endsWith(directory.slice(directory.lastIndexOf('/')))))
      .map(directory => `the process is not in ${directory}`);
    return [...settings.flat(), ...outside];
  }

  /** What it counted so far. */
  async counters(): Promise<Counted & { readonly usage?: Usage }> {
    return counted(this.#delegation.version, async (controller, file) => {
      const directory = this.#directories.get(controller);
      return directory === undefined ? null : text(join(directory, file));
    });
  }

  /** Removes it; it must be empty. What cannot be removed in time is left to the next session. */
  async remove(): Promise<void> {
    const deadline = Date.now() + REMOVAL_MS;
    for (const directory of this.paths) {
      while (!(await removed(directory)) && Date.now() < deadline)
        await new Promise(resolve => void setTimeout(resolve, PAUSE_MS));
    }
  }

  async #difference({ controller, file, value, needed }: Setting): Promise<string[]> {
    const directory = this.#directories.get(controller);
    if (directory === undefined) return [];
    const now = await text(join(directory, file));
    const same = now === null ? !needed : now.trim() === value;
    return same ? [] : [`${file} is ${now?.trim() ?? 'missing'} instead of ${value}`];
  }

  async #limit(limits: Limits): Promise<void> {
    for (const { controller, file, value, needed } of settingsFor(this.#delegation.version, limits)) {
      const directory = this.#directories.get(controller);
      if (directory === undefined) continue;
      try {
        await writeFile(join(directory, file), value, { flag: 'r+' });
      } catch (error) {
        if (needed) throw error;
      }
    }
  }
}

/** Removes the empty groups of processes that are gone: a client that was killed leaves one. */
export async function sweepControlGroups({ directories }: Delegation): Promise<void> {
  for (const parent of new Set(Object.values(directories))) {
    const names = await readdir(parent).catch(() => []);
    for (const name of names) {
      const [, pid, startTime] = NAME.exec(name) ?? [];
      if (pid === undefined || identify(Number(pid))?.startTime === startTime) continue;
      await rmdir(join(parent, name)).catch(() => undefined);
    }
  }
}

async function removed(directory: string): Promise<boolean> {
  try {
    await rmdir(directory);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ENOENT';
  }
}

async function text(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return null;
  }
}

// The limits and counters of control groups, in the words of version 1 and version 2. Pure.

/** The parts of the kernel that hold groups of processes to something. */
type Controller = 'memory' | 'pids' | 'cpu' | 'cpuacct';

/** One limit as it is written and read back. */
interface Setting {
  readonly controller: Controller;
  readonly file: string;
  readonly value: string;
  /** Whether the sandbox is not made without it; others depend on how the kernel was built. */
  readonly needed: boolean;
}

/** What a group has counted. */
interface Counted {
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
