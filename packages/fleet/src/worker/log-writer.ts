// Log of one attempt: gathers output for a tenth of a second, and sends it without ever holding the command up.

import type { FleetEngine, LogKey } from '../engine/engine.ts';
import { encodePiece } from '../tasks/log-pieces.ts';
import type { LogChunk } from '../tasks/log-pieces.ts';

const EVERY_MS = 100;
const MAX_PIECE = 200 * 1024;
// Beyond it output is dropped: the engine is away, and the result has the end of it all the same.
const MAX_WAITING = 4 * 1024 ** 2;
const SEND_MS = 5000;

/** Writes one log. */
export class LogWriter {
  readonly #engine: FleetEngine;
  readonly #key: LogKey;
  #chunks: LogChunk[] = [];
  #waiting = 0;
  #sequence = 0;
  #timer: NodeJS.Timeout | null = null;
  #sending: Promise<void> = Promise.resolve();
  dropped = 0;

  constructor(engine: FleetEngine, key: LogKey) {
    this.#engine = engine;
    this.#key = key;
  }

  add(stream: 1 | 2, bytes: Uint8Array): void {
    if (this.#waiting + bytes.length > MAX_WAITING) {
      this.dropped += bytes.length;
      return;
    }
    this.#waiting += bytes.length;
    for (let at = 0; at < bytes.length; at += MAX_PIECE)
      this.#chunks.push({ stream, bytes: bytes.slice(at, at + MAX_PIECE) });
    this.#timer ??= setTimeout(() => this.#flush(), EVERY_MS);
  }

  /** Sends what is left; returns how many pieces there are. A piece that could not be sent is missing. */
  async end(): Promise<number> {
    this.#flush();
    await this.#sending;
    return this.#sequence;
  }

  #flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    const chunks = this.#chunks;
    this.#chunks = [];
    let piece: LogChunk[] = [];
    let size = 0;
    for (const chunk of chunks) {
      if (size + chunk.bytes.length > MAX_PIECE) {
        this.#send(piece);
        piece = [];
        size = 0;
      }
      piece.push(chunk);
      size += chunk.bytes.length;
    }
    if (piece.length > 0) this.#send(piece);
  }

  #send(chunks: readonly LogChunk[]): void {
    this.#sequence += 1;
    const sequence = this.#sequence;
    const size = chunks.reduce((sum, { bytes }) => sum + bytes.length, 0);
    this.#sending = this.#sending
      .then(() =>
        this.#engine.appendLog(this.#key, { sequence, bytes: encodePiece(chunks) }, AbortSignal.timeout(SEND_MS)),
      )
      .catch(() => void (this.dropped += size))
      .finally(() => (this.#waiting -= size));
  }
}
