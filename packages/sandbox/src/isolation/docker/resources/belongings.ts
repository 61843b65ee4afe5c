// What of ours is on an engine besides containers: networks and volumes, found by label and taken by id.

import type { EngineResource } from '../../../contract/host.ts';
import { isManaged, MANAGED } from '../../../lifecycle/labels.ts';
import { isNotFound } from '../engine/error.ts';
import type { Engine } from '../engine/index.ts';
import type { NetworkDetails } from '../engine/networks.ts';
import type { VolumeDetails } from '../engine/volumes.ts';

const CALL_MS = 10_000;
const OURS = { labels: [`${MANAGED}=true`] };

/** Every network and volume of ours, whoever made it. */
export async function listBelongings(engine: Engine, signal: AbortSignal): Promise<EngineResource[]> {
  const options = { ...OURS, signal, deadlineMs: CALL_MS };
  const [networks, volumes] = await Promise.all([engine.networks.list(options), engine.volumes.list(options)]);
  return [...networks.map(asNetwork), ...volumes.map(asVolume)];
}

/** One of them as it is now; null where it is gone, or is not ours. */
export async function inspectBelonging(
  engine: Engine,
  { kind, id }: Pick<EngineResource, 'kind' | 'id'>,
  signal: AbortSignal,
): Promise<EngineResource | null> {
  const options = { signal, deadlineMs: CALL_MS };
  try {
    const found =
      kind === 'network'
        ? asNetwork(await engine.networks.inspect(id, options))
        : asVolume(await engine.volumes.inspect(id, options));
    return found.id === id && isManaged(found.labels) ? found : null;
  } catch (error) {
    if (isNotFound(error)) return null;
    throw error;
  }
}

/** Removes one. One that is gone is a success; one that is used is an error. */
export async function removeBelonging(
  engine: Engine,
  { kind, id }: Pick<EngineResource, 'kind' | 'id'>,
  signal: AbortSignal,
): Promise<void> {
  const options = { signal, deadlineMs: CALL_MS };
  await (kind === 'network' ? engine.networks.remove(id, options) : engine.volumes.remove(id, options));
}

function asNetwork({ Id: id, Name: name, Labels: labels }: NetworkDetails): EngineResource {
  return { kind: 'network', id, name, labels: labels ?? {} };
}

function asVolume({ Name: name, Labels: labels }: VolumeDetails): EngineResource {
  return { kind: 'volume', id: name, name, labels: labels ?? {} };
}
