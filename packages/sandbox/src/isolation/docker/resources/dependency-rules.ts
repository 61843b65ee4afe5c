// The volumes of dependencies: what they are called, and what the engine is asked for. Pure.

import type { SandboxSpec } from '../../../contract/spec.ts';
import { ownership } from '../../../lifecycle/labels.ts';
import type { CacheLayer, LayerPart } from './cache-rules.ts';

/** Dependencies as the engine mounts them. */
export interface MountedDependency {
  readonly target: string;
  readonly volume: string;
  /** Where the engine has the volume. */
  readonly mountpoint: string;
  readonly layer: CacheLayer;
  /** The labels it was made with. */
  readonly labels: Readonly<Record<string, string>>;
}

/** The name of a part of the layer over one of the directories. */
export function dependencyVolume({ identity }: SandboxSpec, at: number, part: LayerPart): string {
  return `acode-${identity.sandboxId}-deps${at}-${part}`;
}

/** The mounts in a create request; `made` is what was made for the plan. */
export function dependencyMounts(
  spec: SandboxSpec,
  made: readonly Pick<MountedDependency, 'target' | 'labels'>[] = [],
): Record<string, unknown>[] {
  return (spec.dependencies ?? []).map(({ target }, at) => ({
    Type: 'volume',
    Source: dependencyVolume(spec, at, 'layer'),
    Target: target,
    ReadOnly: false,
    // As for a cache: what the engine makes anew under this name must be known to be ours.
    VolumeOptions: {
      NoCopy: true,
      Labels: { ...(made.find(one => one.target === target)?.labels ?? ownership(spec)) },
    },
  }));
}
