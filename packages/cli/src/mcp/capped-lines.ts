// Bytes cut into lines, none of which is longer than it may be: what is, is skipped up to its end.

const NEWLINE = 0x0a;

/** What is done with lines. */
export interface LineListener {
  readonly line: (text: string) => void;
  /** Called once for each line that was too long, when it ends being read. */
  readonly tooLong: () => void;
}

/** Cuts a stream into lines. */
export class CappedLines {
  readonly #most: number;
  readonly #listener: LineListener;
  #chunks: Uint8Array[] = [];
  #size = 0;
  #skipping = false;

  constructor(most: number, listener: LineListener) {
    this.#most = most;
    this.#listener = listener;
  }

  /** Takes the next bytes. */
  push(chunk: Uint8Array): void {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
      this.#add(chunk.subarray(from, end));
      this.#end();
      from = end + 1;
    }
    this.#add(chunk.subarray(from));
  }

  #add(part: Uint8Array): void {
    if (this.#skipping || part.length === 0) return;
    this.#size += part.length;
    this.#chunks.push(part);
    if (this.#size <= this.#most) return;
    this.#skipping = true;
    this.#chunks = [];
  }

  #end(): void {
    const skipped = this.#skipping;
    const text = Buffer.concat(this.#chunks).toString('utf8').trim();
    this.#chunks = [];
    this.#size = 0;
    this.#skipping = false;
    if (skipped) this.#listener.tooLong();
    else if (text !== '') this.#listener.line(text);
  }
}
