// Separates stdout from stderr in the engine's framed stream: 8 bytes of header (stream id, three zeros, length), then the payload.
import { EngineError } from './error.ts';

const headerLength = 8;
const systemErrorCap = 4096;
const operation = 'read the output stream';

/** A piece of one of the two streams. `data` is a view into the chunk that was pushed, not a copy. */
export interface OutputPiece {
  readonly stream: 'stdout' | 'stderr';
  readonly data: Buffer;
}

type FrameStream = OutputPiece['stream'] | 'system-error';

// Stream 0 is "stdin" in the format and is written for output by no engine except as an echo; Docker's own client sends it to stdout.
const streams: readonly FrameStream[] = ['stdout', 'stdout', 'stderr', 'system-error'];

/**
 * Incremental demultiplexer. A frame is handed on in the pieces in which it arrives and is never assembled, so
 * a header that claims 4 GiB costs nothing.
 */
export class Demultiplexer {
  readonly #header = Buffer.alloc(headerLength);
  #headerFilled = 0;
  #remaining = 0;
  #stream: FrameStream = 'stdout';
  #systemError: Buffer[] = [];
  #systemErrorLength = 0;
  #failure: EngineError | undefined;

  /**
   * Why the stream cannot be read on. Pieces that came before the failure have all been returned by `push`:
   * how the bytes happened to be split must not decide what a reader gets to see.
   */
  get failure(): EngineError | undefined {
    return this.#failure;
  }

  /** Takes the next bytes; throws once the stream is known to have failed. */
  push(chunk: Buffer): OutputPiece[] {
    if (this.#failure) throw this.#failure;
    const pieces: OutputPiece[] = [];
    let offset = 0;
    while (offset < chunk.length && !this.#failure) {
      offset += this.#remaining === 0 ? this.#takeHeader(chunk, offset) : this.#takePayload(chunk, offset, pieces);
    }
    return pieces;
  }

  /** Says that no more bytes will come; throws when the stream failed or ended inside a frame. */
  finish(): void {
    if (this.#failure) throw this.#failure;
    if (this.#headerFilled > 0 || this.#remaining > 0) {
      throw new EngineError({ kind: 'disconnected', operation, detail: 'the stream ended inside a frame' });
    }
  }

  #takeHeader(chunk: Buffer, offset: number): number {
    const taken = chunk.copy(this.#header, this.#headerFilled, offset);
    this.#headerFilled += taken;
    if (this.#headerFilled === headerLength) this.#openFrame();
    return taken;
  }

  #openFrame(): void {
    this.#headerFilled = 0;
    const stream = streams[this.#header.readUInt8(0)];
    // The three zeros are what tells a frame from a raw terminal stream read by mistake.
    if (stream === undefined || this.#header.readUIntBE(1, 3) !== 0) {
      const detail = `0x${this.#header.toString('hex')} is not the header of a frame`;
      this.#failure = new EngineError({ kind: 'protocol', operation, detail });
      return;
    }
    this.#stream = stream;
    this.#remaining = this.#header.readUInt32BE(4);
    if (this.#remaining === 0) this.#closeFrame();
  }

  #takePayload(chunk: Buffer, offset: number, pieces: OutputPiece[]): number {
    const data = chunk.subarray(offset, offset + this.#remaining);
    this.#remaining -= data.length;
    if (this.#stream === 'system-error') this.#keepSystemError(data);
    else pieces.push({ stream: this.#stream, data });
    if (this.#remaining === 0) this.#closeFrame();
    return data.length;
  }

  #keepSystemError(data: Buffer): void {
    const kept = data.subarray(0, systemErrorCap - this.#systemErrorLength);
    this.#systemErrorLength += kept.length;
    this.#systemError.push(Buffer.from(kept));
  }

  #closeFrame(): void {
    if (this.#stream !== 'system-error') return;
    const engineMessage = Buffer.concat(this.#systemError).toString('utf8');
    const detail = `the engine could not read it on: ${engineMessage}`;
    this.#failure = new EngineError({ kind: 'status', operation, detail, engineMessage });
  }
}

/** Where separated output goes. A returned promise is awaited before anything more is read. */
export interface OutputSink {
  stdout(data: Buffer): void | Promise<void>;
  stderr(data: Buffer): void | Promise<void>;
}

/** Reads a framed stream to its end into `sink`; as slow as the sink, and with no buffer of its own. */
export async function demultiplex(source: AsyncIterable<Buffer>, sink: OutputSink): Promise<void> {
  const demultiplexer = new Demultiplexer();
  for await (const chunk of source) {
    for (const piece of demultiplexer.push(chunk)) {
      const accepted = sink[piece.stream](piece.data);
      if (accepted) await accepted;
    }
    if (demultiplexer.failure) throw demultiplexer.failure;
  }
  demultiplexer.finish();
}
