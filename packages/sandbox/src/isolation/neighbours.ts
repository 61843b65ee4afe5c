// Which mounts of one sandbox another could exchange: below a directory that somebody can write, checking proves nothing. Pure.

import { dirname } from 'node:path';
import type { MountSpec, SandboxSpec } from '../contract/spec.ts';
import { isWithin } from '../workspace/file-identity.ts';

/** What a sandbox has of the host. */
export interface Reach {
  /** Directories of the host that it can write. */
  readonly writableSources: readonly string[];
  /** Files and directories of the host that it has and cannot write. */
  readonly readOnlySources: readonly string[];
}

/** A mount source that lies below what another sandbox can write. */
export interface Exposed {
  readonly source: string;
  readonly above: string;
}

/** What a sandbox of a plan has of the host. */
export function reachOf({ mounts }: Pick<SandboxSpec, 'mounts'>): Reach {
  const sources = (readOnly: boolean): string[] =>
    mounts.filter(mount => mount.readOnly === readOnly).map(({ source }) => source);
  return { writableSources: sources(false), readOnlySources: sources(true) };
}

/** The mount sources of a plan that others could exchange. */
export function exposedTo(others: readonly Reach[], spec: Pick<SandboxSpec, 'mounts'>): Exposed[] {
  const exposing = spec.mounts.filter(mount => !isDeepCover(mount, spec));
  return exposing.flatMap(({ source }) => {
    const above = others.flatMap(other => swappableFrom(source, other))[0];
    return above === undefined ? [] : [{ source, above }];
  });
}

// What only makes a part of another mount read-only shows nothing that the other one does not; at the top of it that part
// is held to be what was checked, and deeper it is compared when it is mounted.
function isDeepCover({ purpose, source }: MountSpec, { mounts }: Pick<SandboxSpec, 'mounts'>): boolean {
  return purpose === 'protected' && !mounts.some(other => other.source === dirname(source));
}

// A mount point cannot be renamed by those who have it. What lies deeper could be, by renaming a directory between the two.
function swappableFrom(source: string, { writableSources, readOnlySources }: Reach): string[] {
  const above = writableSources.filter(directory => directory !== source && isWithin(source, directory));
  return above.filter(directory => !(readOnlySources.includes(source) && dirname(source) === directory));
}
