// Keeps the head of one output stream, counts the rest, and lets any number of readers follow it without losing a byte.

/** What a command prints, without ever holding it back; `gone` is fired when nobody wants it any more. */
export interface Heads {
  stdout(gone: AbortSignal): AsyncIterable<Uint8Array>;
  stderr(gone: AbortSignal): AsyncIterable<Uint8Array>;
}

const BLOCK = 64 * 1024;

/** The kept head of a stream. Memory is bounded by the limit, however much is printed. */
export class Capture {
  readonly #limit: number;
  readonly #onChunk: ((chunk: Uint8Array) => void) | undefined;
  readonly #blocks: Buffer[] = [];
  #used = BLOCK;
  #kept = 0;
  #dropped = 0;
  #ended = false;
  readonly #wake = new Set<() => void>();

  constructor(limit: number, onChunk?: (chunk: Uint8Array) => void) {
    this.#limit = limit;
    this.#onChunk = onChunk;
  }

  /** Bytes beyond the limit. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes the next bytes of the stream. */
  push(data: Buffer): void {
    const room = this.#limit - this.#kept;
    const taken = data.length <= room ? data : data.subarray(0, room);
    this.#dropped += data.length - taken.length;
    if (taken.length === 0) return;
    this.#store(taken);
    this.#onChunk?.(Uint8Array.from(taken));
    this.#wakeAll();
  }

  /** No more will come. */
  end(): void {
    this.#ended = true;
    this.#wakeAll();
  }

  /** Everything that was kept. */
  bytes(): Buffer {
    return Buffer.concat(this.#blocks).subarray(0, this.#kept);
  }

  /** Follows the stream from its first byte; each reader has its own place in it. */
  follow(): AsyncGenerator<Uint8Array, void, undefined> {
    return this.head();
  }

  /** Follows what is kept of the stream, and never holds anybody back; `gone` ends it. */
  async *head(gone?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    for (let at = 0; ;) {
      while (at < this.#kept) {
        const chunk = this.#read(at);
        at += chunk.length;
        yield chunk;
      }
      if (this.#ended || gone?.aborted) return;
      await this.#more(gone);
    }
  }

  // A reader that is gone is let go of at once: the next byte may never come.
  #more(gone: AbortSignal | undefined): Promise<void> {
    return new Promise(resolve => {
      const wake = (): void => {
        gone?.removeEventListener('abort', wake);
        this.#wake.delete(wake);
        resolve();
      };
      this.#wake.add(wake);
      gone?.addEventListener('abort', wake);
    });
  }

  // Copied into blocks of our own: a few bytes of a chunk would otherwise keep the whole of the socket’s buffer alive.
  #store(data: Buffer): void {
    let from = 0;
    while (from < data.length) {
      if (this.#used === BLOCK) {
        this.#blocks.push(Buffer.alloc(BLOCK));
        this.#used = 0;
      }
      const block = this.#blocks.at(-1) ?? Buffer.alloc(0);
      const copied = data.copy(block, this.#used, from);
      this.#used += copied;
      this.#kept += copied;
      from += copied;
    }
  }

  #read(at: number): Uint8Array {
    const block = this.#blocks[Math.floor(at / BLOCK)] ?? Buffer.alloc(0);
    const start = at % BLOCK;
    return Uint8Array.from(block.subarray(start, Math.min(BLOCK, start + this.#kept - at)));
  }

  #wakeAll(): void {
    for (const wake of this.#wake) wake();
  }
}
