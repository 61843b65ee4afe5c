// Who may talk to the server over HTTP: only who knows the token, and no page of a browser that was led to this port.

import { createHash, timingSafeEqual } from 'node:crypto';

/** The path of the one endpoint. */
export const ENDPOINT = '/mcp';

/** What is known of a request before its body is read. */
export interface Arrival {
  readonly path: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly authorization: string | undefined;
}

/** Why a request is turned away, and the status of HTTP for it. */
export interface TurnedAway {
  readonly status: 401 | 403 | 404;
  readonly reason: string;
}

/** Null for a request that may come in. */
export function turnedAway(arrival: Arrival, port: number, token: string): TurnedAway | null {
  const names = [`127.0.0.1:${port}`, `localhost:${port}`];
  // A name that another user’s server gave this address is how a page reaches it: that name stands here.
  if (arrival.host === undefined || !names.includes(arrival.host.toLowerCase()))
    return { status: 403, reason: 'the Host header does not name this server' };
  if (arrival.origin !== undefined && !names.includes(arrival.origin.toLowerCase().replace(/^http:\/\//, '')))
    return { status: 403, reason: 'the Origin header names another site' };
  if (!isToken(arrival.authorization, token)) return { status: 401, reason: 'the token is missing or wrong' };
  return arrival.path === ENDPOINT ? null : { status: 404, reason: `there is nothing here but ${ENDPOINT}` };
}

/** Whether an Authorization header carries the token. Takes as long whatever it carries. */
export function isToken(authorization: string | undefined, token: string): boolean {
  const [, presented = ''] = /^Bearer +(\S+)$/i.exec(authorization ?? '') ?? [];
  return timingSafeEqual(digestOf(presented), digestOf(token)) && presented !== '';
}

// Digests have one length, and comparing needs that.
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
