// Server side of one call: the client’s connection as the process environment in which the command runs.

import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import * as z from 'zod';
import type { Io } from '../io.ts';
import { FRAME, FrameReader, frame } from './frames.ts';
import type { Frame } from './frames.ts';
import { RemoteInput, RemoteOutput } from './remote-streams.ts';
import type { ServedRequest } from './request.ts';

/** Does a call and gives its exit status. */
export type Perform = (argv: readonly string[], io: Io) => Promise<number>;

/** What a server does with its clients. */
export interface Serving {
  /** Why a call is not done here; null where it is. */
  whyNot(request: ServedRequest): Promise<string | null>;
  readonly perform: Perform;
  /** The state of the server, for `acode serve status`. */
  state(): Promise<object>;
  /** Has the server end, when the commands that run have ended. */
  stop(): void;
}

// A client says all of this at once; one that does not is none.
const HANDSHAKE_MS = 2000;
const GONE = 'SIGHUP';

const facts = z.object({ terminal: z.boolean(), columns: z.int().nullable(), rows: z.int().nullable() });
const requestSchema: z.ZodType<ServedRequest> = z.object({
  identity: z.string(),
  directory: z.string(),
  pid: z.int(),
  argv: z.array(z.string()),
  cwd: z.string(),
  stdinIsTerminal: z.boolean(),
  stdout: facts,
  stderr: facts,
  outputsAreOne: z.boolean(),
  env: z.record(z.string(), z.string()),
});
const signalSchema = z.enum(['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM']);
const brokenSchema = z.object({ stream: z.union([z.literal(1), z.literal(2)]), code: z.string(), message: z.string() });

interface Streams {
  readonly stdin: RemoteInput;
  readonly stdout: RemoteOutput;
  readonly stderr: RemoteOutput;
}

/** One client. */
export class Connection {
  /** Resolves when nothing is left to be done for it. */
  readonly ended: Promise<void>;
  readonly #socket: Socket;
  readonly #serving: Serving;
  readonly #reader = new FrameReader();
  readonly #signals = new EventEmitter();
  readonly #late: NodeJS.Timeout;
  #request: ServedRequest | null = null;
  #streams: Streams | null = null;
  #isTaken = false;
  #end: () => void = () => undefined;

  constructor(socket: Socket, serving: Serving) {
    this.#socket = socket;
    this.#serving = serving;
    this.ended = new Promise(resolve => (this.#end = resolve));
    this.#late = setTimeout(() => socket.destroy(), HANDSHAKE_MS);
    socket.on('data', chunk => this.#hear(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => this.#gone());
  }

  /** Whether its call was accepted, so that no other process runs it. */
  get isTaken(): boolean {
    return this.#isTaken;
  }

  /** Stops its call, and reports that to the client. */
  stop(): void {
    if (this.#streams) this.#signals.emit('SIGTERM');
    else this.#socket.destroy();
  }

  /** Hangs up. */
  close(): void {
    this.#socket.destroy();
  }

  #hear(chunk: Buffer): void {
    try {
      for (const one of this.#reader.push(chunk)) this.#take(one);
    } catch {
      // Whatever does not speak this language is no client of ours.
      this.#socket.destroy();
    }
  }

  #take(one: Frame): void {
    if (this.#streams) this.#pass(one, this.#streams);
    else if (one.kind === FRAME.go && this.#request) this.#begin(this.#request);
    else if (one.kind === FRAME.request && this.#request === null) this.#consider(one.body);
    else if (one.kind === FRAME.ask && this.#request === null) this.#tell();
    else if (one.kind === FRAME.stop && this.#request === null) this.#stopServer();
    else throw new Error('out of turn');
  }

  #consider(body: Buffer): void {
    const request = requestSchema.parse(JSON.parse(body.toString()));
    this.#request = request;
    this.#serving.whyNot(request).then(
      reason => this.#answer(reason),
      () => this.#answer('it failed'),
    );
  }

  // The end of the connection tells the client that the server has begun to end.
  #stopServer(): void {
    clearTimeout(this.#late);
    this.#serving.stop();
  }

  #tell(): void {
    clearTimeout(this.#late);
    this.#serving.state().then(
      state => this.#socket.end(frame(FRAME.state, JSON.stringify(state))),
      () => this.#socket.destroy(),
    );
  }

  #answer(reason: string | null): void {
    if (reason === null) {
      // From here on the client may say go at any moment, and run the command nowhere else.
      this.#isTaken = true;
      this.#send(FRAME.ready);
    } else this.#socket.end(frame(FRAME.declined, reason));
  }

  // The client has committed the call to this server: from here on it runs to its end, or until the client disconnects.
  #begin(request: ServedRequest): void {
    clearTimeout(this.#late);
    const send = (kind: number, body?: string | Uint8Array): void => this.#send(kind, body);
    const streams: Streams = {
      stdin: new RemoteInput(request.stdinIsTerminal, send),
      stdout: new RemoteOutput(FRAME.stdout, request.stdout, send),
      stderr: new RemoteOutput(FRAME.stderr, request.stderr, send),
    };
    // What breaks before anybody uses it must not end the server.
    for (const stream of [streams.stdin, streams.stdout, streams.stderr]) stream.on('error', () => undefined);
    this.#streams = streams;
    const io: Io = {
      ...streams,
      pid: request.pid,
      env: request.env,
      signals: this.#signals,
      outputsAreOne: request.outputsAreOne,
      cwd: () => request.cwd,
      now: () => Date.now(),
      // What needs this has a terminal of its own, and is never served.
      atExit: () => ({ [Symbol.dispose]: () => undefined }),
      leave: status => this.#leave(status),
    };
    this.#serving
      .perform(request.argv, io)
      .then(
        status => this.#leave(status),
        // What the command itself cannot report is a fault of the server’s, and looks like one to the client.
        () => this.#socket.destroy(),
      )
      .finally(() => this.#end());
  }

  #pass({ kind, body }: Frame, { stdin, stdout, stderr }: Streams): void {
    const output = (stream: number): RemoteOutput => (stream === 1 ? stdout : stderr);
    if (kind === FRAME.input) stdin.push(Buffer.from(body));
    else if (kind === FRAME.inputEnd) stdin.push(null);
    else if (kind === FRAME.taken) output(body.readUInt8(0)).taken(body.readUInt32BE(1));
    else if (kind === FRAME.signal) this.#signals.emit(signalSchema.parse(body.toString()));
    else if (kind === FRAME.broken) {
      const { stream, code, message } = brokenSchema.parse(JSON.parse(body.toString()));
      output(stream).break(code, message);
    } else throw new Error('unknown');
  }

  #send(kind: number, body?: string | Uint8Array): void {
    if (this.#socket.writable) this.#socket.write(frame(kind, body));
  }

  #leave(status: number): void {
    if (this.#socket.writable) this.#socket.end(frame(FRAME.exit, Uint8Array.of(status)));
  }

  // Without its client a command has no purpose: it is stopped as if the terminal had been closed.
  #gone(): void {
    clearTimeout(this.#late);
    if (this.#streams === null) return this.#end();
    const { stdin, stdout, stderr } = this.#streams;
    this.#signals.emit(GONE);
    stdin.destroy();
    for (const output of [stdout, stderr]) output.break('EPIPE', 'the client disconnected');
  }
}
