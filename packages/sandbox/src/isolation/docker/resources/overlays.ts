// The forks of sandboxes on an engine: for each a volume that the engine mounts as an overlay over the workspace.

import { chmodSync, lstatSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { AcodeError } from '../../../contract/errors.ts';
import type { MemoryLayerSpec, SandboxSpec } from '../../../contract/spec.ts';
import { reasonOf } from '../../../contract/system-error.ts';
import { KEEP, LEASES, NONCE, ownership, SANDBOX } from '../../../lifecycle/labels.ts';
import { copyLayer } from '../../../workspace/fork/marks.ts';
import { assertMountable, assertOptions, overlayOptions } from '../../../workspace/fork/overlay.ts';
import type { WaitingSandbox } from '../../backend.ts';
import { type Difference, mounted } from '../../kernel.ts';
import {
  type ForkedMount,
  forkedMounts,
  MEMORY_UPPER,
  MEMORY_WORK,
  overlayDifferences,
  overMemory,
  swappedParts,
} from '../../overlays.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { Engine, VolumeDetails } from '../engine/index.ts';
import { isNotFound } from '../engine/protocol.ts';
import { engineFailure } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { SandboxVolumes, type VolumesOptions } from './caches.ts';
import type { Attachment, Left, Seen } from './owned.ts';
import { type MountedOverlay, overlayVolume, storeOptions, storeVolume } from './volume-rules.ts';

const CALL_MS = 10_000;

const COPY_MS = 120_000;
const PERMISSIONS = 0o7777;

/** What the overlays of a backend need. */
export interface OverlaysOptions extends VolumesOptions {
  /** Makes a sandbox that holds memory for another: created, started, waiting. */
  readonly prepare: (spec: SandboxSpec, signal: AbortSignal) => Promise<WaitingSandbox>;
}

/** The memory of one sandbox’s fork. */
interface Memory {
  /** The sandbox that holds it; null until it is made. */
  holder: WaitingSandbox | null;
  /** Where this process finds the directory that the command writes; null until it is there. */
  upper: string | null;
  /** The copy of it that is being made; null before the command has ended. */
  copying: Promise<void> | null;
}

/** The overlays of the sandboxes of one backend. */
export class SandboxOverlays implements Attachment {
  readonly #options: OverlaysOptions;
  readonly #volumes: SandboxVolumes;
  readonly #engine: Engine;
  /** By the sandbox that writes it. */
  readonly #memories = new Map<string, Memory>();

  constructor(options: OverlaysOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#volumes = new SandboxVolumes(options);
  }

  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Pick<EngineFacts, 'overlays'>> {
    const forked = forkedMounts(spec);
    signal.throwIfAborted();
    if (forked.length === 0) return {};
    const swapped = forked.flatMap(({ mount }) => swappedParts(mount.overlay));
    if (swapped[0]) throw new AcodeError('ACODE-SBX-010', swapped[0]);
    const making = this.#makeAll(spec, forked, signal);
    this.#volumes.during(spec, Promise.allSettled([making]));
    try {
      return { overlays: await unlessCancelled(making, signal) };
    } catch (error) {
      this.release(spec);
      throw engineFailure(error, signal);
    }
  }

  async #makeAll(
    spec: SandboxSpec,
    forked: ReturnType<typeof forkedMounts>,
    signal: AbortSignal,
  ): Promise<MountedOverlay[]> {
    const memory = spec.memoryLayer ? await this.#hold(spec, spec.memoryLayer, signal) : null;
    return Promise.all(
      forked.map(async ({ mount, at }) => {
        const isInMemory = memory !== null && mount.purpose === 'workspace';
        const made = await this.#make(spec, isInMemory ? overMemory(mount, memory) : mount, at);
        return isInMemory ? { ...made, memory } : made;
      }),
    );
  }

  // A volume in memory is there for as long as a container has it mounted, and the engine mounts it before the overlay only for
  // another container. That one is a sandbox like any other: verified, without a network, with nothing of this machine.
  async #hold(spec: SandboxSpec, { bytes, holder }: MemoryLayerSpec, signal: AbortSignal): Promise<string> {
    const volume = storeVolume(spec);
    const made = await this.#volumes.make(spec, nonce => ({
      Name: volume,
      Driver: 'local',
      DriverOpts: { type: 'tmpfs', device: 'tmpfs', o: storeOptions(bytes, spec.user) },
      Labels: { ...ownership(spec), [NONCE]: nonce },
    }));
    if (made === null) throw strange(volume);
    const mountpoint = made.Mountpoint ?? '';
    const store = holder.store && { ...holder.store, volume, mountpoint };
    const memory: Memory = { holder: null, upper: null, copying: null };
    this.#memories.set(spec.identity.sandboxId, memory);
    // It outlives a command that is cancelled: what that wrote is still to be collected.
    const making = new AbortController();
    const cancel = (): void => making.abort(signal.reason);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      memory.holder = await this.#options.prepare({ ...holder, ...(store ? { store } : {}) }, making.signal);
      await memory.holder.verify(making.signal);
    } finally {
      signal.removeEventListener('abort', cancel);
    }
    const terms = { signal, deadlineMs: CALL_MS };
    const { State } = await this.#engine.containers.inspect(memory.holder.id, terms);
    const top = `/proc/${State.Pid}/root${store?.target ?? ''}`;
    const workspace = spec.mounts.find(({ purpose }) => purpose === 'workspace')?.source ?? '/';
    try {
      mkdirSync(join(top, MEMORY_WORK), { mode: 0o700 });
      mkdirSync(join(top, MEMORY_UPPER));
      chmodSync(join(top, MEMORY_UPPER), lstatSync(workspace).mode & PERMISSIONS);
    } catch (cause) {
      const reason = `this machine does not let acode into its memory (${reasonOf(cause)})`;
      throw new AcodeError('ACODE-SBX-006', { name: spec.identity.name, reason }, { cause });
    }
    memory.upper = join(top, MEMORY_UPPER);
    return mountpoint;
  }

  /**
   * Copies what a command wrote to memory into the directory of its layer; nothing for every other sandbox. The command has ended. Once, also
   * where it is asked for again.
   */
  async collect(spec: SandboxSpec): Promise<void> {
    const memory = this.#memories.get(spec.identity.sandboxId);
    if (!memory || memory.upper === null) return;
    const to = forkedMounts(spec).find(({ mount }) => mount.purpose === 'workspace')?.mount.overlay.upper.path;
    if (to === undefined) return;
    memory.copying ??= copyLayer(memory.upper, to, { scratch: dirname(to), signal: AbortSignal.timeout(COPY_MS) });
    await memory.copying;
  }

  verify(spec: SandboxSpec, { overlays = [] }: EngineFacts, { view, details }: Seen): Difference[] {
    return forkedMounts(spec).flatMap(({ mount, at }) => {
      const made = overlays.find(one => one.target === mount.target && one.volume === overlayVolume(spec, at));
      const planned = made?.memory === undefined ? mount : overMemory(mount, made.memory);
      return [
        ...(made ? [] : [mounted(`${mount.target} is not the volume that was made for it`)]),
        ...overlayDifferences(planned, view, details.State.Pid),
      ];
    });
  }

  release(spec: SandboxSpec): void {
    const memory = this.#memories.get(spec.identity.sandboxId);
    if (memory) this.#options.keep(this.#leave(memory, spec));
    else this.#volumes.leave(spec);
  }

  // A command that was cancelled is collected only now. The volume can be removed when nothing has it mounted any more.
  async #leave({ holder }: Memory, spec: SandboxSpec): Promise<void> {
    await this.collect(spec).catch(() => undefined);
    this.#memories.delete(spec.identity.sandboxId);
    await holder?.[Symbol.asyncDispose]();
    this.#volumes.leave(spec);
  }

  async close(): Promise<Left[]> {
    return this.#volumes.release();
  }

  async #make(spec: SandboxSpec, { overlay, source, target }: ForkedMount, at: number): Promise<MountedOverlay> {
    const options = overlayOptions(overlay, source);
    assertOptions(options, overlay.fork);
    // Podman has the program mount it.
    if (this.#engine.connection.isPodman) assertMountable(options, overlay, source, 'Docker');
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
    throw strange(name);
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

function strange(name: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', {
    violation: 'MountMismatch',
    detail: `the volume ${name}, for a fork, was there already and is another’s`,
    remedy: `Inspect it with \`docker volume inspect ${name}\`, and remove it.`,
  });
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
