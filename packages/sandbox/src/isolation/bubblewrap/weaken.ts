// Takes one protection away from a sandbox, so that a probe can be seen to work where the protection is missing. Pure.
//
// Only the doctor’s controls come here. No policy, request or configuration can name a weakening, and everything else of the
// sandbox stays as it is.

import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { Weakening } from '../backend.ts';
import { LEAKED_VARIABLES } from '../process/host-image.ts';
import type { HostFacts } from './arguments.ts';

const MEBIBYTE = 1024 ** 2;

// What is raised stays bounded: a control must not be able to hurt the host it runs on.
const LOOSE = {
  pids: 512,
  memoryBytes: 512 * MEBIBYTE,
  tmpBytes: 64 * MEBIBYTE,
  sharedBytes: 160 * MEBIBYTE,
  openFiles: 1024,
} as const;

/** Refuses weakenings that this level cannot make: without them a control would prove nothing. */
export function assertPossible(weakenings: readonly Weakening[]): void {
  if (!weakenings.includes('no-new-privileges')) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: 'A bubblewrap sandbox whose programs may gain privileges',
    instead: 'Nothing: bubblewrap itself always forbids it, so there is no control to be made.',
  });
}

/** The plan without the protections that stand in a plan. */
export function weakenedSpec(spec: SandboxSpec, weakenings: readonly Weakening[]): SandboxSpec {
  const without = (weakening: Weakening): boolean => weakenings.includes(weakening);
  const { limits } = spec;
  return {
    ...spec,
    mounts: without('protected-paths') ? spec.mounts.filter(({ purpose }) => purpose !== 'protected') : spec.mounts,
    tmpfs: without('tmpfs-size') ? spec.tmpfs.map(tmpfs => ({ ...tmpfs, bytes: LOOSE.tmpBytes })) : spec.tmpfs,
    limits: {
      ...limits,
      pids: without('pids') ? LOOSE.pids : limits.pids,
      memoryBytes: without('memory') ? LOOSE.memoryBytes : limits.memoryBytes,
      swapBytes: without('memory') ? 0 : limits.swapBytes,
      openFiles: without('open-files') ? LOOSE.openFiles : limits.openFiles,
    },
  };
}

/** What else is different in a sandbox that lacks something. */
export function weakenedGround(
  weakenings: readonly Weakening[],
): Pick<HostFacts, 'variables' | 'hostNetwork' | 'writableRoot' | 'sharedBytes'> {
  return {
    ...(weakenings.includes('environment') ? { variables: LEAKED_VARIABLES } : {}),
    ...(weakenings.includes('tmpfs-size') ? { sharedBytes: LOOSE.sharedBytes } : {}),
    hostNetwork: weakenings.includes('network'),
    writableRoot: weakenings.includes('read-only-root'),
  };
}
