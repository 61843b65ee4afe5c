// Everything a terminal shows, for as long as it is open: a reader loses nothing however much there is, and what it has not
// taken yet holds back whoever prints.

import { Capture } from './capture.ts';

const ENOUGH = 256 * 1024;

/** A stream whose head is kept for the result, and which its first reader follows without end. */
export class LiveCapture extends Capture {
  #queue: Uint8Array[] | null = null;
  #queued = 0;
  #over = false;
  #wakeReader: () => void = () => undefined;
  #wakeWriter: () => void = () => undefined;

  override push(data: Buffer): void {
    super.push(data);
    if (this.#queue === null) return;
    this.#queue.push(Uint8Array.from(data));
    this.#queued += data.length;
    this.#wakeReader();
  }

  override end(): void {
    super.end();
    this.#over = true;
    this.#wakeReader();
  }

  /** Waits while the reader is far behind. Without a reader there is always room. */
  async room(): Promise<void> {
    while (this.#queue !== null && this.#queued > ENOUGH)
      await new Promise<void>(resolve => (this.#wakeWriter = resolve));
  }

  /** What was printed so far, and then everything as it comes. A second reader has the kept head alone. */
  override async *follow(): AsyncGenerator<Uint8Array, void, undefined> {
    if (this.#queue !== null) {
      yield* this.head();
      return;
    }
    const queue: Uint8Array[] = [];
    this.#queue = queue;
    const before = this.bytes();
    try {
      if (before.length > 0) yield before;
      while (queue.length > 0 || !this.#over) {
        const chunk = queue.shift();
        if (chunk) {
          this.#queued -= chunk.length;
          this.#wakeWriter();
          yield chunk;
        } else await new Promise<void>(resolve => (this.#wakeReader = resolve));
      }
    } finally {
      this.#queue = null;
      this.#queued = 0;
      this.#wakeWriter();
    }
  }
}
