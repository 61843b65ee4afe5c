// The caches of sandboxes on an engine: finds them, makes each sandbox its layer, and keeps two from filling one at a time.

import { randomUUID } from 'node:crypto';
import type { CacheSpec, CacheVolume } from '../../../contract/caches.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { FILLING, KEEP, LAYER, MANAGED, NONCE, UID } from '../../../lifecycle/labels.ts';
import type { CacheState } from '../../backend.ts';
import type { Difference } from '../../kernel.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { Engine, VolumeDetails } from '../engine/index.ts';
import { isNotFound } from '../engine/protocol.ts';
import { engineFailure } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { cacheDifferences } from '../verify/verify.ts';
import { type Attachment, type Left, OwnedResources, type OwnerOptions, removeHeld, type Seen } from './owned.ts';
import {
  assertCache,
  beingFilled,
  busy,
  cacheFault,
  cacheRequest,
  fillingName,
  fillingRequest,
  layerName,
  type LayerPart,
  type MountedCache,
  mountpointOf,
  ownedDirectory,
  partRequest,
  strange,
} from './volume-rules.ts';

const CALL_MS = 10_000;
const PAUSE_MS = 100;
// How long whoever fills a cache waits for the sandboxes that read it. The kernel does not say what they would see.
const READERS_MS = 20_000;
// How long a sandbox waits for a cache that is being filled: whoever fills it has an end of its own a moment before.
const FILLED_MS = 2000;
const OWN = 'data';

/** The caches of one backend. */
export class SandboxCaches implements Attachment {
  readonly #options: VolumesOptions;
  readonly #engine: Engine;
  readonly #volumes: SandboxVolumes;

  constructor(options: VolumesOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#volumes = new SandboxVolumes(options);
  }

  /** What there is of caches, by the names of their volumes. One whose filling is about to end is waited for. */
  async find(caches: readonly CacheVolume[], uid: number, signal: AbortSignal): Promise<CacheState[]> {
    const began = this.#options.clock.monotonic();
    for (;;) {
      const states = await this.#look(caches, uid, signal);
      if (!states.includes('filling') || this.#options.clock.monotonic() - began > FILLED_MS) return states;
      await this.#pause(PAUSE_MS);
      signal.throwIfAborted();
    }
  }

  async #look(caches: readonly CacheVolume[], uid: number, signal: AbortSignal): Promise<CacheState[]> {
    const labels = [`${MANAGED}=true`, `${UID}=${uid}`];
    const found = new Map((await this.#list(labels, signal)).map(volume => [volume.Name, volume]));
    return caches.map(cache => {
      const volume = found.get(cache.volume);
      if (!volume || cacheFault(volume, cache, String(uid)) !== null) return 'absent';
      return found.has(fillingName(cache)) ? 'filling' : 'ready';
    });
  }

  /**
   * Makes what the sandbox of a plan mounts for its caches. Where one of them cannot be had the others are given up too: at
   * once to the caller, and removed when the last create under way has ended.
   */
  async attach(spec: SandboxSpec, signal: AbortSignal): Promise<MountedCache[]> {
    signal.throwIfAborted();
    if (spec.caches.length === 0) return [];
    const failed = new AbortController();
    const either = AbortSignal.any([signal, failed.signal]);
    const attaching = spec.caches.map(cache =>
      cache.fill ? this.#fill(spec, cache, either) : this.#layer(spec, cache, either),
    );
    this.#volumes.during(spec, Promise.allSettled(attaching));
    try {
      return await unlessCancelled(Promise.all(attaching), signal);
    } catch (error) {
      failed.abort();
      this.release(spec);
      throw engineFailure(error, signal);
    }
  }

  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Pick<EngineFacts, 'caches'>> {
    return { caches: await this.attach(spec, signal) };
  }

  verify(spec: SandboxSpec, { caches = [] }: EngineFacts, { view }: Seen): Difference[] {
    return view ? cacheDifferences(spec, view, caches) : [];
  }

  /**
   * Gives the user inside a directory in each cache: the top of a volume is root’s. In a layer too, since the cache under it
   * may be one whose first fill never came to that.
   */
  async created(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    const tar = ownedDirectory(OWN, spec.user);
    await Promise.all(
      spec.caches.map(({ target }) =>
        this.#engine.archive.put(containerId, target, tar, { signal, deadlineMs: CALL_MS }),
      ),
    );
  }

  /** A sandbox is gone, or was never made: what it alone had goes too. */
  release(spec: SandboxSpec): void {
    this.#volumes.leave(spec);
  }

  /** Removes everything that was made for sandboxes; what could not be removed comes back. Containers go first. */
  async close(): Promise<Left[]> {
    return this.#volumes.release();
  }

  async #layer(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<MountedCache> {
    const [upper, work] = await this.#parts(spec, cache, signal);
    const found = await this.#engine.volumes.inspect(cache.volume, { signal, deadlineMs: CALL_MS });
    const lower = mountpointOf(assertCache(found, cache, uidOf(spec)));
    const layer = { lower, upper: mountpointOf(upper), work: mountpointOf(work) };
    signal.throwIfAborted();
    const made = await this.#part(spec, cache, 'layer', layer);
    const { Name: volume, Labels: labels } = made;
    return { target: cache.target, volume, mountpoint: mountpointOf(made), layer, labels: labels ?? {} };
  }

  // Whoever fills looks for layers when they have the lease, and whoever reads looks for a lease when their part of a layer
  // is there: whatever happened between the plan and now, one of the two sees the other.
  async #parts(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<[VolumeDetails, VolumeDetails]> {
    const began = this.#options.clock.monotonic();
    const make = async (): Promise<[VolumeDetails, VolumeDetails]> => {
      const making = [this.#part(spec, cache, 'upper', null), this.#part(spec, cache, 'work', null)] as const;
      // Where one fails, the other is under way: what is made has an end before it is removed.
      await Promise.allSettled(making);
      return Promise.all(making);
    };
    let parts = await make();
    while (await this.#isFilled(cache, signal)) {
      // Not kept while we wait: the other would wait for us.
      await this.#volumes.giveBack(
        spec,
        parts.map(({ Name }) => Name),
      );
      do {
        if (this.#options.clock.monotonic() - began > FILLED_MS) throw beingFilled(cache);
        await this.#pause(PAUSE_MS);
        signal.throwIfAborted();
      } while (await this.#isFilled(cache, signal));
      parts = await make();
    }
    return parts;
  }

  async #part(
    spec: SandboxSpec,
    cache: CacheSpec,
    part: LayerPart,
    layer: MountedCache['layer'],
  ): Promise<VolumeDetails> {
    const made = await this.#volumes.make(spec, nonce => partRequest(spec, cache, part, { nonce, layer }));
    if (made === null) throw strange(cache, layerName(spec, cache, part));
    return made;
  }

  async #isFilled(cache: CacheSpec, signal: AbortSignal): Promise<boolean> {
    return (await this.#list([`${FILLING}=${cache.volume}`], signal)).length > 0;
  }

  async #fill(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<MountedCache> {
    await this.#hold(spec, cache, signal);
    await this.#readersGone(cache, signal);
    const body = cacheRequest(spec, cache);
    const found = await this.#engine.volumes.create(body, { signal, deadlineMs: CALL_MS });
    const mountpoint = mountpointOf(assertCache(found, cache, uidOf(spec)));
    return { target: cache.target, volume: cache.volume, mountpoint, layer: null, labels: found.Labels ?? {} };
  }

  // The lease is a volume whose name only one can have: nobody else fills the cache, on any host that uses this engine.
  async #hold(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const began = clock.monotonic();
    while ((await this.#volumes.make(spec, nonce => fillingRequest(spec, cache, nonce))) === null) {
      if (clock.monotonic() - began > FILLED_MS) throw busy(cache, 'another run fills it');
      await this.#pause(PAUSE_MS);
      signal.throwIfAborted();
    }
  }

  async #readersGone(cache: CacheSpec, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const began = clock.monotonic();
    for (;;) {
      const layers = await this.#list([`${LAYER}=${cache.volume}`], signal);
      if (layers.length === 0) return;
      if (clock.monotonic() - began > READERS_MS) throw busy(cache, 'sandboxes that read it are at work');
      await this.#pause(PAUSE_MS);
      signal.throwIfAborted();
    }
  }

  async #list(labels: readonly string[], signal: AbortSignal): Promise<VolumeDetails[]> {
    try {
      return await this.#engine.volumes.list({ labels, signal, deadlineMs: CALL_MS });
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => void this.#options.clock.after(ms, resolve));
  }
}

function uidOf({ identity }: SandboxSpec): string {
  return identity.labels[UID] ?? '';
}

// The volumes that are made for a sandbox and go with it: each has a mark of its own, and only what has it is removed.
//
// To an engine, making a volume whose name is taken is a success, and the answer is the one that was there. So nothing is
// taken for ours because we asked for it, and a name that was ours once may be another’s by the time it is to be removed.

/** How volumes are made. */
export interface VolumesOptions extends OwnerOptions {
  readonly engine: Engine;
}

/** The volumes of one sandbox. */
interface CreatedVolumes {
  /** The mark of each, by name, in the order in which they were made. */
  readonly marks: Map<string, string>;
  /** Settles when nothing more is made for the sandbox. */
  making: Promise<unknown>;
  /** The removal that is under way: a second one beside it could take what another made in between. */
  leaving: Promise<Left[]> | null;
  /** Whether the sandbox outlives this session: its volumes are removed with it, and not when the session ends. */
  readonly outlives: boolean;
}

/** The volumes of the sandboxes of one backend. */
export class SandboxVolumes {
  readonly #options: VolumesOptions;
  readonly #engine: Engine;
  readonly #owned: OwnedResources;
  readonly #made = new Map<string, CreatedVolumes>();

  constructor(options: VolumesOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#owned = new OwnedResources(options, async terms =>
      (await this.#engine.volumes.list(terms)).map(({ Name }) => Name),
    );
  }

  /** Says until when volumes are made for a sandbox: none is removed before, or one would be made behind the removal. */
  during(spec: SandboxSpec, making: Promise<unknown>): void {
    this.#of(spec).making = making;
  }

  /**
   * Makes a volume for a sandbox; null where the name is another’s. Without the caller’s signal: a create under way cannot
   * be taken back, and what it makes must be known to be removed.
   */
  async make(spec: SandboxSpec, body: (nonce: string) => Record<string, unknown>): Promise<VolumeDetails | null> {
    const nonce = randomUUID();
    const terms = { signal: AbortSignal.timeout(2 * CALL_MS), deadlineMs: CALL_MS };
    const made = await this.#owned.create({
      nonce,
      make: () => this.#engine.volumes.create(body(nonce), terms),
      remove: name => this.#removeMarked(name, nonce),
    });
    if (made.Labels?.[NONCE] !== nonce) return null;
    this.#of(spec).marks.set(made.Name, nonce);
    return made;
  }

  /** Removes some of a sandbox’s volumes before it is gone; what cannot be removed now goes with it. */
  async giveBack(spec: SandboxSpec, names: readonly string[]): Promise<void> {
    const { marks } = this.#of(spec);
    await Promise.all(
      names.map(async name => {
        const mark = marks.get(name);
        if (mark !== undefined && (await this.#remove(name, mark)) === null) marks.delete(name);
      }),
    );
  }

  /** A sandbox is gone, or was never made: what it alone had goes too. */
  leave({ identity: { sandboxId } }: SandboxSpec): void {
    const made = this.#made.get(sandboxId);
    if (made) this.#options.keep(this.#letGo(sandboxId, made));
  }

  /** Removes everything that was made for sandboxes; what could not be removed comes back. Containers go first. */
  async release(): Promise<Left[]> {
    const ending = [...this.#made].filter(([, { outlives }]) => !outlives);
    const left = await Promise.all(ending.map(([sandboxId, made]) => this.#letGo(sandboxId, made)));
    return [...left.flat(), ...this.#owned.unanswered];
  }

  #of({ identity: { sandboxId, labels } }: SandboxSpec): CreatedVolumes {
    const known = this.#made.get(sandboxId);
    if (known) return known;
    const outlives = labels[KEEP] === 'true';
    const made: CreatedVolumes = { marks: new Map(), making: Promise.resolve(), leaving: null, outlives };
    this.#made.set(sandboxId, made);
    return made;
  }

  #letGo(sandboxId: string, made: CreatedVolumes): Promise<Left[]> {
    made.leaving ??= this.#removeAll(sandboxId, made).finally(() => {
      made.leaving = null;
    });
    return made.leaving;
  }

  async #removeAll(sandboxId: string, made: CreatedVolumes): Promise<Left[]> {
    await Promise.allSettled([made.making]);
    const left: Left[] = [];
    // The last one first: it may be made of the others.
    for (const [name, mark] of [...made.marks].reverse()) {
      const failed = await this.#remove(name, mark);
      if (failed) left.push(failed);
      else made.marks.delete(name);
    }
    if (made.marks.size === 0) this.#made.delete(sandboxId);
    return left;
  }

  #remove(name: string, mark: string): Promise<Left | null> {
    return removeHeld(this.#options.clock, name, () => this.#removeMarked(name, mark));
  }

  async #removeMarked(name: string, mark: string): Promise<void> {
    const terms = { signal: AbortSignal.timeout(2 * CALL_MS), deadlineMs: CALL_MS };
    try {
      const found = await this.#engine.volumes.inspect(name, terms);
      if (found.Labels?.[NONCE] === mark) await this.#engine.volumes.remove(name, terms);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}
