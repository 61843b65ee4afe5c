// Streams of a connection: its first bytes, the copy from one side to the other, and the meter that both directions pass.

import type { Duplex, Readable, Writable } from 'node:stream';
import type { EgressLimits } from '../../contract/egress.ts';

/** A direction, as the sandbox sees it: `out` leaves it. */
export type Direction = 'in' | 'out';

/** Counts bytes, and says for how many milliseconds their source has to pause. */
export type Take = (bytes: number) => number;

const SECOND = 1000;

/**
 * Reads the first bytes of a connection until they can be told. Null if the client ended, was closed or sent more than is read
 * before that. What was read is returned whole: nothing of it is put back.
 */
export function readPrefix<Value>(
  stream: Duplex,
  maxBytes: number,
  parse: (bytes: Buffer) => Value | null,
): Promise<{ readonly value: Value; readonly bytes: Buffer } | null> {
  const gathered = new Gathered();
  return new Promise(resolve => {
    const settle = (result: { value: Value; bytes: Buffer } | null): void => {
      stream.off('data', onData).off('end', onEnd).off('close', onEnd);
      stream.pause();
      resolve(result);
    };
    const onEnd = (): void => settle(null);
    const onData = (chunk: Buffer): void => {
      const bytes = gathered.add(chunk);
      const value = parse(bytes);
      if (value !== null) settle({ value, bytes });
      else if (bytes.length > maxBytes) settle(null);
    };
    if (stream.destroyed || stream.readableEnded) return settle(null);
    stream.on('data', onData).on('end', onEnd).on('close', onEnd);
    stream.resume();
  });
}

/** Bytes that arrive in pieces. It grows by doubling: a client that sends single bytes costs no more than one that does not. */
class Gathered {
  #buffer: Buffer = Buffer.alloc(0);
  #length = 0;

  add(chunk: Buffer): Buffer {
    if (this.#length === 0) {
      this.#buffer = chunk;
    } else if (this.#length + chunk.length > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(2 * (this.#length + chunk.length));
      this.#buffer.copy(grown, 0, 0, this.#length);
      this.#buffer = grown;
      chunk.copy(grown, this.#length);
    } else chunk.copy(this.#buffer, this.#length);
    this.#length += chunk.length;
    return this.#buffer.subarray(0, this.#length);
  }
}

/** Copies to the end, no faster than the other side reads and the meter allows; then ends the other side. */
export function copy(from: Readable, to: Writable, take: Take): void {
  let isHeld = false;
  from.on('data', (chunk: Buffer) => {
    const wait = take(chunk.length);
    const isFull = !to.write(chunk);
    if (wait > 0) {
      isHeld = true;
      setTimeout(() => {
        isHeld = false;
        if (!to.writableNeedDrain) from.resume();
      }, wait);
    }
    if (wait > 0 || isFull) from.pause();
  });
  to.on('drain', () => {
    if (!isHeld) from.resume();
  });
  // A client that ended while its request was decided has said so already: a socket tells that even while it is paused.
  if (from.readableEnded) to.end();
  else from.on('end', () => to.end()).resume();
}

/** Joins two connections. Each direction ends by itself; if one side breaks, the other is cut. Resolves when both are closed. */
export function join(client: Duplex, upstream: Duplex, take: (direction: Direction) => Take): Promise<void> {
  copy(client, upstream, take('out'));
  copy(upstream, client, take('in'));
  return new Promise(resolve => {
    const onClose = (other: Duplex) => (): void => {
      if (!other.writableEnded) other.destroy();
      if (client.closed && upstream.closed) resolve();
    };
    client.on('close', onClose(upstream)).on('error', () => upstream.destroy());
    upstream.on('close', onClose(client)).on('error', () => client.destroy());
    if (client.destroyed) upstream.destroy();
    if (upstream.destroyed) client.destroy();
  });
}

/** Bytes of one sandbox in one direction: how many there were, and how fast more may follow. */
export class Meter {
  #total = 0;
  #allowance: number | null = null;
  #filledAt = 0;
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** How many bytes have passed. */
  get total(): number {
    return this.#total;
  }

  /** Counts bytes; says how long their source has to pause, in milliseconds. */
  take(bytes: number, { bytesPerSecond: rate }: EgressLimits): number {
    this.#total += bytes;
    if (rate === undefined) return 0;
    const now = this.#now();
    // At most one second’s worth is saved up.
    const saved = this.#allowance === null ? rate : this.#allowance + ((now - this.#filledAt) * rate) / SECOND;
    this.#allowance = Math.min(rate, saved) - bytes;
    this.#filledAt = now;
    return this.#allowance >= 0 ? 0 : Math.ceil((-this.#allowance * SECOND) / rate);
  }
}
