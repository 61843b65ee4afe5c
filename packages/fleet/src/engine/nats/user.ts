// User of a NATS server: an nkey, whose seed stays with the client.

import { nkeys } from '@nats-io/transport-node';

/** An nkey: its seed proves who connects, its public key stands in the server’s configuration. */
export interface NatsUser {
  readonly seed: string;
  readonly publicKey: string;
}

/** Makes a user; or the one of a seed. */
export function makeNatsUser(seed?: string): NatsUser {
  const user = seed === undefined ? nkeys.createUser() : nkeys.fromSeed(new TextEncoder().encode(seed));
  return { seed: new TextDecoder().decode(user.getSeed()), publicKey: user.getPublicKey() };
}
