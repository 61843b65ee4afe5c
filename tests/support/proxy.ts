// A unix socket in front of a real engine that loses, delays and changes what passes, for faults an engine cannot be asked to have.
import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './waiting.ts';

/**
 * What happens to a request.
 *
 * - `undefined`: it passes
 * - bytes: it passes with this body
 * - `'hang'`: it goes nowhere and is never answered
 * - `'drop'`: the connection is cut before the engine sees it
 * - `'drop-reply'`: the engine does it, and the connection is cut when its answer begins
 * - `'drop-body'`: the headers of the answer pass, and the connection is cut at once after them
 * - `{ lateMs }`: the headers of the answer pass, and everything after them comes that much later
 * - `{ head }`: it passes with another head (request line and headers, without the empty line)
 * - `{ status }`: the client gets this status and message, and the engine has done nothing (`before`) or all of it (`after`)
 */
export type RequestFate =
  | undefined
  | Buffer
  | 'hang'
  | 'drop'
  | 'drop-reply'
  | 'drop-body'
  | { readonly head: string }
  | LateAnswer
  | FalseAnswer;

/** An answer whose body is late. */
export interface LateAnswer {
  readonly lateMs: number;
}

/** An answer that is not the engine’s. */
export interface FalseAnswer {
  readonly status: number;
  readonly message: string;
  readonly when: 'before' | 'after';
}

/** Sees each request in order; wait in it to delay one. */
export type RequestHook = (
  method: string,
  path: string,
  body: Buffer,
  head: string,
) => RequestFate | Promise<RequestFate>;

/** A request that came through. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly body: Buffer;
}

/**
 * The proxy. Understands requests with a Content-Length or without a body; after an upgrade, and for a chunked
 * upload, it only passes bytes on.
 */
export class EngineProxy implements AsyncDisposable {
  /** Where to connect instead of the engine's own socket. */
  readonly socket: string;
  /** Requests so far. */
  readonly requests: SeenRequest[] = [];
  /** Bytes that the engine has sent to clients so far. */
  sentBytes = 0;
  readonly #target: string;
  readonly #directory: string;
  readonly #server: Server;
  readonly #relays = new Set<Relay>();
  #hook: RequestHook | undefined;
  #paused = false;

  private constructor(target: string, directory: string) {
    this.#target = target;
    this.#directory = directory;
    this.socket = join(directory, 'engine.sock');
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, client => this.#accept(client));
  }

  /** Listens on a socket of its own in front of `targetSocket`. */
  static async start(targetSocket: string): Promise<EngineProxy> {
    const proxy = new EngineProxy(targetSocket, await mkdtemp(join(tmpdir(), 'engine-proxy-')));
    await new Promise<void>((resolve, reject) => {
      proxy.#server.once('error', reject);
      proxy.#server.listen(proxy.socket, resolve);
    });
    return proxy;
  }

  /** Connections that the client side has not closed. */
  get openConnections(): number {
    return this.#relays.size;
  }

  /** Resolves when exactly `count` connections are open. */
  async untilOpen(count: number): Promise<void> {
    await until(() => this.openConnections === count);
  }

  /** Decides the fate of requests from now on; nothing takes the hook away. */
  onRequest(hook: RequestHook | undefined): void {
    this.#hook = hook;
  }

  /** Cuts every connection, as an engine that dies does. */
  dropAll(): void {
    for (const relay of this.#relays) relay.drop();
  }

  /** Stops the flow of bytes in both directions, also for new connections. */
  pause(): void {
    this.#paused = true;
    for (const relay of this.#relays) relay.pause();
  }

  /** Lets bytes flow again. */
  resume(): void {
    this.#paused = false;
    for (const relay of this.#relays) relay.resume();
  }

  /** Cuts everything and takes the socket away. */
  async close(): Promise<void> {
    const closed = new Promise(resolve => this.#server.close(resolve));
    this.dropAll();
    await closed;
    await rm(this.#directory, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #accept(client: Socket): void {
    const decide = async (request: ParsedRequest): Promise<RequestFate> => {
      this.requests.push({ method: request.method, path: request.path, body: request.body });
      return this.#hook?.(request.method, request.path, request.body, request.head);
    };
    const engine = createConnection({ path: this.#target, allowHalfOpen: true });
    const relay = new Relay(client, engine, decide, bytes => {
      this.sentBytes += bytes;
    });
    this.#relays.add(relay);
    client.once('close', () => this.#relays.delete(relay));
    if (!this.#paused) relay.resume();
  }
}

interface ParsedRequest extends SeenRequest {
  readonly head: string;
  /** Bytes of it on the wire. */
  readonly length: number;
  /** After it, what the client sends are no requests any more. */
  readonly last: boolean;
}

const PROBE_MS = 50;
const headEnd = Buffer.from('\r\n\r\n');

/** The first request in `bytes`, if all of it is there. */
function parseRequest(bytes: Buffer): ParsedRequest | undefined {
  const end = bytes.indexOf(headEnd);
  if (end === -1) return undefined;
  const head = bytes.toString('latin1', 0, end);
  const [method = '', path = ''] = head.split(' ', 2);
  const bodyLength = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
  const start = end + headEnd.length;
  if (bytes.length < start + bodyLength) return undefined;
  const last = /^(upgrade|transfer-encoding|expect):/im.test(head);
  return { method, path, head, body: bytes.subarray(start, start + bodyLength), length: start + bodyLength, last };
}

/** One connection and its twin to the engine. */
class Relay {
  readonly #client: Socket;
  readonly #engine: Socket;
  readonly #decide: (request: ParsedRequest) => Promise<RequestFate>;
  #held = Buffer.alloc(0);
  #raw = false;
  #paused = true;
  #work = Promise.resolve();
  #lateMs: number | null = null;
  readonly #sent: (bytes: number) => void;
  #onReply: 'pass' | 'drop' | 'drop-after-head' | Buffer = 'pass';

  constructor(
    client: Socket,
    engine: Socket,
    decide: (request: ParsedRequest) => Promise<RequestFate>,
    sent: (bytes: number) => void,
  ) {
    this.#sent = sent;
    this.#client = client;
    this.#engine = engine;
    this.#decide = decide;
    client.on('data', chunk => this.#fromClient(chunk));
    engine.on('data', chunk => this.#fromEngine(chunk));
    client.on('end', () => this.#clientEnded());
    engine.on('end', () => this.#later(() => client.end()));
    client.on('drain', () => this.#paused || engine.resume());
    engine.on('drain', () => this.#paused || client.resume());
    for (const socket of [client, engine]) {
      socket.on('error', () => undefined);
      socket.once('close', () => this.#later(() => this.drop()));
    }
    this.pause();
  }

  pause(): void {
    this.#paused = true;
    this.#client.pause();
    this.#engine.pause();
  }

  resume(): void {
    this.#paused = false;
    this.#client.resume();
    this.#engine.resume();
  }

  drop(): void {
    this.#client.destroy();
    this.#engine.destroy();
  }

  /** Only an upgraded connection knows half a close; on any other the client has left. */
  #clientEnded(): void {
    if (!this.#raw) {
      this.drop();
      return;
    }
    this.#queue(async () => void this.#engine.end());
    // Half a close and a whole one look the same to a reader. A writer is told of the whole one, even if it writes nothing.
    const probe = setInterval(() => void this.#client.write(''), PROBE_MS).unref();
    this.#client.once('close', () => clearInterval(probe));
  }

  #queue(step: () => Promise<void>): void {
    this.#work = this.#work.then(step).catch(() => this.drop());
  }

  #fromClient(chunk: Buffer): void {
    this.#queue(async () => {
      if (this.#raw) {
        this.#toEngine(chunk);
        return;
      }
      this.#held = Buffer.concat([this.#held, chunk]);
      await this.#passRequests();
    });
  }

  async #passRequests(): Promise<void> {
    for (let request = parseRequest(this.#held); request; request = parseRequest(this.#held)) {
      this.#held = this.#held.subarray(request.length);
      this.#pass(request, await this.#decide(request));
      if (!request.last) continue;
      this.#raw = true;
      this.#toEngine(this.#held);
      return;
    }
  }

  #pass(request: ParsedRequest, fate: RequestFate): void {
    if (fate === 'hang') return;
    if (fate === 'drop') {
      this.drop();
      return;
    }
    if (fate === 'drop-reply') this.#onReply = 'drop';
    if (fate === 'drop-body') this.#onReply = 'drop-after-head';
    if (typeof fate === 'object' && 'lateMs' in fate) this.#lateMs = fate.lateMs;
    if (isFalseAnswer(fate)) {
      this.#onReply = falseAnswer(request, fate);
      if (fate.when === 'before') {
        this.#answerFalsely(this.#onReply);
        return;
      }
    }
    this.#toEngine(changed(request, fate));
  }

  #toEngine(bytes: Buffer): void {
    if (bytes.length > 0 && !this.#engine.write(bytes)) this.#client.pause();
  }

  #fromEngine(chunk: Buffer): void {
    this.#sent(chunk.length);
    if (this.#onReply === 'pass') {
      this.#toClient(chunk);
      return;
    }
    if (this.#onReply === 'drop') {
      this.drop();
      return;
    }
    if (Buffer.isBuffer(this.#onReply)) {
      this.#answerFalsely(this.#onReply);
      return;
    }
    const end = chunk.indexOf(headEnd);
    this.#client.end(chunk.subarray(0, end === -1 ? chunk.length : end + headEnd.length), () => this.drop());
  }

  #toClient(chunk: Buffer): void {
    const end = this.#lateMs === null ? chunk.length : headOf(chunk);
    if (end > 0 && !this.#client.write(chunk.subarray(0, end))) this.#engine.pause();
    if (end < chunk.length) this.#later(() => void this.#client.write(chunk.subarray(end)));
  }

  #later(step: () => void): void {
    if (this.#lateMs === null) step();
    else setTimeout(step, this.#lateMs);
  }

  // What the engine says besides, now or later, is nobody’s any more.
  #answerFalsely(answer: Buffer): void {
    if (!this.#client.writableEnded) this.#client.end(answer, () => this.drop());
  }
}

function headOf(chunk: Buffer): number {
  const end = chunk.toString('latin1', 0, 5) === 'HTTP/' ? chunk.indexOf(headEnd) : -1;
  return end === -1 ? 0 : end + headEnd.length;
}

function isFalseAnswer(fate: RequestFate): fate is FalseAnswer {
  return typeof fate === 'object' && 'status' in fate;
}

function falseAnswer({ method }: ParsedRequest, { status, message }: FalseAnswer): Buffer {
  const body = Buffer.from(JSON.stringify({ message }));
  const lines = [
    `HTTP/1.1 ${status} Injected`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    'Connection: close',
  ];
  return onTheWire(lines.join('\r\n'), method === 'HEAD' ? Buffer.alloc(0) : body);
}

function changed({ head, body }: ParsedRequest, fate: RequestFate): Buffer {
  if (Buffer.isBuffer(fate)) {
    return onTheWire(head.replace(/^content-length: *\d+/im, `Content-Length: ${fate.length}`), fate);
  }
  return typeof fate === 'object' && 'head' in fate ? onTheWire(fate.head, body) : onTheWire(head, body);
}

function onTheWire(head: string, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from(head, 'latin1'), headEnd, body]);
}
