// The end of what a command printed, for a person who sees it only if the command fails.

/** The end of an output, up to a number of bytes. */
export class OutputTail {
  readonly #limit: number;
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;
  #omitted = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    for (let first = this.#chunks[0]; first && this.#bytes - first.length >= this.#limit; first = this.#chunks[0]) {
      this.#chunks.shift();
      this.#bytes -= first.length;
      this.#omitted += first.length;
    }
  }

  end(): { readonly output: string; readonly omittedBytes: number } {
    return { output: Buffer.concat(this.#chunks).toString('utf8'), omittedBytes: this.#omitted };
  }
}
