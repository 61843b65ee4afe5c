// Step 5, the doing part: reads what the kernel says about a sandbox and throws where it differs from its plan.

import { readFile, readdir, readlink } from 'node:fs/promises';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { parseStatus, readKernelView } from '../kernel.ts';
import type { ControlGroup } from './control-group.ts';
import type { HostView } from './host-view.ts';
import { limitDifferences } from './resource-limits.ts';
import type { ResourceLimits } from './resource-limits.ts';
import type { Started } from './start.ts';
import { compareWithKernel } from './verify.ts';
import type { SandboxView } from './verify.ts';
import type { Difference } from '../mount-differences.ts';

/** What a sandbox is held against. */
export interface Expected {
  readonly spec: SandboxSpec;
  readonly view: HostView;
  readonly limits: ResourceLimits;
  readonly group: ControlGroup | null;
}

// After standard input, output and error.
const FURTHER = 3;
const MAX_LOOKS = 100;
const LOOK_MS = 2;

/** Compares a sandbox that waits with its plan. */
export async function inspectStarted(started: Started, expected: Expected): Promise<void> {
  const { spec, view, limits, group } = expected;
  const [seen, limited, grouped] = await Promise.all([
    readSandboxView(started, spec),
    text(`/proc/${started.shell}/limits`),
    group?.differences(spec.limits, started.shell) ?? [],
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
