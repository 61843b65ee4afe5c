// Remote streams: a client’s standard streams on the server’s side of the socket, with back-pressure.

import { Readable, Writable } from 'node:stream';
import { FRAME, PIECE } from './frames.ts';
import type { OutputFacts } from './request.ts';

/** Sends a frame to the client. */
export type Send = (kind: number, body?: string | Uint8Array) => void;

const BUFFERED = 256 * 1024;

type Done = (error?: Error | null) => void;

/** An output of the client. What was written counts as written when it is with its reader. */
export class RemoteOutput extends Writable {
  readonly isTTY: boolean;
  readonly columns?: number;
  readonly rows?: number;
  readonly #kind: number;
  readonly #send: Send;
  #untaken = 0;
  #done: Done | null = null;

  constructor(kind: number, { terminal, columns, rows }: OutputFacts, send: Send) {
    super({ highWaterMark: BUFFERED });
    this.#kind = kind;
    this.#send = send;
    this.isTTY = terminal;
    if (columns !== null) this.columns = columns;
    if (rows !== null) this.rows = rows;
  }

  /** The client passed so many bytes on. */
  taken(bytes: number): void {
    this.#untaken = Math.max(0, this.#untaken - bytes);
    if (this.#untaken === 0) this.#finish(null);
  }

  /** The client cannot pass anything on. */
  break(code: string, message: string): void {
    this.destroy(Object.assign(new Error(message), { code }));
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#pass([chunk], done);
  }

  override _writev(chunks: readonly { readonly chunk: Buffer }[], done: Done): void {
    this.#pass(
      chunks.map(({ chunk }) => chunk),
      done,
    );
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#finish(error);
    done(error);
  }

  #pass(chunks: readonly Buffer[], done: Done): void {
    this.#done = done;
    this.#untaken = chunks.reduce((sum, { length }) => sum + length, 0);
    if (this.#untaken === 0) this.#finish(null);
    for (const chunk of chunks)
      for (let at = 0; at < chunk.length; at += PIECE) this.#send(this.#kind, chunk.subarray(at, at + PIECE));
  }

  #finish(error: Error | null): void {
    const done = this.#done;
    this.#done = null;
    done?.(error);
  }
}

/** The client’s standard input, read only on demand. */
export class RemoteInput extends Readable {
  readonly isTTY: boolean;
  readonly #send: Send;

  constructor(terminal: boolean, send: Send) {
    super();
    this.isTTY = terminal;
    this.#send = send;
  }

  override _read(): void {
    this.#send(FRAME.wantInput);
  }
}
