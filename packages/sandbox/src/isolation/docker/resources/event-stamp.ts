// Event stamps: whether anything of a kind has happened on an engine since a moment. Its events tell, so that acode need not ask
// at every command.

import type { Engine } from '../engine/index.ts';
import type { EngineEvent, EventFilters } from '../engine/events.ts';

/** The events to be heard. */
export interface Heard {
  readonly filters: EventFilters;
  /** Which of them break the silence; all where it is left out. */
  readonly counts?: (event: Pick<EngineEvent, 'attributes'>) => boolean;
}

/** The silence of an engine about one kind of thing. */
export class EventStamp {
  readonly #engine: Engine;
  readonly #heard: Heard;
  readonly #stop = new AbortController();
  #listening: Promise<void> | null = null;
  #events = 0;
  #hears = false;

  constructor(engine: Engine, heard: Heard) {
    this.#engine = engine;
    this.#heard = heard;
  }

  /** What is compared later; null while nobody listens, so that nothing follows from it. */
  get mark(): number | null {
    return this.#hears ? this.#events : null;
  }

  /** Whether nothing has happened since a mark. */
  hasLastedSince(mark: number | null): boolean {
    return mark !== null && this.mark === mark;
  }

  /**
   * Resolves once the engine tells of whatever happens from now on; never rejects. Podman is not listened to: it tells of
   * things some time after they have happened.
   */
  async listen(): Promise<void> {
    if (this.#engine.connection.isPodman) return;
    this.#listening ??= this.#subscribe();
    await this.#listening;
  }

  close(): void {
    this.#stop.abort();
  }

  async #subscribe(): Promise<void> {
    try {
      const { filters } = this.#heard;
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      this.#hears = true;
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  // What happens after the engine went away is not heard: whoever holds a mark asks then.
  async #follow(subscription: AsyncIterable<EngineEvent>): Promise<void> {
    const { counts = () => true } = this.#heard;
    try {
      for await (const event of subscription) if (counts(event)) this.#events += 1;
    } catch {
      // Said by what follows.
    }
    this.#hears = false;
    this.#events += 1;
    this.#listening = null;
  }
}
