// Pieces of one output stream, from the one who gets them to the one who reads them.

/** Pieces of one stream, for one reader. The output of a command has a cap, so that a slow one loses nothing. */
export class Pieces implements AsyncIterable<Uint8Array> {
  readonly #waiting: Uint8Array[] = [];
  #isEnded = false;
  #wake: () => void = () => undefined;

  /** Adds a piece. */
  push(bytes: Uint8Array): void {
    this.#waiting.push(bytes);
    this.#wake();
  }

  /** Ends the stream. */
  end(): void {
    this.#isEnded = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const next = this.#waiting.shift();
      if (next) yield next;
      else if (this.#isEnded) return;
      else await new Promise<void>(resolve => (this.#wake = resolve));
    }
  }
}
