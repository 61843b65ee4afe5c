// Log of one attempt: gathers output for a tenth of a second, and sends it without ever holding the command up.

import type { FleetEngine, LogKey } from '../engine/engine.ts';
import { HEAD, encodePiece } from '../tasks/log-pieces.ts';
import type { LogChunk } from '../tasks/log-pieces.ts';

const EVERY_MS = 100;
const MAX_PIECE = 200 * 1024;
// Beyond it output is dropped: the engine is away, and the result has the beginning of it all the same.
const MAX_WAITING = 4 * 1024 ** 2;
const SEND_MS = 5000;
// A log that cannot be written keeps no result back for longer.
const END_MS = 5000;

/** Writes one log. */
export class LogWriter {
  readonly #engine: FleetEngine;
  readonly #key: LogKey;
  readonly #late = new AbortController();
  #chunks: LogChunk[] = [];
  #waiting = 0;
  #sequence = 0;
  #timer: NodeJS.Timeout | null = null;
  #sending: Promise<void> | null = null;
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
    const late = setTimeout(() => this.#late.abort(), END_MS);
    for (this.#flush(); this.#sending; this.#flush()) await this.#sending;
    clearTimeout(late);
    return this.#sequence;
  }

  #flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#chunks.length > 0) this.#sending ??= this.#send().finally(() => (this.#sending = null));
  }

  // One piece at a time. What comes while the engine is slow goes into the next one.
  async #send(): Promise<void> {
    for (let chunks = this.#next(); chunks.length > 0; chunks = this.#next()) {
      const size = chunks.reduce((sum, { bytes }) => sum + bytes.length, 0);
      this.#sequence += 1;
      const batch = { sequence: this.#sequence, bytes: encodePiece(chunks) };
      const signal = AbortSignal.any([this.#late.signal, AbortSignal.timeout(SEND_MS)]);
      await this.#engine.appendLog(this.#key, batch, signal).catch(() => void (this.dropped += size));
      this.#waiting -= size;
    }
  }

  #next(): LogChunk[] {
    let size = 0;
    const count = this.#chunks.findIndex(({ bytes }) => (size += HEAD + bytes.length) > MAX_PIECE + HEAD);
    return this.#chunks.splice(0, count === -1 ? this.#chunks.length : count);
  }
}
