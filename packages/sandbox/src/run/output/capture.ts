// Output capture: keeps the head of a stream, counts the rest, and lets any number of readers follow it without losing
// a byte.

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

/** Output as text, with the bytes beside it where decoding would lose something. */
export interface DecodedOutput {
  readonly text: string;
  readonly bytes?: Uint8Array;
}

/** Decodes output. `cut` says that the end was dropped, so that half a character at the end is no sign of binary data. */
export function decodeOutput(data: Uint8Array, cut: boolean): DecodedOutput {
  const whole = cut ? data.subarray(0, data.length - incompleteTail(data)) : data;
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(whole);
    if (!text.includes('\0')) return { text };
    return { text, bytes: Uint8Array.from(data) };
  } catch {
    return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(data), bytes: Uint8Array.from(data) };
  }
}

// How many bytes at the end begin a character that was cut off.
function incompleteTail(data: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, data.length); back += 1) {
    const byte = data[data.length - back] ?? 0;
    if ((byte & 0b1100_0000) === 0b1000_0000) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

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

const MAX_LENGTH = 100;
// Control and format characters, line and paragraph separators, and letters that are drawn as nothing.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]+/gu;
const UNSEEN_OR_SPACE = /[\s\p{C}\p{Z}\p{Default_Ignorable_Code_Point}]/u;

/** Text that can stand in quotes: nothing in it closes them. */
export function quotable(text: string): string {
  const line = text.replaceAll(UNSEEN, ' ').replaceAll(/["“”]/g, "'").trim();
  return line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH)}…` : line;
}

/** The same of a path, up to its first white space: words after it could pass for a sentence of acode’s. */
export function quotablePath(path: string): string {
  return quotable(path.split(UNSEEN_OR_SPACE, 1)[0] ?? '');
}
