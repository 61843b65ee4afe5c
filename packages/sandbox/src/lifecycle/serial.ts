// One operation at a time per container: overlapping calls on the same id wait for each other, others do not.

/** Runs operations with the same key one after the other, in the order they came. */
export class Serial {
  readonly #tails = new Map<string, Promise<unknown>>();

  /** Runs `operation` after all earlier ones with the same key, whatever became of them. */
  async run<Value>(key: string, operation: () => Promise<Value>): Promise<Value> {
    const before = this.#tails.get(key) ?? Promise.resolve();
    const mine = before.then(operation, operation);
    const tail = mine.then(
      () => undefined,
      () => undefined,
    );
    this.#tails.set(key, tail);
    try {
      return await mine;
    } finally {
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }
}
