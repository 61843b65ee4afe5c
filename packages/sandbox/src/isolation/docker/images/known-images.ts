// What names of images mean, remembered as long as the engine says that no image has changed.

import type { ImageFacts } from '../../../contract/spec.ts';
import type { Engine } from '../engine/index.ts';
import { EventStamp } from '../resources/event-stamp.ts';

const MAX_ENTRIES = 64;

/** The images that were asked for lately. Nothing is remembered before the second question: the first is asked by everybody. */
export class KnownImages {
  readonly #stamp: EventStamp;
  readonly #known = new Map<string, { readonly facts: ImageFacts; readonly mark: number }>();
  readonly #remembers: boolean;
  #asked = false;

  /** Without `remembers` it asks each time: a question costs less than one connection more. */
  constructor(engine: Engine, remembers: boolean) {
    this.#stamp = new EventStamp(engine, { filters: { type: ['image'] } });
    this.#remembers = remembers;
  }

  /** What a name means, by `ask` unless that is known still. What is not there is asked for each time. */
  async find(reference: string, ask: () => Promise<ImageFacts | null>): Promise<ImageFacts | null> {
    const known = this.#known.get(reference);
    if (known && this.#stamp.hasLastedSince(known.mark)) return known.facts;
    // Not waited for: until the engine is heard, it is asked.
    if (this.#asked && this.#remembers) void this.#stamp.listen();
    this.#asked = true;
    // Before it is asked: what changes meanwhile counts as a change.
    const { mark } = this.#stamp;
    const facts = await ask();
    if (facts && mark !== null) this.#remember(reference, facts, mark);
    return facts;
  }

  close(): void {
    this.#stamp.close();
  }

  #remember(reference: string, facts: ImageFacts, mark: number): void {
    if (this.#known.size >= MAX_ENTRIES) this.#known.clear();
    this.#known.set(reference, { facts, mark });
  }
}
