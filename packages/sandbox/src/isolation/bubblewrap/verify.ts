// Step 5 of the pipeline: compares what the kernel reports about a sandbox with its plan. Pure.
//
// The expectations are derived independently from the plan and not from bubblewrap’s arguments: otherwise a mistake in
// the arguments would go unnoticed.

import { readdir, readFile, readlink } from 'node:fs/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { MountSpec, SandboxSpec, TmpfsSpec } from '../../contract/spec.ts';
import { isSameNumber, isWithin } from '../../workspace/file-identity.ts';
import {
  coveredDifferences,
  type Difference,
  type KernelMount,
  type KernelView,
  last,
  mounted,
  parseStatus,
  readKernelView,
  tmpfsDifferences,
  uncoveredDifferences,
} from '../kernel.ts';
import type { ControlGroup } from './control-group.ts';
import { forkDifferences, type ForkTools } from './forks.ts';
import type { HostView } from './host-view.ts';
import { limitDifferences, ownLimits, type ResourceLimits, type Started } from './start.ts';

/** What the kernel says of a sandbox: of the shell that waits, and of the process it is a child of. */
export interface SandboxView {
  readonly shell: KernelView;
  /** The first process inside, by its status alone. */
  readonly first: Pick<KernelView, 'capabilities' | 'noNewPrivileges' | 'seccompFilter' | 'uids' | 'gids'>;
  /** Whether the user namespace is shared with us. */
  readonly sharesUsers: boolean;
  /** The users and groups of the host that exist inside, as the kernel lists them. */
  readonly userMap: string;
  readonly groupMap: string;
  /** What the shell holds open besides its three streams. */
  readonly descriptors: readonly string[];
}

// Devices that are nobody’s, and what belongs to terminals of the sandbox’s own.
const DEVICES = /^\/dev(?:\/(?:null|zero|full|random|urandom|tty|pts|console|shm))?$/;

const MAX_SHARED = 64 * 1024 ** 2;

/** Everything in the kernel’s account that is not as planned. */
export function compareWithKernel(spec: SandboxSpec, host: HostView, view: SandboxView): Difference[] {
  return [
    ...privilegeDifferences(spec, view.shell, 'the shell'),
    ...privilegeDifferences(spec, view.first, 'the first process'),
    ...namespaceDifferences(spec, view),
    ...mountDifferences(spec, host, view.shell),
  ];
}

function privilegeDifferences(spec: SandboxSpec, process: SandboxView['first'], who: string): Difference[] {
  const found: Difference[] = [];
  const wrong = (detail: string): void => void found.push({ violation: 'KernelMismatch', detail });
  for (const [set, value] of Object.entries(process.capabilities))
    if (!/^0+$/.test(value)) wrong(`${who} has capabilities (${set} ${value})`);
  if (!process.noNewPrivileges) wrong(`${who} may gain privileges`);
  if (!process.seccompFilter) wrong(`no system call filter is active for ${who}`);
  if (process.uids.some(uid => uid !== spec.user.uid))
    wrong(`${who} runs as uid ${process.uids.join(', ')} instead of ${spec.user.uid}`);
  if (process.gids.some(gid => gid !== spec.user.gid))
    wrong(`${who} runs as gid ${process.gids.join(', ')} instead of ${spec.user.gid}`);
  return found;
}

// Supplementary groups stay, since nobody but root can drop them: they open no more than files that are mounted, and inside
// they have no number.
function namespaceDifferences(spec: SandboxSpec, view: SandboxView): Difference[] {
  const found: Difference[] = [];
  const wrong = (detail: string): void => void found.push({ violation: 'KernelMismatch', detail });
  const { sharedNamespaces, interfaces } = view.shell;
  if (sharedNamespaces === null) wrong('its namespaces cannot be read');
  else if (sharedNamespaces.length > 0) wrong(`it shares namespaces with the host: ${sharedNamespaces.join(', ')}`);
  if (view.sharesUsers) wrong('it shares the user namespace with the host');
  if (!mapsOnly(view.userMap, spec.user.uid)) wrong(`other users of the host exist inside: ${view.userMap.trim()}`);
  if (!mapsOnly(view.groupMap, spec.user.gid)) wrong(`other groups of the host exist inside: ${view.groupMap.trim()}`);
  // What this process was started with and would pass on is replaced by the device that is nothing.
  const open = view.descriptors.filter(path => path !== '/dev/null');
  if (open.length > 0) wrong(`it holds open what is not its own: ${open.join(', ')}`);
  if (interfaces === null) wrong('its network cannot be read');
  else if (interfaces.length > 0) wrong(`it has the network interfaces ${interfaces.join(', ')}`);
  return found;
}

function mapsOnly(map: string, id: number): boolean {
  return map.trim().split(/\s+/).join(' ') === `${id} ${id} 1`;
}

function mountDifferences(spec: SandboxSpec, host: HostView, view: KernelView): Difference[] {
  const differences = spec.mounts.flatMap(mount => [
    ...plannedMountDifferences(mount, view),
    ...coveredDifferences(mount, spec, view),
  ]);
  const memory = [...spec.tmpfs, sharedMemory(spec)];
  differences.push(...memory.flatMap(tmpfs => tmpfsDifferences(tmpfs, last(view.mounts, tmpfs.target))));
  differences.push(...view.mounts.flatMap(mount => strangerDifferences(mount, spec, host)));
  for (const target of ['/', '/dev'])
    if (!last(view.mounts, target)?.options.includes('ro')) differences.push(mounted(`${target} is writable`));
  for (const { path } of host.masked) if (!last(view.mounts, path)) differences.push(mounted(`${path} is not masked`));
  return differences;
}

// No sandbox shares more than it may have, whatever the plan says of its other memory.
function sharedMemory({ limits }: SandboxSpec): TmpfsSpec {
  return { target: '/dev/shm', bytes: Math.min(MAX_SHARED, limits.memoryBytes), mode: '1777' };
}

// What was not planned: the system’s own parts are there read-only, and below /proc nothing but the covers.
function strangerDifferences(mount: KernelMount, spec: SandboxSpec, host: HostView): Difference[] {
  const { target, options } = mount;
  const expected = [...spec.mounts, ...spec.tmpfs, ...host.masked.map(({ path }) => ({ target: path }))];
  if (expected.some(planned => planned.target === target)) return [];
  if (isOwn(mount)) return [];
  const shown = host.system.some(({ kind, path }) => kind !== 'link' && isWithin(target, path));
  if (shown) return options.includes('ro') ? [] : [mounted(`${target} is writable`)];
  const around = spec.mounts.find(planned => isWithin(target, planned.target));
  const why = around
    ? `is a mount of its own below ${around.source}, which this level cannot leave out`
    : 'is mounted and was not asked for';
  return [mounted(`${target} ${why}`)];
}

// What every sandbox has of its own.
function isOwn({ target, type }: KernelMount): boolean {
  return (target === '/' && type === 'tmpfs') || (target === '/proc' && type === 'proc') || DEVICES.test(target);
}

function plannedMountDifferences(mount: MountSpec, view: KernelView): Difference[] {
  const found = last(view.mounts, mount.target);
  if (!found) return [mounted(`${mount.target} is not mounted`)];
  const differences: Difference[] = [];
  const identity = view.identities.get(mount.target);
  // A fork has no identity of its source; its parts are compared for themselves.
  if (!mount.overlay && !isSameNumber(identity, mount.identity))
    differences.push(mounted(`${mount.target} is not what was checked, but ${found.root}`));
  if (found.options.includes('ro') !== mount.readOnly)
    differences.push(mounted(`${mount.target} is ${mount.readOnly ? 'writable' : 'read-only'}`));
  if (!['nosuid', 'nodev'].every(option => found.options.includes(option)))
    differences.push(mounted(`${mount.target} allows setuid programs or devices`));
  // What only receives is what bubblewrap makes of a host whose mounts are shared, as systemd’s are. Only who may mount on
  // the host can make something appear then, and that is nobody in a sandbox.
  if (found.shared && !found.receives) differences.push(mounted(`mounts would go from ${mount.target} to the host`));
  return differences;
}

// Step 5, the doing part: reads what the kernel says about a sandbox and throws where it differs from its plan.

/** What a sandbox is held against. */
interface Expected {
  readonly spec: SandboxSpec;
  readonly view: HostView;
  readonly limits: ResourceLimits;
  readonly group: ControlGroup | null;
  readonly forks: ForkTools | null;
}

// After standard input, output and error.
const FURTHER = 3;
const MAX_LOOKS = 100;
const LOOK_MS = 2;

/** Compares a sandbox that waits with its plan. */
export async function inspectStarted(started: Started, expected: Expected): Promise<void> {
  const { spec, view, limits, group, forks } = expected;
  const [seen, limited, grouped] = await Promise.all([
    readSandboxView(started, spec),
    text(`/proc/${started.shell}/limits`),
    group?.differences(ownLimits(spec), started.shell) ?? [],
  ]);
  if (!seen) {
    // One that has ended has no view either; whoever asks next is told that.
    if (started.child.ended) return;
    refuse([{ violation: 'KernelMismatch', detail: 'the kernel’s view of it cannot be read' }]);
    return;
  }
  const wrong = [...limitDifferences(limits, limited ?? ''), ...grouped];
  refuse([
    ...compareWithKernel(spec, view, seen),
    ...forkDifferences(forks, spec, seen.shell, started.shell),
    ...uncoveredDifferences(spec),
    ...wrong.map((detail): Difference => ({ violation: 'SpecMismatch', detail })),
  ]);
}

async function readSandboxView({ first, shell }: Started, spec: SandboxSpec): Promise<SandboxView | null> {
  const [view, status, userMap, groupMap, users, ownUsers, descriptors] = await Promise.all([
    readKernelView(shell, '', spec),
    firstStatus(first.pid),
    text(`/proc/${shell}/uid_map`),
    text(`/proc/${shell}/gid_map`),
    readlink(`/proc/${shell}/ns/user`).catch(() => null),
    readlink('/proc/self/ns/user'),
    openDescriptors(shell),
  ]);
  if (view === null || status === null || userMap === null || groupMap === null || users === null || !descriptors)
    return null;
  return { shell: view, first: parseStatus(status), userMap, groupMap, sharesUsers: users === ownUsers, descriptors };
}

// Bubblewrap’s own process puts its filter on after it has started the shell, so one look may be too early.
async function firstStatus(pid: number): Promise<string | null> {
  for (let look = 1; ; look++) {
    const status = await text(`/proc/${pid}/status`);
    if (status === null || look === MAX_LOOKS || parseStatus(status).seccompFilter) return status;
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  }
}

// The shell says that it waits just before it lets go of the descriptor it says so on, so one look may be too early.
async function openDescriptors(pid: number): Promise<string[] | null> {
  for (let look = 1; ; look++) {
    const open = await descriptorsOf(pid);
    if (open === null || look === MAX_LOOKS || open.every(path => path === '/dev/null')) return open;
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  }
}

async function descriptorsOf(pid: number): Promise<string[] | null> {
  try {
    const further = (await readdir(`/proc/${pid}/fd`)).filter(name => Number(name) >= FURTHER);
    // One that was closed since it was listed is not open.
    return await Promise.all(further.map(name => readlink(`/proc/${pid}/fd/${name}`).catch(() => '/dev/null')));
  } catch {
    return null;
  }
}

function refuse(differences: readonly Difference[]): void {
  const [first] = differences;
  if (!first) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: first.violation,
    detail: differences.map(({ detail }) => detail).join('; '),
  });
}

async function text(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return null;
  }
}
