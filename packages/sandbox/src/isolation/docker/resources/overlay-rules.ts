// The volumes of forks: what they are called, and what the engine is asked for. Pure.

import type { SandboxSpec } from '../../../contract/spec.ts';
import { ownership } from '../../../lifecycle/labels.ts';

/** The overlay of a fork as the engine mounts it. */
export interface MountedOverlay {
  readonly target: string;
  readonly volume: string;
  /** Where the engine has the volume. */
  readonly mountpoint: string;
  /** The labels it was made with. */
  readonly labels: Readonly<Record<string, string>>;
}

/** The name of the volume for one of the mounts of a plan. */
export function overlayVolume({ identity }: Pick<SandboxSpec, 'identity'>, at: number): string {
  return `acode-${identity.sandboxId}-fork${at}`;
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
