// The volumes of forks: what they are called, and what the engine is asked for. Pure.

import type { SandboxSpec } from '../../../contract/spec.ts';
import { ownership } from '../../../lifecycle/labels.ts';

/** The overlay of a fork as the engine mounts it. */
export interface MountedOverlay {
  readonly target: string;
  readonly volume: string;
  /** Where the engine has the volume. */
  readonly mountpoint: string;
  /** Where the engine has the memory that takes its changes; absent where they go to a directory. */
  readonly memory?: string;
  /** The labels it was made with. */
  readonly labels: Readonly<Record<string, string>>;
}

/** The name of the volume for one of the mounts of a plan. */
export function overlayVolume({ identity }: Pick<SandboxSpec, 'identity'>, at: number): string {
  return `acode-${identity.sandboxId}-fork${at}`;
}

/** The name of the volume in memory of a plan. */
export function storeVolume({ identity }: Pick<SandboxSpec, 'identity'>): string {
  return `acode-${identity.sandboxId}-disk`;
}

const BYTES_PER_INODE = 4096;
const MIN_INODES = 64;

/** The options of a volume in memory: only the user inside can open it. */
export function storeOptions(bytes: number, { uid, gid }: SandboxSpec['user']): string {
  const inodes = Math.max(MIN_INODES, Math.floor(bytes / BYTES_PER_INODE));
  return `size=${bytes},nr_inodes=${inodes},mode=0700,uid=${uid},gid=${gid},nosuid,nodev`;
}

/** The mount of the memory that a sandbox holds, in its create request; none for every other sandbox. */
export function storeMounts(spec: SandboxSpec): Record<string, unknown>[] {
  if (!spec.store) return [];
  const { volume, target } = spec.store;
  const options = { NoCopy: true, Labels: { ...ownership(spec) } };
  return [{ Type: 'volume', Source: volume, Target: target, ReadOnly: false, VolumeOptions: options }];
}

/** The mount in a create request; `made` is what was made for the plan. */
export function overlayMount(
  spec: SandboxSpec,
  at: number,
  made: readonly Pick<MountedOverlay, 'target' | 'labels'>[] = [],
): Record<string, unknown> {
  const target = spec.mounts[at]?.target ?? '';
  return {
    Type: 'volume',
    Source: overlayVolume(spec, at),
    Target: target,
    ReadOnly: false,
    // As for a cache: what the engine makes anew under this name must be known to be ours.
    VolumeOptions: {
      NoCopy: true,
      Labels: { ...(made.find(one => one.target === target)?.labels ?? ownership(spec)) },
    },
  };
}
