// Masks of a workspace: listed, and searched for again.

import type { MaskReport, Masks } from '../contract/masks.ts';
import { resolveMasks } from '../policy/resolve.ts';
import type { Host } from '../run/host.ts';
import { layersFor, workspaceOf } from '../run/repository.ts';
import { nearestReal } from '../workspace/locate.ts';
import { prepareMasks, rescanMasks } from '../workspace/masks/masks.ts';
import type { MaskRequest, PreparedMasks } from '../workspace/masks/masks.ts';

/** The masks of a host’s workspace. */
export function masksOf(host: Host, assertOpen: (name: string) => void): Masks {
  const search = async (name: string, find: (request: MaskRequest) => Promise<PreparedMasks>): Promise<MaskReport> => {
    assertOpen(`masks.${name}`);
    const root = nearestReal(await workspaceOf(host));
    const policy = resolveMasks(await layersFor(host, root));
    const { directories, closing, telemetry } = host;
    const asked = { root, policy, state: directories.state, signal: closing, clock: telemetry.clock };
    const { masked, warnings, forgotten } = await find(asked);
    return { masked, warnings, forgotten };
  };
  return { list: () => search('list', prepareMasks), rescan: () => search('rescan', rescanMasks) };
}
