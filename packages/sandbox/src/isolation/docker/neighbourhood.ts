// Who else has sandboxes on the engine: noticed as they come, so that what waits need not ask the engine at every hand-over.

import type { SandboxSpec } from '../../contract/spec.ts';
import { MANAGED } from '../../lifecycle/labels.ts';
import { reachOf } from '../neighbours.ts';
import type { Reach } from '../neighbours.ts';
import type { Engine } from './engine/index.ts';

/** A sandbox of this session that runs, or waits. */
export type Neighbour = Reach & { readonly id: string };

/** The sandboxes around those of one session. */
export class Neighbourhood {
  readonly #engine: Engine;
  readonly #owner: string;
  readonly #stop = new AbortController();
  readonly #own = new Map<string, Neighbour>();
  #listening: Promise<void> | null = null;
  #comings = 0;
  #hears = false;

  constructor(engine: Engine, owner: string) {
    this.#engine = engine;
    this.#owner = owner;
  }

  /** Those of this session, asked of nobody. */
  get own(): readonly Neighbour[] {
    return [...this.#own.values()];
  }

  /** What is compared later; null while nobody listens, so that nothing follows from it. */
  get mark(): number | null {
    return this.#hears ? this.#comings : null;
  }

  /** Whether no sandbox of another session has been started since a mark. */
  isQuietSince(mark: number | null): boolean {
    return mark !== null && this.mark === mark;
  }

  /** Resolves once the engine tells of whatever starts from now on; never rejects. */
  async listen(): Promise<void> {
    this.#listening ??= this.#subscribe();
    await this.#listening;
  }

  /** One of this session’s was started. */
  entered(id: string, spec: SandboxSpec): void {
    this.#own.set(id, { id, ...reachOf(spec) });
  }

  /** One of this session’s is gone. */
  left(id: string): void {
    this.#own.delete(id);
  }

  close(): void {
    this.#stop.abort();
  }

  async #subscribe(): Promise<void> {
    try {
      const filters = { type: ['container'], event: ['start', 'unpause'], label: [`${MANAGED}=true`] };
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      this.#hears = true;
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  // What comes after the engine went away is not heard: whoever holds a mark asks then.
  async #follow(subscription: AsyncIterable<{ readonly attributes: Readonly<Record<string, string>> }>): Promise<void> {
    try {
      for await (const { attributes } of subscription)
        if (attributes['acode.owner'] !== this.#owner) this.#comings += 1;
    } catch {
      // Said by what follows.
    }
    this.#hears = false;
    this.#comings += 1;
    this.#listening = null;
  }
}
