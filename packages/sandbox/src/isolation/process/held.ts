// What the kernel showed of a sandbox when it was verified, held against what it shows when its command comes.
//
// A mount keeps the directory it was made of, whatever becomes of the path; but the kernel takes a mount away when somebody
// on the host removes the directory it lies on, and the number of that directory may be given to the next one. A `.git` that
// was removed and made anew would then look the same in every plan, and be writable inside. The table of mounts tells.

import { lstatSync, readFileSync } from 'node:fs';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { identify, isAlive } from './identity.ts';
import type { ProcessIdentity } from './identity.ts';

const SLOWEST_LOOK_MS = 20;
const LONGEST_MS = 5000;
const SOON_MS = 1.5;

/** What was seen of a sandbox that waits. */
export interface Held {
  readonly process: ProcessIdentity;
  /** Its table of mounts, as the kernel writes it. */
  readonly mounts: string;
}

/**
 * Looks at a process of a sandbox that was verified; null where it cannot be seen from here. `containerId` is what its
 * control group must name; empty where the process is known to be the sandbox’s.
 */
export function hold(pid: number, containerId: string): Held | null {
  const process = identify(pid);
  if (!process) return null;
  try {
    if (!readFileSync(`/proc/${pid}/cgroup`, 'utf8').includes(containerId)) return null;
    return { process, mounts: mountsOf(pid) };
  } catch {
    return null;
  }
}

/**
 * Throws where the sandbox has ended, its mounts changed, or a path leads somewhere else than when it was checked. Without a
 * pause between the looks: they are a few files of the kernel’s own, and take less time than one turn of the loop.
 */
export function assertHeld({ process, mounts }: Held, spec: Pick<SandboxSpec, 'mounts' | 'identity'>): void {
  if (!isAlive(process))
    throw new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason: 'it ended while it waited' });
  if (tableNow(process.pid) !== mounts) throw different('its mounts are not those that were compared with its plan');
  for (const { source, identity } of spec.mounts) {
    const now = lstatSync(source, { throwIfNoEntry: false });
    if (now?.dev !== identity.device || now.ino !== identity.inode)
      throw different(`${source} is not what was checked`);
  }
}

/** When each mount source was made: all that tells a directory from its successor where no table of mounts can be read. */
export function birthsOf({ mounts }: Pick<SandboxSpec, 'mounts'>): readonly number[] {
  return mounts.map(({ source }) => lstatSync(source, { throwIfNoEntry: false })?.birthtimeMs ?? 0);
}

/** Throws where a mount source is not the one it was, although it may have the same number. */
export function assertBirths(births: readonly number[], spec: Pick<SandboxSpec, 'mounts'>): void {
  const now = birthsOf(spec);
  const at = now.findIndex((birth, index) => birth !== births[index]);
  if (at >= 0) throw different(`${spec.mounts[at]?.source ?? ''} is not what was checked`);
}

/** A look that throws where what a sandbox has mounted is not what it was; by its table of mounts where that can be seen. */
export function sameness(
  spec: Pick<SandboxSpec, 'mounts' | 'identity'>,
  held: Held | null,
  births: readonly number[] = birthsOf(spec),
): () => void {
  return () => (held ? assertHeld(held, spec) : assertBirths(births, spec));
}

/**
 * Settles when the processes that a sandbox ends with have ended: its first one, since the kernel ends every other before it
 * says so, or all of its runtime’s. That word comes long before an engine’s. Rejects where one lives on.
 */
export async function endOfAll(lives: readonly ProcessIdentity[], clock: Clock): Promise<void> {
  const deadline = clock.monotonic() + LONGEST_MS;
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

function tableNow(pid: number): string | null {
  try {
    return mountsOf(pid);
  } catch {
    return null;
  }
}

function mountsOf(pid: number): string {
  return readFileSync(`/proc/${pid}/mountinfo`, 'utf8');
}

function different(detail: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', { violation: 'MountMismatch', detail });
}
