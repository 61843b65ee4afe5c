// Listens for the engine’s out-of-memory events: a container’s state says nothing of them while it runs.

import type { Engine } from './engine/index.ts';

/** Which containers had a process killed for want of memory, as far as the engine told. */
export class OomWatch {
  readonly #engine: Engine;
  readonly #label: string;
  readonly #seen = new Set<string>();
  readonly #stop = new AbortController();
  #listening: Promise<void> | null = null;
  #blind = false;

  constructor(engine: Engine, label: string) {
    this.#engine = engine;
    this.#label = label;
  }

  /** Whether events may have been missed, so that the engine has to be asked about each container. */
  get blind(): boolean {
    return this.#blind;
  }

  /** Resolves once the engine sends events, so that nothing started afterwards is missed; never rejects. */
  async ready(): Promise<void> {
    this.#listening ??= this.#listen();
    await this.#listening;
  }

  /** Whether the container lost a process. */
  saw(id: string): boolean {
    return this.#seen.has(id);
  }

  /** Forgets a container that is gone. */
  forget(id: string): void {
    this.#seen.delete(id);
  }

  close(): void {
    this.#stop.abort();
  }

  async #listen(): Promise<void> {
    try {
      const filters = { type: ['container'], event: ['oom'], label: [this.#label] };
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      this.#blind = false;
      void this.#follow(subscription);
    } catch {
      this.#blind = true;
      this.#listening = null;
    }
  }

  async #follow(subscription: AsyncIterable<{ readonly id: string }>): Promise<void> {
    try {
      for await (const { id } of subscription) this.#seen.add(id);
    } catch {
      // The engine went away: until the next subscription stands, every container is asked about.
    }
    this.#blind = true;
    this.#listening = null;
  }
}
