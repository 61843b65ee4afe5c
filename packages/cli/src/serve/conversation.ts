// Client side of one served call: passes on streams and signals until the server reports the exit status.

import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { Interruption } from '../interruption.ts';
import type { Io, OutputStream } from '../io.ts';
import { FRAME, FrameReader, PIECE, frame, takenBody } from './frames.ts';
import type { Frame } from './frames.ts';

/** What the process that runs the call should report about its server. */
export interface Note {
  readonly level: 'debug' | 'warn';
  readonly message: string;
}

/** What came of asking a server. */
export type Outcome =
  | { readonly kind: 'done'; readonly status: number }
  /** Nothing was done, and nothing will be: the call is the caller’s own. */
  | { readonly kind: 'alone'; readonly note: Note | null }
  /** The server had begun the call, and the connection was lost. */
  | { readonly kind: 'lost' };

/** Has the server at a socket do a call, if it answers in time. */
export async function converse(path: string, request: string, io: Io, answerMs: number): Promise<Outcome> {
  const conversation = new Conversation(connect({ path }), io);
  return conversation.hold(request, answerMs);
}

class Conversation {
  readonly #socket: Socket;
  readonly #io: Io;
  readonly #reader = new FrameReader();
  readonly #outputs = new Map<1 | 2, OutputStream>();
  #interruption: Interruption | null = null;
  #reading = false;
  #over = false;
  #late: NodeJS.Timeout | undefined;
  #settle: (outcome: Outcome) => void = () => undefined;

  constructor(socket: Socket, io: Io) {
    this.#socket = socket;
    this.#io = io;
  }

  async hold(request: string, answerMs: number): Promise<Outcome> {
    const outcome = new Promise<Outcome>(resolve => (this.#settle = resolve));
    this.#late = setTimeout(() => this.#end('it does not answer'), answerMs);
    this.#socket.on('error', error => this.#end(error.message));
    this.#socket.on('close', () => this.#end('it hung up'));
    this.#socket.on('data', chunk => this.#hear(chunk));
    this.#send(FRAME.request, request);
    try {
      return await outcome;
    } finally {
      clearTimeout(this.#late);
      this.#interruption?.[Symbol.dispose]();
      this.#socket.destroy();
    }
  }

  // Only the first end counts. Whether the call was handed over decides what an end without a status means.
  #end(reason: string): void {
    this.#over = true;
    if (this.#interruption) this.#settle({ kind: 'lost' });
    else this.#settle(alone(reason));
  }

  #hear(chunk: Buffer): void {
    try {
      for (const one of this.#reader.push(chunk)) this.#take(one);
    } catch {
      this.#end('it speaks another language');
    }
  }

  #take({ kind, body }: Frame): void {
    if (this.#over) return;
    if (this.#interruption === null) {
      if (kind === FRAME.ready) this.#go();
      else this.#end(body.toString());
    } else if (kind === FRAME.stdout) this.#write(1, body);
    else if (kind === FRAME.stderr) this.#write(2, body);
    else if (kind === FRAME.wantInput) this.#read();
    else if (kind === FRAME.exit) this.#settle({ kind: 'done', status: body.readUInt8(0) });
  }

  // From here on the call is the server’s: it begins on this frame, and no other process may begin it.
  #go(): void {
    clearTimeout(this.#late);
    const interruption = new Interruption(this.#io.signals, status => this.#io.leave(status));
    this.#interruption = interruption;
    interruption.signal.addEventListener('abort', () => this.#send(FRAME.signal, interruption.name ?? ''));
    this.#send(FRAME.go);
  }

  #write(stream: 1 | 2, body: Buffer): void {
    this.#output(stream).write(body, error => {
      if (!error) this.#send(FRAME.taken, takenBody(stream, body.length));
    });
  }

  #output(stream: 1 | 2): OutputStream {
    const known = this.#outputs.get(stream);
    if (known) return known;
    const output = stream === 1 ? this.#io.stdout : this.#io.stderr;
    output.on('error', (error: NodeJS.ErrnoException) =>
      this.#send(FRAME.broken, JSON.stringify({ stream, code: error.code ?? '', message: error.message })),
    );
    this.#outputs.set(stream, output);
    return output;
  }

  // One piece for each time it is wanted, so that no more is read than the command would read itself.
  #read(): void {
    const { stdin } = this.#io;
    if (this.#reading) {
      stdin.resume();
      return;
    }
    this.#reading = true;
    const end = (): void => this.#send(FRAME.inputEnd);
    stdin.on('data', (chunk: Buffer) => {
      stdin.pause();
      for (let at = 0; at < chunk.length; at += PIECE) this.#send(FRAME.input, chunk.subarray(at, at + PIECE));
    });
    stdin.once('end', end);
    stdin.once('error', end);
  }

  #send(kind: number, body?: string | Uint8Array): void {
    if (this.#socket.writable) this.#socket.write(frame(kind, body));
  }
}

function alone(reason: string): Outcome {
  return { kind: 'alone', note: { level: 'debug', message: `the server of this workspace is not used: ${reason}` } };
}
