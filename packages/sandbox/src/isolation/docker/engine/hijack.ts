// A connection taken over from HTTP: bytes in both directions between us and a process in a container.
import type { Readable, Writable } from 'node:stream';
import { classifyTransportError, type EngineError } from './error.ts';
import { EngineReadable } from './readable.ts';

/** The parts of a connection that was taken over. */
export interface HijackedParts {
  readonly source: Readable;
  readonly target: Writable;
  readonly head: Buffer;
  readonly operation: string;
  readonly onClose: () => void;
}

/**
 * The output of a process, and its stdin. Iterate it, or pass it to `demultiplex`.
 *
 * Its end is no proof that the process ended: an engine that dies between two frames closes the socket in the
 * same way. That the exit was seen is what `wait` tells.
 */
export class HijackedStream implements AsyncIterable<Buffer>, AsyncDisposable {
  /** The engine's bytes. When it pauses, the socket pauses, and then the process in the container. */
  readonly readable: Readable;
  /** Resolves when the connection is gone, whatever the reason; never rejects. The reason is for the reader. */
  readonly closed: Promise<void>;
  readonly #target: Writable;
  readonly #operation: string;
  #reason: EngineError | undefined;

  constructor({ source, target, head, operation, onClose }: HijackedParts) {
    this.#target = target;
    this.#operation = operation;
    this.readable = new EngineReadable({ source, head, operation, onClose });
    this.closed = new Promise(resolve => target.once('close', () => resolve()));
    // A write that fails is reported to whoever wrote; the reader hears of a broken connection from its own side.
    target.on('error', () => undefined);
  }

  /** Resolves when the bytes are with the operating system, so awaiting each write is back-pressure. */
  write(data: Uint8Array | string): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (error?: Error | null) => {
        this.#target.off('close', settle);
        if (error || this.#target.destroyed)
          reject(this.#reason ?? classifyTransportError(error ?? undefined, this.#operation));
        else resolve();
      };
      this.#target.once('close', settle);
      this.#target.write(data, settle);
    });
  }

  /** Ends our direction only: the process sees the end of its stdin, its output goes on. */
  closeWrite(): Promise<void> {
    return new Promise(resolve => {
      if (this.#target.destroyed) {
        resolve();
        return;
      }
      this.#target.once('close', resolve);
      this.#target.end(() => {
        this.#target.off('close', resolve);
        resolve();
      });
    });
  }

  /** Ends both directions at once; with an error, that is what the reader gets. */
  destroy(error?: EngineError): void {
    this.#reason ??= error;
    this.readable.destroy(error);
    this.#target.destroy();
  }

  [Symbol.asyncIterator](): AsyncIterator<Buffer> {
    return this.readable[Symbol.asyncIterator]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.destroy();
    await this.closed;
  }
}
