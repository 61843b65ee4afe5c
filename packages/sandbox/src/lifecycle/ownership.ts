// A session proves that it is alive by a unix socket it listens on: the kernel answers for it, however busy it is, and
// stops answering the moment the process is gone. No process id, which would be reused, and no heartbeat, which would lie.

import { mkdir, readdir, rm } from 'node:fs/promises';
import { createConnection, createServer } from 'node:net';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';

/** What is known about the owner of a sandbox. Unknown counts as alive. */
export type OwnerState = 'alive' | 'dead' | 'unknown';

// The kernel’s limit on the path of a socket, without the closing NUL.
const LONGEST_PATH = 107;
const CONNECT_MS = 1000;
const OWNER = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Where the owner of a session listens. */
export function ownerSocketPath(runtimeDirectory: string, owner: string): string {
  return join(runtimeDirectory, 'owners', owner.replaceAll('-', ''));
}

/** A session’s proof of life, from `listen` to `close`. */
export class OwnerSocket {
  readonly path: string;
  readonly #server: Server;

  private constructor(path: string, server: Server) {
    this.path = path;
    this.#server = server;
  }

  /** Begins to listen. The socket never keeps the process running. */
  static async listen(runtimeDirectory: string, owner: string): Promise<OwnerSocket> {
    const path = ownerSocketPath(runtimeDirectory, owner);
    if (Buffer.byteLength(path) > LONGEST_PATH) {
      const reason = `is too long a path for a socket: use a shorter XDG_RUNTIME_DIR`;
      throw new AcodeError('ACODE-SBX-013', { source: runtimeDirectory, key: '', reason });
    }
    await mkdir(join(runtimeDirectory, 'owners'), { recursive: true, mode: 0o700 });
    // Whoever connects only wants to know that somebody listens.
    const server = createServer(connection => connection.destroy()).unref();
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, resolve);
    });
    server.on('error', () => undefined);
    return new OwnerSocket(path, server);
  }

  /** Stops listening and takes the socket away. */
  async close(): Promise<void> {
    await new Promise<void>(resolve => this.#server.close(() => resolve()));
    await rm(this.path, { force: true });
  }
}

/** Whether the owner of a sandbox lives, by connecting to it. */
export async function ownerState(runtimeDirectory: string, owner: string | undefined): Promise<OwnerState> {
  if (owner === undefined || !OWNER.test(owner)) return 'unknown';
  return socketState(ownerSocketPath(runtimeDirectory, owner));
}

/** Removes the sockets of dead owners, which a killed process leaves behind. */
export async function removeDeadSockets(runtimeDirectory: string): Promise<number> {
  const dead = (await owners(runtimeDirectory)).filter(({ state }) => state === 'dead');
  await Promise.all(dead.map(({ path }) => rm(path, { force: true })));
  return dead.length;
}

/** How many owners live here, or may live. */
export async function liveOwners(runtimeDirectory: string): Promise<number> {
  return (await owners(runtimeDirectory)).filter(({ state }) => state !== 'dead').length;
}

async function owners(runtimeDirectory: string): Promise<{ path: string; state: OwnerState }[]> {
  const directory = join(runtimeDirectory, 'owners');
  const names = (await readdir(directory).catch(() => [])).filter(name => /^[0-9a-f]{32}$/.test(name));
  return Promise.all(
    names.map(async name => ({ path: join(directory, name), state: await socketState(join(directory, name)) })),
  );
}

async function socketState(path: string): Promise<OwnerState> {
  return new Promise(resolve => {
    const connection = createConnection(path);
    const settle = (state: OwnerState): void => {
      connection.destroy();
      resolve(state);
    };
    connection.setTimeout(CONNECT_MS, () => settle('unknown'));
    connection.once('connect', () => settle('alive'));
    connection.once('error', (error: NodeJS.ErrnoException) =>
      // A full queue of connections (EAGAIN), or a directory we may not enter, says nothing about death.
      settle(error.code === 'ECONNREFUSED' || error.code === 'ENOENT' ? 'dead' : 'unknown'),
    );
  });
}
