// Output stream: waits for a slow reader, and notices when the reader closed it.

import { once } from 'node:events';
import type { TerminalSize } from '@acode/sandbox';
import type { OutputStream } from '../io.ts';

const NEWLINE = 0x0a;

/** A stream of the process, with back-pressure. A reader that went away is a fact to ask for and never an exception. */
export class Output {
  readonly isTerminal: boolean;
  /** The width of the terminal; null where there is none. */
  readonly columns: number | null;
  /** The height of the terminal; null where there is none, or it does not say. */
  readonly rows: number | null;
  readonly #stream: OutputStream;
  #broken = false;
  #fault: string | null = null;
  #midLine = false;
  // What takes away what is drawn now.
  #erasing = '';

  constructor(stream: OutputStream) {
    this.#stream = stream;
    this.isTerminal = stream.isTTY === true;
    this.columns = this.isTerminal && stream.columns ? stream.columns : null;
    this.rows = this.isTerminal && stream.rows ? stream.rows : null;
    // Without a listener the error of a closed pipe would end the process with a stack trace.
    stream.on('error', error => this.#fail(error));
  }

  /** The size of the terminal now; null where there is none. */
  get size(): TerminalSize | null {
    const { columns, rows } = this.#stream;
    return this.isTerminal && columns && rows ? { columns, rows } : null;
  }

  /** Hears of each new size. */
  onResize(hear: (size: TerminalSize) => void): Disposable {
    const listener = (): void => {
      if (this.size) hear(this.size);
    };
    this.#stream.on('resize', listener);
    return { [Symbol.dispose]: () => void this.#stream.off('resize', listener) };
  }

  /** What went wrong where it was more than a reader who had enough: a full disk, for one. */
  get fault(): string | null {
    return this.#fault;
  }

  /** Whether nothing can be written any more. */
  get broken(): boolean {
    return this.#broken;
  }

  /** Whether the last thing written did not end its line. */
  get midLine(): boolean {
    return this.#midLine;
  }

  /** Writes, and waits until there is room for more. False where the reader closed the stream, or `signal` came first. */
  async write(data: string | Uint8Array, signal?: AbortSignal): Promise<boolean> {
    if (this.#broken || signal?.aborted) return false;
    if (data.length > 0) {
      this.draw('', '');
      this.#midLine = data.at(-1) !== (typeof data === 'string' ? '\n' : NEWLINE);
    }
    if (this.#stream.write(data)) return true;
    try {
      await once(this.#stream, 'drain', signal ? { signal } : {});
      return true;
    } catch {
      return false;
    }
  }

  /** Writes what moves or colours and shows nothing, so that it does not count as the beginning of a line. */
  control(sequence: string): void {
    if (!this.#broken) this.#stream.write(sequence);
  }

  /** Shows something until the next thing is drawn or written: `erasing` takes it away then. */
  draw(text: string, erasing: string): void {
    const sequence = `${this.#erasing}${text}`;
    this.#erasing = erasing;
    if (sequence !== '') this.control(sequence);
  }

  /** Waits until everything written is with the reader, or `signal` says not to. */
  async flush(signal?: AbortSignal): Promise<void> {
    if (this.#broken || signal?.aborted || this.#stream.writableLength === 0) return;
    await new Promise<void>(resolve => {
      signal?.addEventListener('abort', () => resolve(), { once: true });
      this.#stream.once('error', () => resolve());
      this.#stream.write('', () => resolve());
    });
  }

  #fail(error: Error & { readonly code?: string }): void {
    // EIO is a terminal that was closed, and so gone like a pipe’s reader.
    if (!this.#broken && error.code !== 'EPIPE' && error.code !== 'EIO') this.#fault = error.message;
    this.#broken = true;
  }
}
