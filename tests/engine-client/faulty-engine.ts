// A listener that answers whatever a test wants, for engines that are too old, broken or hung: real ones cannot be asked to be.
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Writes the answer to the request with this head, or does not. */
export type Answer = (socket: Socket, head: string) => void;

/** A socket with a scripted engine behind it. */
export class FaultyEngine implements AsyncDisposable {
  readonly socket: string;
  readonly #directory: string;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(directory: string, answer: Answer) {
    this.#directory = directory;
    this.socket = join(directory, 'engine.sock');
    this.#server = createServer(socket => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
      socket.on('error', () => undefined);
      let held = '';
      socket.on('data', chunk => {
        held += chunk.toString('latin1');
        const end = held.indexOf('\r\n\r\n');
        if (end === -1) return;
        const head = held.slice(0, end);
        held = held.slice(end + 4);
        answer(socket, head);
      });
    });
  }

  static async start(answer: Answer): Promise<FaultyEngine> {
    const engine = new FaultyEngine(await mkdtemp(join(tmpdir(), 'faulty-engine-')), answer);
    await new Promise<void>(resolve => engine.#server.listen(engine.socket, resolve));
    return engine;
  }

  /** A good ping, and `answer` for everything else. */
  static afterPing(answer: Answer): Promise<FaultyEngine> {
    return FaultyEngine.start((socket, head) => {
      if (head.startsWith('GET /_ping')) socket.end(pingReply('1.44'));
      else answer(socket, head);
    });
  }

  get openConnections(): number {
    return this.#sockets.size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise(resolve => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
    await rm(this.#directory, { recursive: true, force: true });
  }
}

/** The answer to a ping of an engine that speaks `version`. */
export function pingReply(version: string): string {
  return `HTTP/1.1 200 OK\r\nApi-Version: ${version}\r\nContent-Length: 2\r\n\r\nOK`;
}
