// Server presence: whether a process listens on the workspace’s socket, in a directory that only this user can write.

import { connect } from 'node:net';
import { identityOf, runtimeDirectory } from './identity.ts';
import type { IdentityParts } from './identity.ts';
import { SocketDirectory } from './socket-path.ts';

const LIVES_MS = 1000;

/** Whether a server would be asked to do such a call. It may still leave it to the caller. */
export async function isServed(parts: IdentityParts): Promise<boolean> {
  const place = SocketDirectory.open(runtimeDirectory(parts.env, parts.uid), parts.uid);
  if ('unsafe' in place) return false;
  using held = place;
  const { socketName } = identityOf(parts);
  return held.whyUnsafe(socketName, parts.uid) === null && (await lives(held.path(socketName)));
}

/**
 * Whether a process listens on a socket: a killed server leaves its socket behind. A busy server accepts connections too,
 * so that only a refused connection shows that none listens.
 */
export function lives(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect({ path, timeout: LIVES_MS });
    const found = (alive: boolean): void => {
      socket.destroy();
      resolve(alive);
    };
    socket.once('connect', () => found(true));
    socket.once('timeout', () => found(true));
    socket.once('error', (error: NodeJS.ErrnoException) => found(error.code !== 'ECONNREFUSED'));
  });
}
