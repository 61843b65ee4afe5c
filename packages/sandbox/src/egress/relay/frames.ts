// Streams over one pipe: the connections of a forwarder that has nothing but its standard input and output.
//
// Each stream has credit of its own in each direction, so that one which nobody reads does not stop the others. The form of a frame
// is at the top of forwarder.c.

import { Duplex } from 'node:stream';
import type { MessagePort } from 'node:worker_threads';

/** The pipe: a stream, or a port of another thread that has the stream. */
export type FramePipe = Duplex | MessagePort;

/** What the frames are for. */
export interface FrameUse {
  /** Bytes of the control connection; false if they are not what a forwarder says. */
  control(chunk: Uint8Array): boolean;
  /** A connection, with the name of its listener. False refuses it. */
  open(listener: string, stream: Duplex): boolean;
  /** How many streams there may be at once. */
  max(): number;
  /** The pipe is closed, or was not what a forwarder writes. */
  closed(): void;
}

const HEADER = 8;
const MAX_PAYLOAD = 32_768;
const WINDOW = 256 * 1024;
const MAX_LISTENER = 24;
const [OPEN, DATA, END, RESET, CREDIT] = ['O', 'D', 'E', 'R', 'W'].map(letter => letter.charCodeAt(0));

/** All streams of one forwarder. */
export class Frames {
  readonly #pipe: FramePipe;
  readonly #use: FrameUse;
  readonly #streams = new Map<number, FrameStream>();
  #rest: Buffer = Buffer.alloc(0);
  #isClosed = false;

  constructor(pipe: FramePipe, use: FrameUse) {
    this.#pipe = pipe;
    this.#use = use;
    const close = (): void => this.close();
    if (pipe instanceof Duplex) {
      pipe.on('data', (chunk: Buffer) => this.#receive(chunk));
      // One for all streams: each of them waiting for itself would pile up listeners.
      pipe.on('drain', () => this.#drained());
      pipe.on('end', close).on('close', close).on('error', close);
    } else {
      pipe.on('message', (chunk: unknown) =>
        chunk instanceof Uint8Array ? this.#receive(Buffer.from(chunk)) : close(),
      );
      pipe.on('close', close);
    }
  }

  /** Sends a part of the control connection. */
  control(text: string): void {
    for (let rest = Buffer.from(text, 'latin1'); rest.length > 0; rest = rest.subarray(MAX_PAYLOAD))
      this.send(0, 'data', rest.subarray(0, MAX_PAYLOAD));
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const stream of this.#streams.values()) stream.destroy();
    this.#streams.clear();
    if (this.#pipe instanceof Duplex) this.#pipe.destroy();
    else this.#pipe.close();
    this.#use.closed();
  }

  /** Sends a frame. */
  send(stream: number, type: 'data' | 'end' | 'reset' | 'credit', payload: Uint8Array = new Uint8Array()): void {
    if (this.#isClosed) return;
    // Memory of its own, so that a port can give it away.
    const frame = Buffer.allocUnsafeSlow(HEADER + payload.length);
    frame.writeUInt32LE(stream, 0);
    frame[4] = { data: DATA, end: END, reset: RESET, credit: CREDIT }[type] ?? 0;
    frame[5] = 0;
    frame.writeUInt16LE(payload.length, 6);
    frame.set(payload, HEADER);
    if (this.#pipe instanceof Duplex) this.#pipe.write(frame);
    else this.#pipe.postMessage(frame, [frame.buffer]);
  }

  /** Whether the pipe is full. The streams are told when it is not any more. */
  get isFull(): boolean {
    return this.#pipe instanceof Duplex && this.#pipe.writableNeedDrain;
  }

  forget(stream: number): void {
    this.#streams.delete(stream);
  }

  #drained(): void {
    for (const stream of this.#streams.values()) stream.pump();
  }

  #receive(chunk: Buffer): void {
    if (this.#isClosed) return;
    const data = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk;
    let at = 0;
    while (data.length - at >= HEADER) {
      const length = data.readUInt16LE(at + 6);
      if (data.length - at < HEADER + length) break;
      const payload = data.subarray(at + HEADER, at + HEADER + length);
      if (!this.#frame(data.readUInt32LE(at), data[at + 4] ?? 0, payload)) return this.close();
      at += HEADER + length;
    }
    this.#rest = data.subarray(at);
  }

  // False if a forwarder would not have sent it.
  #frame(id: number, type: number, payload: Buffer): boolean {
    if (id === 0) return type === DATA && this.#use.control(payload);
    if (type === OPEN) return this.#open(id, payload);
    if (![DATA, END, RESET, CREDIT].includes(type)) return false;
    // One that has ended here, of which the other side does not know yet.
    const stream = this.#streams.get(id);
    if (!stream) return true;
    if (type === DATA) return stream.receive(payload);
    if (type === CREDIT) return payload.length === 4 && stream.credit(payload.readUInt32LE(0));
    if (type === END) stream.end_();
    else stream.reset();
    return true;
  }

  #open(id: number, payload: Buffer): boolean {
    if (this.#streams.has(id) || payload.length > MAX_LISTENER) return false;
    if (this.#streams.size >= this.#use.max()) {
      this.send(id, 'reset');
      return true;
    }
    const stream = new FrameStream(id, this);
    this.#streams.set(id, stream);
    if (!this.#use.open(payload.toString('latin1'), stream)) stream.destroy();
    return true;
  }
}

/** One stream. */
class FrameStream extends Duplex {
  readonly #id: number;
  readonly #frames: Frames;
  #credit = WINDOW;
  #given = WINDOW;
  #unread = 0;
  #hasEnded = false;
  #isReset = false;
  #writing: { rest: Buffer; readonly done: () => void } | null = null;

  constructor(id: number, frames: Frames) {
    super({ allowHalfOpen: true, highWaterMark: WINDOW / 4 });
    this.#id = id;
    this.#frames = frames;
    // Whoever uses it hears of errors; one that nobody uses yet must not end the thread.
    this.on('error', () => undefined);
  }

  /** Data from the other side; false if that is more than it had credit for. */
  receive(payload: Buffer): boolean {
    if (payload.length > this.#given || this.#hasEnded) return false;
    this.#given -= payload.length;
    this.#unread += payload.length;
    // A copy: the chunk that it is a part of may be much larger and would be kept as a whole.
    this.push(Buffer.from(payload));
    return true;
  }

  credit(bytes: number): boolean {
    this.#credit += bytes;
    this.pump();
    return this.#credit <= WINDOW;
  }

  /** The other side sends nothing more. */
  end_(): void {
    this.#hasEnded = true;
    this.push(null);
  }

  reset(): void {
    this.#isReset = true;
    this.destroy();
  }

  /** Sends as much as there is credit for. */
  pump(): void {
    while (this.#writing && this.#credit > 0 && !this.#frames.isFull) {
      const part = this.#writing.rest.subarray(0, Math.min(this.#credit, MAX_PAYLOAD));
      this.#credit -= part.length;
      this.#frames.send(this.#id, 'data', part);
      this.#writing.rest = this.#writing.rest.subarray(part.length);
      if (this.#writing.rest.length > 0) continue;
      const { done } = this.#writing;
      this.#writing = null;
      done();
    }
  }

  override _read(): void {
    if (this.#unread < WINDOW / 4 || this.#hasEnded) return;
    const payload = Buffer.allocUnsafe(4);
    payload.writeUInt32LE(this.#unread);
    this.#given += this.#unread;
    this.#unread = 0;
    this.#frames.send(this.#id, 'credit', payload);
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#writing = { rest: chunk, done };
    if (chunk.length === 0) {
      this.#writing = null;
      done();
    } else this.pump();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#frames.send(this.#id, 'end');
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const isWhole = this.#hasEnded && this.writableFinished;
    if (!isWhole && !this.#isReset) this.#frames.send(this.#id, 'reset');
    this.#frames.forget(this.#id);
    this.#writing?.done();
    this.#writing = null;
    done(error);
  }
}
