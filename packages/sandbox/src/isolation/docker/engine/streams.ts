// A stream of bytes from the engine: back-pressure down to the socket, and every way it can end early is one EngineError.

import { Readable, type Writable } from 'node:stream';
import { classifyTransportError, EngineError } from './protocol.ts';

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

// A connection taken over from HTTP: bytes in both directions between us and a process in a container.

/** The parts of a connection that was taken over. */
interface HijackedParts {
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

// Decides when a call is given up: the caller's signal, its deadline, or the connection being closed, whichever is first.

// setTimeout fires at once for anything longer, so "no practical limit" would mean "none at all".
const longestTimerMs = 2 ** 31 - 1;

/** What a {@link CallLifetime} is bound to. */
interface LifetimeTerms {
  readonly operation: string;
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
  readonly liveCalls: LiveCalls;
  readonly giveUp: (error: EngineError) => void;
}

/** The time a call may live. Must be released when the call is over, else the signal keeps it in memory. */
export class CallLifetime {
  /** What to end when time is up; replaced when the call moves from its request to its response. */
  giveUp: (error: EngineError) => void;
  readonly #terms: LifetimeTerms;
  #timer: NodeJS.Timeout;
  #deadlineMs: number;
  #over = false;

  constructor(terms: LifetimeTerms) {
    this.#terms = terms;
    this.giveUp = terms.giveUp;
    this.#deadlineMs = terms.deadlineMs;
    this.#timer = this.#timed();
    terms.liveCalls.add(terms.signal, this);
  }

  /** Gives the call up now. */
  end(kind: 'timeout' | 'aborted', cause?: unknown): void {
    this.release();
    const detail = kind === 'timeout' ? `no answer within ${this.#deadlineMs} ms` : 'given up by the caller';
    this.giveUp(new EngineError({ kind, operation: this.#terms.operation, detail, cause }));
  }

  /** From here on only the signal and `close()` end the call. */
  clearDeadline(): void {
    clearTimeout(this.#timer);
  }

  /** Gives the call this much time, from now on. */
  restart(deadlineMs: number): void {
    if (this.#over) return;
    clearTimeout(this.#timer);
    this.#deadlineMs = deadlineMs;
    this.#timer = this.#timed();
  }

  /** The call is over. */
  release(): void {
    this.#over = true;
    clearTimeout(this.#timer);
    this.#terms.liveCalls.delete(this.#terms.signal, this);
  }

  #timed(): NodeJS.Timeout {
    return setTimeout(() => this.end('timeout'), Math.min(this.#deadlineMs, longestTimerMs));
  }
}

interface SignalGroup {
  readonly lifetimes: Set<CallLifetime>;
  readonly onAbort: () => void;
}

/**
 * The calls of one connection that are still alive. Listens once per signal, however many calls share it:
 * Node warns of a leak from the eleventh listener on.
 */
export class LiveCalls {
  readonly #groups = new Map<AbortSignal, SignalGroup>();

  /** Ends `lifetime` when `signal` fires. */
  add(signal: AbortSignal, lifetime: CallLifetime): void {
    const group = this.#groups.get(signal) ?? this.#listen(signal);
    group.lifetimes.add(lifetime);
  }

  /** Forgets a call that is over. */
  delete(signal: AbortSignal, lifetime: CallLifetime): void {
    const group = this.#groups.get(signal);
    if (!group?.lifetimes.delete(lifetime) || group.lifetimes.size > 0) return;
    signal.removeEventListener('abort', group.onAbort);
    this.#groups.delete(signal);
  }

  /** Ends every call. */
  endAll(cause: unknown): void {
    for (const { lifetimes } of this.#groups.values()) endEach(lifetimes, cause);
  }

  #listen(signal: AbortSignal): SignalGroup {
    const lifetimes = new Set<CallLifetime>();
    const group: SignalGroup = { lifetimes, onAbort: () => endEach(lifetimes, signal.reason) };
    signal.addEventListener('abort', group.onAbort, { once: true });
    this.#groups.set(signal, group);
    return group;
  }
}

function endEach(lifetimes: ReadonlySet<CallLifetime>, cause: unknown): void {
  for (const lifetime of lifetimes) lifetime.end('aborted', cause);
}

// Separates stdout from stderr in the engine's framed stream: 8 bytes of header (stream id, three zeros, length), then the payload.

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
