// A stream of bytes from the engine: back-pressure down to the socket, and every way it can end early is one EngineError.
import { Readable } from 'node:stream';
import { classifyTransportError, EngineError } from './error.ts';

/** What an {@link EngineReadable} reads from. */
export interface EngineReadableSource {
  readonly source: Readable;
  readonly operation: string;
  /** Bytes that arrived with the headers of the response. */
  readonly head?: Buffer;
  /** The longest silence of the engine while we want data. Time in which the reader is slow does not count. */
  readonly idleMs?: number;
  /** Called when no byte will come any more; may be called again. */
  readonly onClose: () => void;
}

/** Bytes from the engine. Destroying it destroys the connection at once. */
export class EngineReadable extends Readable {
  readonly #source: Readable;
  readonly #operation: string;
  readonly #onClose: () => void;
  readonly #idle: NodeJS.Timeout | undefined;
  readonly #idleMs: number | undefined;
  #wanted = true;

  constructor({ source, operation, head, idleMs, onClose }: EngineReadableSource) {
    super();
    this.#source = source;
    this.#operation = operation;
    this.#onClose = onClose;
    this.#idleMs = idleMs;
    this.#idle = idleMs === undefined ? undefined : setTimeout(() => this.#idleElapsed(), idleMs);
    // Without a listener, an abort that nobody is reading at that moment would end the process. A reader that comes later still gets the error.
    this.on('error', () => undefined);
    if (head && head.length > 0) this.push(head);
    source.pause();
    source.on('data', (chunk: Buffer) => this.#accept(chunk));
    source.once('end', () => this.#end());
    source.once('error', error => this.destroy(classifyTransportError(error, operation)));
    source.once('close', () => this.#closedBySource());
    // Reads ahead up to the high-water mark, so that the engine's close is seen even while nobody reads.
    source.resume();
  }

  override _read(): void {
    if (this.#wanted) return;
    this.#wanted = true;
    this.#idle?.refresh();
    this.#source.resume();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    clearTimeout(this.#idle);
    this.#source.destroy();
    this.#onClose();
    callback(error ?? this.#unfinished());
  }

  override [Symbol.asyncIterator](): NodeJS.AsyncIterator<Buffer> {
    // oxlint-disable-next-line typescript/no-unsafe-return -- node types the chunks of every stream as any; here they are buffers
    return super[Symbol.asyncIterator]();
  }

  #accept(chunk: Buffer): void {
    if (this.destroyed) return;
    this.#idle?.refresh();
    if (this.push(chunk)) return;
    this.#wanted = false;
    this.#source.pause();
  }

  #end(): void {
    clearTimeout(this.#idle);
    this.push(null);
    // The engine has said its last word, and so there is nobody left to write to.
    this.#source.destroy();
    this.#onClose();
  }

  /** A reader of a stream that somebody else destroyed must not take what it has for everything. */
  #unfinished(): EngineError | null {
    if (this.readableEnded) return null;
    return new EngineError({
      kind: 'aborted',
      operation: this.#operation,
      detail: 'the stream was closed by its owner',
    });
  }

  #closedBySource(): void {
    if (!this.#source.readableEnded) this.destroy(classifyTransportError(undefined, this.#operation));
  }

  #idleElapsed(): void {
    if (!this.#wanted) return;
    const detail = `nothing arrived for ${this.#idleMs} ms`;
    this.destroy(new EngineError({ kind: 'timeout', operation: this.#operation, detail }));
  }
}
