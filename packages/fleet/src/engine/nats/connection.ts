// Connection to servers of NATS: made again whenever it is lost, and encrypted wherever it leaves this machine.

import { connect, credsAuthenticator, errors, nkeyAuthenticator } from '@nats-io/transport-node';
import type { ConnectionOptions, NatsConnection } from '@nats-io/transport-node';
import { readFile } from 'node:fs/promises';
import { FLEET_ERRORS } from '../../errors.ts';
import { hostOf, isLoopback } from '../address.ts';
import { reasonOf } from '../retry.ts';

const CONNECT_MS = 5000;
const PING_MS = 2000;

/** How servers are reached, and as whom. */
export interface NatsAccess {
  /** Addresses of servers: `nats://one.example:4222`. */
  readonly servers: readonly string[];
  /** A file with the credentials of a user. */
  readonly credentials?: string | undefined;
  /** The seed of an nkey, in place of a file. */
  readonly seed?: string | undefined;
  /** A file with the certificates that the servers’ own are checked against. */
  readonly caFile?: string | undefined;
  /** Whether servers on other machines may be reached without encryption. False by default. */
  readonly unencrypted?: boolean | undefined;
}

/** Connects to one of the servers, and again whenever that is lost. */
export async function connected(options: NatsAccess & { readonly inboxPrefix?: string }): Promise<NatsConnection> {
  const { servers, credentials, seed, inboxPrefix } = options;
  const isEncrypted = mustEncrypt(options);
  const parts: ConnectionOptions = {
    servers: [...servers],
    name: 'acode',
    timeout: CONNECT_MS,
    // A fleet outlives its servers’ restarts: a client that gave up would need a person.
    maxReconnectAttempts: -1,
    reconnectTimeWait: 250,
    reconnectJitter: 250,
    reconnectJitterTLS: 250,
    // A server that hangs is left long before a lease ends.
    pingInterval: PING_MS,
    maxPingOut: 2,
    noAsyncTraces: true,
    ...(inboxPrefix === undefined ? {} : { inboxPrefix }),
    ...encryptionOf(options, isEncrypted),
    ...(credentials === undefined ? {} : { authenticator: credsAuthenticator(await readFile(credentials)) }),
    ...(seed === undefined ? {} : { authenticator: nkeyAuthenticator(new TextEncoder().encode(seed)) }),
  };
  try {
    return await connect(parts);
  } catch (cause) {
    const engine = servers.join(', ');
    if (isEncrypted && cause instanceof errors.ConnectionError && cause.message.includes('support'))
      throw FLEET_ERRORS.create('ACODE-FLT-023', { engine }, { cause });
    throw FLEET_ERRORS.create('ACODE-FLT-001', { engine, reason: reasonOf(cause) }, { cause });
  }
}

function encryptionOf({ caFile, unencrypted }: NatsAccess, isEncrypted: boolean): Partial<ConnectionOptions> {
  // With it the client refuses a server that offers none.
  if (isEncrypted) return { tls: caFile === undefined ? {} : { caFile } };
  // A server of this machine may name others of its cluster, to which this connection would go on without encryption.
  return { ignoreClusterUpdates: unencrypted !== true };
}

function mustEncrypt({ servers, caFile, unencrypted }: NatsAccess): boolean {
  if (caFile !== undefined || servers.some(server => server.startsWith('tls:'))) return true;
  return unencrypted !== true && !servers.every(server => isLoopback(hostOf(server)));
}
