// The forks of sandboxes on an engine: for each a volume that the engine mounts as an overlay over the workspace.

import { lstatSync, opendirSync } from 'node:fs';
import { join } from 'node:path';
import { AcodeError } from '../../../contract/errors.ts';
import type { MountSpec, OverlaySpec, SandboxSpec } from '../../../contract/spec.ts';
import { NONCE, ownership } from '../../../lifecycle/labels.ts';
import { assertOptions, OVERLAY_FLAGS, overlayOptions, overlayValues } from '../../../workspace/fork/overlay.ts';
import { isPartInPlace } from '../../../workspace/fork/store.ts';
import { type Difference, type KernelMount, type KernelView, last, mounted } from '../../kernel.ts';
import { unlessCancelled } from '../../waiting.ts';
import { engineFailure } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { SandboxVolumes, type VolumesOptions } from './caches.ts';
import type { Attachment, Left, Seen } from './owned.ts';
import { type MountedOverlay, overlayVolume } from './overlay-rules.ts';

type Forked = MountSpec & { readonly overlay: OverlaySpec };

/** The overlays of the sandboxes of one backend. */
export class SandboxOverlays implements Attachment {
  readonly #volumes: SandboxVolumes;

  constructor(options: VolumesOptions) {
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
      // Names prove nothing where a directory on the way was exchanged: each is what it was before the engine mounted it.
      const swapped = swappedParts(mount.overlay);
      const made = overlays.some(one => one.target === mount.target && one.volume === overlayVolume(spec, at));
      const isMade = made && (view === null || isMounted(mount, view));
      const isOther = view !== null && !isSameBelow(mount, details.State.Pid);
      return [
        ...(isMade ? [] : [mounted(`${mount.target} is not the fork that was made for it`)]),
        ...swapped,
        ...(isOther ? [mounted(`${mount.target} shows files of another directory than ${mount.source}`)] : []),
      ];
    });
  }

  release(spec: SandboxSpec): void {
    this.#volumes.leave(spec);
  }

  async close(): Promise<Left[]> {
    return this.#volumes.release();
  }

  async #make(spec: SandboxSpec, { overlay, source, target }: Forked, at: number): Promise<MountedOverlay> {
    const options = overlayOptions(overlay, source);
    assertOptions(options, overlay.fork);
    const name = overlayVolume(spec, at);
    const made = await this.#volumes.make(spec, nonce => ({
      Name: name,
      Driver: 'local',
      DriverOpts: { type: 'overlay', device: 'overlay', o: options },
      Labels: { ...ownership(spec), [NONCE]: nonce },
    }));
    if (made !== null) return { target, volume: name, mountpoint: made.Mountpoint ?? '', labels: made.Labels ?? {} };
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'MountMismatch',
      detail: `the volume ${name}, for a fork, was there already and is another’s`,
      remedy: `Inspect it with \`docker volume inspect ${name}\`, and remove it.`,
    });
  }
}

function forkedMounts({ mounts }: SandboxSpec): { readonly mount: Forked; readonly at: number }[] {
  return mounts.flatMap((mount, at) => (isForked(mount) ? [{ mount, at }] : []));
}

function isForked(mount: MountSpec): mount is Forked {
  return mount.overlay !== undefined;
}

// Engines let volumes receive what is mounted below them on the host, where nobody but root can; never the other way.
function isMounted(mount: Forked, view: KernelView): boolean {
  const found = last(view.mounts, mount.target);
  return found !== undefined && isOverlay(mount, found) && (!found.shared || found.receives);
}

function isOverlay({ overlay, source }: Forked, { type, options, superOptions }: KernelMount): boolean {
  const { lowerdir, upperdir, workdir } = overlayValues(overlay, source);
  // Some kernels show a single directory as it was given, others without the escapes.
  const shown = (name: string, ...values: string[]): boolean =>
    values.some(value => superOptions.includes(`${name}=${value}`));
  return (
    type === 'overlay' &&
    ['rw', 'nosuid', 'nodev'].every(flag => options.includes(flag)) &&
    OVERLAY_FLAGS.every(flag => superOptions.includes(flag)) &&
    shown('lowerdir', lowerdir) &&
    shown('upperdir', upperdir, overlay.upper.path) &&
    shown('workdir', workdir, overlay.work.path)
  );
}

const MAX_COMPARED = 4;
const MAX_LISTED = 64;

// A directory that was exchanged while the engine mounted it, and put back, has its name and not its files: acode compares some of them
// through the sandbox’s own root, where an overlay gives a file of a lower layer its own number. One that somebody replaced since
// proves nothing, and neither does what the sandbox’s process does not let us see.
function isSameBelow({ source, target, overlay }: Forked, pid: number): boolean {
  const layers = [overlay.upper, ...overlay.lowers].map(({ path }) => path);
  const isBelow = (name: string): boolean => layers.every(layer => inodeOf(join(layer, name)) === null);
  const names = filesIn(source).filter(isBelow).slice(0, MAX_COMPARED);
  const compared = names.flatMap(name => {
    const own = inodeOf(join(source, name));
    const seen = inodeOf(`/proc/${pid}/root${join(target, name)}`);
    return seen === null || own === null ? [] : [own === seen];
  });
  return compared.length === 0 || compared.includes(true);
}

function filesIn(directory: string): string[] {
  const opened = opendirSync(directory, { bufferSize: MAX_LISTED });
  try {
    const names: string[] = [];
    for (let listed = 0; listed < MAX_LISTED; listed += 1) {
      const entry = opened.readSync();
      if (!entry) break;
      if (entry.isFile()) names.push(entry.name);
    }
    return names;
  } finally {
    opened.closeSync();
  }
}

function inodeOf(path: string): number | null {
  try {
    return lstatSync(path).ino;
  } catch {
    return null;
  }
}

function swappedParts({ upper, work, lowers }: OverlaySpec): Difference[] {
  return [upper, work, ...lowers]
    .filter(part => !isPartInPlace(part))
    .map(({ path }) => mounted(`${path}, a part of the fork, is not what was checked`));
}
