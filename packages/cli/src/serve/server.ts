// Server of `acode serve`: one socket for one workspace, and the host behind it.

import { once } from 'node:events';
import { lstatSync } from 'node:fs';
import { lstat, rename, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { AcodeError } from '@acode/sandbox';
import { Connection } from './connection.ts';
import type { Perform, Serving } from './connection.ts';
import type { Identity } from './identity.ts';
import { directoryMark } from './request.ts';
import type { ServedRequest } from './request.ts';
import { lives } from './presence.ts';
import { SocketDirectory } from './socket-path.ts';
import { whereOf, whereOnRequest } from './location-options.ts';

const ONLY_OWNER = 0o177;
// How long calls that were stopped have to say so. Their sandboxes are removed by then, or when the host is closed.
const LAST_WORDS_MS = 5000;
const MAX_CLIENTS = 256;

/** What a server needs. */
export interface ServerParts {
  readonly directory: string;
  readonly identity: Identity;
  readonly workspace: string;
  readonly uid: number;
  readonly perform: Perform;
  /** Why a call is not done here though it could be; null where it is. */
  whyDeclined(): Promise<string | null>;
  /** How the host behind it is. */
  state(): Promise<object>;
  /** Called when a client asks the server to end. */
  stop(): void;
}

/** A server that listens. */
export class CallServer implements AsyncDisposable {
  /** Where it listens. */
  readonly path: string;
  readonly #parts: ServerParts;
  readonly #place: SocketDirectory;
  readonly #server: Server;
  readonly #connections = new Set<Connection>();
  #lastEnd = performance.now();
  #retired = false;
  #inode = 0;

  private constructor(parts: ServerParts, place: SocketDirectory) {
    this.#parts = parts;
    this.#place = place;
    this.path = join(parts.directory, parts.identity.socketName);
    const serving: Serving = {
      whyNot: request => this.#whyNot(request),
      perform: parts.perform,
      state: async () => ({ commands: this.#taken.length, ...(await parts.state()) }),
      stop: () => parts.stop(),
    };
    this.#server = createServer(socket => {
      const connection = new Connection(socket, serving);
      this.#connections.add(connection);
      void connection.ended.then(() => this.#forget(connection));
    });
    this.#server.maxConnections = MAX_CLIENTS;
  }

  /** Begins to listen; refuses where another server already does. */
  static async listen(parts: ServerParts): Promise<CallServer> {
    const place = SocketDirectory.open(parts.directory, parts.uid);
    if ('unsafe' in place)
      throw new AcodeError('ACODE-SBX-013', {
        source: parts.directory,
        key: '',
        reason: `is not used: ${place.unsafe}`,
      });
    const server = new CallServer(parts, place);
    try {
      await server.#listen();
      return server;
    } catch (error) {
      place[Symbol.dispose]();
      throw error;
    }
  }

  /** How long no command has run, in milliseconds; 0 while one does. */
  idleMs(): number {
    return this.#taken.length > 0 ? 0 : performance.now() - this.#lastEnd;
  }

  /**
   * Takes nothing on any more, and waits until what runs has ended or `signal` says that it is to be stopped. The socket is
   * removed at once, so that the next command does not look for a server.
   */
  async retire(signal: AbortSignal): Promise<void> {
    this.#close();
    const stopped = new Promise<void>(resolve => signal.addEventListener('abort', () => resolve(), { once: true }));
    while (this.#taken.length > 0 && !signal.aborted)
      await Promise.race([stopped, ...this.#taken.map(one => one.ended)]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#close();
    for (const connection of this.#connections) connection.stop();
    const ended = Promise.all([...this.#connections].map(one => one.ended));
    await Promise.race([ended, new Promise(resolve => setTimeout(resolve, LAST_WORDS_MS).unref())]);
    for (const connection of this.#connections) connection.close();
    this.#place[Symbol.dispose]();
  }

  #forget(connection: Connection): void {
    this.#connections.delete(connection);
    if (connection.isTaken) this.#lastEnd = performance.now();
  }

  // Node removes the path that it listened on, whatever is there by now: the socket of another server is none of its business.
  #close(): void {
    if (this.#retired) return;
    this.#retired = true;
    if (!this.#isOwn()) this.#place[Symbol.dispose]();
    this.#server.close();
  }

  #isOwn(): boolean {
    try {
      return lstatSync(this.#place.path(this.#parts.identity.socketName)).ino === this.#inode;
    } catch {
      return false;
    }
  }

  get #taken(): Connection[] {
    return [...this.#connections].filter(one => one.isTaken);
  }

  async #listen(): Promise<void> {
    const path = this.#place.path(this.#parts.identity.socketName);
    try {
      await bound(this.#server, path);
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EADDRINUSE')) throw error;
      await this.#clearDead(path);
      await bound(this.#server, path);
    }
    this.#inode = lstatSync(path).ino;
  }

  // A server that was killed leaves its socket. It is taken out of the way under another name first: should a server have put
  // its own there in this moment, it is put back.
  async #clearDead(path: string): Promise<void> {
    const dead = await lstat(path);
    if (await lives(path)) throw this.#placeTaken();
    const aside = `${path}.${process.pid}`;
    await rename(path, aside);
    const { ino } = await lstat(aside);
    if (ino !== dead.ino) {
      await rename(aside, path);
      throw this.#placeTaken();
    }
    await rm(aside);
  }

  #placeTaken(): AcodeError {
    return new AcodeError('ACODE-SBX-023', { workspace: this.#parts.workspace });
  }

  async #whyNot({ identity, directory, argv }: ServedRequest): Promise<string | null> {
    if (identity !== this.#parts.identity.text) return 'it serves other surroundings';
    if ((whereOf(argv) ?? whereOnRequest(argv)) === null) return 'it runs commands and nothing else';
    if (directoryMark(await stat(this.#parts.workspace)) !== directory) return 'it sees another directory there';
    const declined = await this.#parts.whyDeclined();
    return this.#retired ? 'it is about to end' : declined;
  }
}

// Node binds before `listen` returns, so that the socket never has another mode, and no other file gets this one.
async function bound(server: Server, path: string): Promise<void> {
  const before = process.umask(ONLY_OWNER);
  const listening = once(server, 'listening');
  server.listen(path);
  process.umask(before);
  await listening;
}
