// Whether a server is there for a workspace: somebody takes connections on a socket that only this user can have put there.

import { connect } from 'node:net';
import { identityOf, runtimeDirectory } from './identity.ts';
import type { IdentityParts } from './identity.ts';
import { SocketPlace } from './socket-place.ts';

// A server that lives takes a connection at once.
const TAKEN_MS = 250;

/** Whether a server would be asked to do such a call. It may still leave it to the caller. */
export async function isServed(parts: IdentityParts): Promise<boolean> {
  const place = SocketPlace.open(runtimeDirectory(parts.env, parts.uid), parts.uid);
  if ('unsafe' in place) return false;
  using held = place;
  const { socketName } = identityOf(parts);
  return held.whyUnsafe(socketName, parts.uid) === null && (await takesConnections(held.path(socketName)));
}

// The socket of a server that was killed lies there still.
function takesConnections(path: string): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect({ path, signal: AbortSignal.timeout(TAKEN_MS) });
    const settle = (taken: boolean): void => {
      socket.destroy();
      resolve(taken);
    };
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
}
