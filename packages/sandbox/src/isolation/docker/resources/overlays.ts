// The forks of sandboxes on an engine: for each a volume that the engine mounts as an overlay over the workspace.

import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { KEEP, LEASES, NONCE, ownership, SANDBOX } from '../../../lifecycle/labels.ts';
import { assertOptions, overlayOptions } from '../../../workspace/fork/overlay.ts';
import { type Difference, mounted } from '../../kernel.ts';
import { type ForkedMount, forkedMounts, overlayDifferences, swappedParts } from '../../overlays.ts';
import { unlessCancelled } from '../../waiting.ts';
import type { Engine, VolumeDetails } from '../engine/index.ts';
import { isNotFound } from '../engine/protocol.ts';
import { engineFailure } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { SandboxVolumes, type VolumesOptions } from './caches.ts';
import type { Attachment, Left, Seen } from './owned.ts';
import { type MountedOverlay, overlayVolume } from './overlay-rules.ts';

const CALL_MS = 10_000;

/** The overlays of the sandboxes of one backend. */
export class SandboxOverlays implements Attachment {
  readonly #volumes: SandboxVolumes;
  readonly #engine: Engine;

  constructor(options: VolumesOptions) {
    this.#engine = options.engine;
    this.#volumes = new SandboxVolumes(options);
  }

  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Pick<EngineFacts, 'overlays'>> {
    const forked = forkedMounts(spec);
    signal.throwIfAborted();
    if (forked.length === 0) return {};
    const swapped = forked.flatMap(({ mount }) => swappedParts(mount.overlay));
    if (swapped[0]) throw new AcodeError('ACODE-SBX-010', swapped[0]);
    const making = Promise.all(forked.map(({ mount, at }) => this.#make(spec, mount, at)));
    this.#volumes.during(spec, Promise.allSettled([making]));
    try {
      return { overlays: await unlessCancelled(making, signal) };
    } catch (error) {
      this.release(spec);
      throw engineFailure(error, signal);
    }
  }

  verify(spec: SandboxSpec, { overlays = [] }: EngineFacts, { view, details }: Seen): Difference[] {
    return forkedMounts(spec).flatMap(({ mount, at }) => {
      const isMade = overlays.some(one => one.target === mount.target && one.volume === overlayVolume(spec, at));
      return [
        ...(isMade ? [] : [mounted(`${mount.target} is not the volume that was made for it`)]),
        ...overlayDifferences(mount, view, details.State.Pid),
      ];
    });
  }

  release(spec: SandboxSpec): void {
    this.#volumes.leave(spec);
  }

  async close(): Promise<Left[]> {
    return this.#volumes.release();
  }

  async #make(spec: SandboxSpec, { overlay, source, target }: ForkedMount, at: number): Promise<MountedOverlay> {
    const options = overlayOptions(overlay, source);
    assertOptions(options, overlay.fork);
    const name = overlayVolume(spec, at);
    const known = await this.#ofKept(spec, name, options);
    if (known) return { target, volume: name, mountpoint: known.Mountpoint ?? '', labels: known.Labels ?? {} };
    const made = await this.#volumes.make(spec, nonce => ({
      Name: name,
      Driver: 'local',
      DriverOpts: { type: 'overlay', device: 'overlay', o: options },
      Labels: { ...forkLabels(spec), [NONCE]: nonce },
    }));
    if (made !== null) return { target, volume: name, mountpoint: made.Mountpoint ?? '', labels: made.Labels ?? {} };
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'MountMismatch',
      detail: `the volume ${name}, for a fork, was there already and is another’s`,
      remedy: `Inspect it with \`docker volume inspect ${name}\`, and remove it.`,
    });
  }

  // A sandbox that was kept has its volume already. That it is mounted as planned is verified, as for a new one.
  async #ofKept(spec: SandboxSpec, name: string, options: string): Promise<VolumeDetails | null> {
    if (!isKept(spec)) return null;
    const terms = { signal: AbortSignal.timeout(CALL_MS), deadlineMs: CALL_MS };
    const found = await this.#engine.volumes.inspect(name, terms).catch((error: unknown) => {
      if (isNotFound(error)) return null;
      throw error;
    });
    const wanted = forkLabels(spec);
    const isOwn = Object.entries(wanted).every(([label, value]) => found?.Labels?.[label] === value);
    return isOwn && found?.Options?.['o'] === options ? found : null;
  }
}

function isKept({ identity: { labels } }: SandboxSpec): boolean {
  return labels[KEEP] === 'true';
}

// Those of what ends with its session; where the sandbox outlives it, the volume is judged by the sandbox’s lease.
function forkLabels(spec: SandboxSpec): Record<string, string> {
  const { labels } = spec.identity;
  const kept = { [KEEP]: 'true', [SANDBOX]: labels[SANDBOX] ?? '', [LEASES]: labels[LEASES] ?? '' };
  return { ...ownership(spec), ...(isKept(spec) ? kept : {}) };
}
