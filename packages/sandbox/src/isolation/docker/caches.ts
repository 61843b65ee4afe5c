// The caches of sandboxes on an engine: finds them, makes each sandbox its layer, and keeps two from filling one at a time.

import { randomUUID } from 'node:crypto';
import type { CacheSpec, CacheVolume } from '../../contract/caches.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { LAYER, MANAGED } from '../../lifecycle/labels.ts';
import type { CacheState } from '../backend.ts';
import {
  assertCache,
  busy,
  cacheFault,
  cacheRequest,
  fillingName,
  fillingRequest,
  layerName,
  mountpointOf,
  ownedDirectory,
  partRequest,
} from './cache-rules.ts';
import type { LayerPart, MountedCache } from './cache-rules.ts';
import type { Engine } from './engine/index.ts';
import type { VolumeDetails } from './engine/volumes.ts';
import { engineFailure, reasonOf } from './failure.ts';

/** How caches are made. */
export interface CachesOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Does what makes something, in the knowledge of whoever cleans up if this process dies in the middle of it. */
  readonly making: <Value>(nonce: string, make: () => Promise<Value>) => Promise<Value>;
}

/** A volume that could not be removed. */
export interface VolumeLeft {
  readonly id: string;
  readonly reason: string;
}

const CALL_MS = 10_000;
const REMOVAL_ATTEMPTS = 6;
const PAUSE_MS = 100;
// How long whoever fills a cache waits for the sandboxes that read it. The kernel does not say what they would see.
const READERS_MS = 20_000;
// How long a sandbox waits for a cache that is being filled: whoever fills it has an end of its own a moment before.
const FILLED_MS = 2000;
const PARTS: readonly LayerPart[] = ['layer', 'upper', 'work'];
const OWN = 'data';

/** The caches of one backend. */
export class SandboxCaches {
  readonly #options: CachesOptions;
  readonly #engine: Engine;
  /** The volumes of each sandbox that go with it. */
  readonly #made = new Map<string, Set<string>>();

  constructor(options: CachesOptions) {
    this.#options = options;
    this.#engine = options.engine;
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
    const labels = [`${MANAGED}=true`, `acode.uid=${uid}`];
    const found = new Map((await this.#list(labels, signal)).map(volume => [volume.Name, volume]));
    return caches.map(cache => {
      const volume = found.get(cache.volume);
      if (!volume || cacheFault(volume, cache, String(uid)) !== null) return 'absent';
      return found.has(fillingName(cache)) ? 'filling' : 'ready';
    });
  }

  /** Makes what the sandbox of a plan mounts for its caches. */
  async attach(spec: SandboxSpec, signal: AbortSignal): Promise<MountedCache[]> {
    try {
      return await Promise.all(
        spec.caches.map(cache => (cache.fill ? this.#fill(spec, cache, signal) : this.#layer(spec, cache, signal))),
      );
    } catch (error) {
      this.leave(spec);
      throw engineFailure(error, signal);
    }
  }

  /** Gives the user inside a directory in each cache that is filled: the top of a volume is root’s. */
  async own(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    const filled = spec.caches.filter(({ fill }) => fill);
    const tar = ownedDirectory(OWN, spec.user);
    await Promise.all(
      filled.map(({ target }) => this.#engine.archive.put(containerId, target, tar, { signal, deadlineMs: CALL_MS })),
    );
  }

  /** A sandbox is gone, or was never made: what it alone had goes too. */
  leave({ identity: { sandboxId } }: SandboxSpec): void {
    const names = this.#made.get(sandboxId);
    if (names) this.#options.keep(this.#removeAll(sandboxId, names));
  }

  /** Removes everything that was made for sandboxes; what could not be removed comes back. Containers go first. */
  async release(): Promise<VolumeLeft[]> {
    const left = await Promise.all([...this.#made].map(([sandboxId, names]) => this.#removeAll(sandboxId, names)));
    return left.flat();
  }

  async #layer(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<MountedCache> {
    const part = (name: LayerPart, layer: MountedCache['layer']): Promise<VolumeDetails> =>
      this.#make(spec, nonce => partRequest(spec, cache, name, { nonce, layer }), layerName(spec, cache, name));
    const [found, upper, work] = await Promise.all([
      this.#engine.volumes.inspect(cache.volume, { signal, deadlineMs: CALL_MS }),
      part('upper', null),
      part('work', null),
    ]);
    const lower = mountpointOf(assertCache(found, cache, uidOf(spec)));
    const layer = { lower, upper: mountpointOf(upper), work: mountpointOf(work) };
    signal.throwIfAborted();
    const made = await part('layer', layer);
    return { target: cache.target, volume: made.Name, mountpoint: mountpointOf(made), layer };
  }

  async #fill(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<MountedCache> {
    await this.#hold(spec, cache, signal);
    await this.#readersGone(cache, signal);
    const body = cacheRequest(spec, cache);
    const found = await this.#engine.volumes.create(body, { signal, deadlineMs: CALL_MS });
    const mountpoint = mountpointOf(assertCache(found, cache, uidOf(spec)));
    return { target: cache.target, volume: cache.volume, mountpoint, layer: null };
  }

  // To an engine, making a volume whose name is taken is a success, and the answer is the one that was there: so whoever
  // reads their own mark in it is the one who fills the cache. Nobody else can be, on any host that uses this engine.
  async #hold(spec: SandboxSpec, cache: CacheSpec, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const began = clock.monotonic();
    for (;;) {
      let own = '';
      const body = (nonce: string): Record<string, unknown> => fillingRequest(spec, cache, (own = nonce));
      const held = await this.#make(spec, body, fillingName(cache));
      if (held.Labels?.['acode.nonce'] === own) return;
      // Another’s, and so not to be removed by us.
      this.#made.get(spec.identity.sandboxId)?.delete(fillingName(cache));
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

  // Without the caller’s signal: a create under way cannot be taken back, and what it makes must be known to be removed.
  async #make(
    { identity: { sandboxId } }: SandboxSpec,
    body: (nonce: string) => Record<string, unknown>,
    name: string,
  ): Promise<VolumeDetails> {
    const nonce = randomUUID();
    const names = this.#made.get(sandboxId) ?? new Set();
    this.#made.set(sandboxId, names.add(name));
    const terms = { signal: AbortSignal.timeout(2 * CALL_MS), deadlineMs: CALL_MS };
    return this.#options.making(nonce, () => this.#engine.volumes.create(body(nonce), terms));
  }

  async #removeAll(sandboxId: string, names: Set<string>): Promise<VolumeLeft[]> {
    const left: VolumeLeft[] = [];
    // The layer first: it is made of the others.
    for (const name of [...names].sort(byPart)) {
      const failed = await this.#remove(name);
      if (failed) left.push(failed);
      else names.delete(name);
    }
    if (names.size === 0) this.#made.delete(sandboxId);
    return left;
  }

  // A container that is being removed still holds its volumes for a moment.
  async #remove(name: string): Promise<VolumeLeft | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#engine.volumes.remove(name, { signal: AbortSignal.timeout(CALL_MS), deadlineMs: CALL_MS });
        return null;
      } catch (error) {
        if (attempt >= REMOVAL_ATTEMPTS) return { id: name, reason: reasonOf(error) };
      }
      await this.#pause(PAUSE_MS * 2 ** attempt);
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

function byPart(one: string, other: string): number {
  const rank = (name: string): number => PARTS.findIndex(part => name.endsWith(`-${part}`));
  return rank(one) - rank(other);
}

function uidOf({ identity }: SandboxSpec): string {
  return identity.labels['acode.uid'] ?? '';
}
