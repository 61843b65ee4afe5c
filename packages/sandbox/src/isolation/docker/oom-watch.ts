// Listens for the engine’s out-of-memory events: a container’s state says nothing of them while it runs.

import type { Engine } from './engine/index.ts';

/** Which containers had a process killed for want of memory, as far as the engine told. */
export class OomWatch {
  readonly #engine: Engine;
  readonly #label: string;
  readonly #seen = new Set<string>();
  readonly #stop = new AbortController();
  /** Containers that were started under the present subscription, so that nothing of theirs was missed. */
  readonly #followed = new Set<string>();
  #listening: Promise<void> | null = null;

  constructor(engine: Engine, label: string) {
    this.#engine = engine;
    this.#label = label;
  }

  /** Whether events of a container may have been missed, so that the engine has to be asked about it. */
  blindFor(id: string): boolean {
    return !this.#followed.has(id);
  }

  /** Resolves once the engine sends events, so that nothing of a container started afterwards is missed; never rejects. */
  async follow(id: string): Promise<void> {
    this.#listening ??= this.#listen();
    await this.#listening;
    if (this.#listening !== null) this.#followed.add(id);
  }

  /** Whether the container lost a process. */
  saw(id: string): boolean {
    return this.#seen.has(id);
  }

  /** Forgets a container that is gone. */
  forget(id: string): void {
    this.#seen.delete(id);
    this.#followed.delete(id);
  }

  close(): void {
    this.#stop.abort();
  }

  async #listen(): Promise<void> {
    try {
      const filters = { type: ['container'], event: ['oom'], label: [this.#label] };
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  async #follow(subscription: AsyncIterable<{ readonly id: string }>): Promise<void> {
    try {
      for await (const { id } of subscription) this.#seen.add(id);
    } catch {
      // The engine went away: every container that lived then is asked about at its end.
    }
    this.#followed.clear();
    this.#listening = null;
  }
}
