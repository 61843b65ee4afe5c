// Holds the caches of a sandbox against the plan: in each the one layer that was made for it, and nothing of another’s. Pure.

import type { CacheSpec } from '../../../contract/caches.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { KernelMount, KernelView } from '../../kernel.ts';
import { last, mounted } from '../../mount-differences.ts';
import type { Difference } from '../../mount-differences.ts';
import { LAYER_FLAGS, mountedName } from '../resources/cache-rules.ts';
import type { MountedCache } from '../resources/cache-rules.ts';
import type { EngineFacts } from '../request.ts';

/** The caches as the engine’s account of a container must have them. */
export function wantedCaches(spec: SandboxSpec, { caches = [] }: Pick<EngineFacts, 'caches'>): EngineMount[] {
  return spec.caches.map(({ target }) => {
    const made = caches.find(one => one.target === target);
    return { type: 'volume', source: made?.mountpoint ?? '', target, writable: true, propagation: '' };
  });
}

interface EngineMount {
  readonly type: string;
  readonly source: string;
  readonly target: string;
  readonly writable: boolean;
  readonly propagation: string;
}

/** What of the caches is not as planned in the kernel’s account. */
export function cacheDifferences(spec: SandboxSpec, view: KernelView, caches: readonly MountedCache[]): Difference[] {
  return spec.caches.flatMap(cache => {
    const made = caches.find(({ target }) => target === cache.target);
    const found = last(view.mounts, cache.target);
    if (!found) return [mounted(`${cache.target} is not mounted`)];
    const isIt = made !== undefined && made.volume === mountedName(spec, cache) && isMade(cache, made, found);
    const differences = isIt ? [] : [mounted(`${cache.target} is not the volume that was made for it`)];
    // Engines let volumes receive what is mounted below them on the host, where nobody but root can; never the other way.
    if (found.shared && !found.receives) differences.push(mounted(`mounts made in ${cache.target} would leave it`));
    return differences;
  });
}

// A layer names its parts. Of a plain volume the kernel shows the directory, from the top of its device.
function isMade({ fill }: CacheSpec, { layer, mountpoint, volume }: MountedCache, found: KernelMount): boolean {
  if (fill !== (layer === null)) return false;
  if (layer === null)
    return found.type !== 'overlay' && found.root.includes(`/${volume}/`) && mountpoint.endsWith(found.root);
  const { lower, upper, work } = layer;
  const parts = [`lowerdir=${lower}`, `upperdir=${upper}`, `workdir=${work}`];
  const isFlagged = LAYER_FLAGS.every(flag => found.options.includes(flag));
  return found.type === 'overlay' && isFlagged && parts.every(part => found.superOptions.includes(part));
}
