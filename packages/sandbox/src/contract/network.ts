// The network of a sandbox. Without imports at run time: the command line loads it with every call.

import type { EgressCredential } from './credentials.ts';
import type { EgressRule } from './egress.ts';

/** The network of a sandbox: none, an allow-list, the managed bridge, or a network that the user declared by name. */
export type NetworkMode =
  | {
      /** Which kind of network it is. */
      readonly kind: 'none';
    }
  | {
      readonly kind: 'allow';
      /** The list as it was written, such as `npm:install`. */
      readonly entries: readonly string[];
      /** The rules that it stands for, and those of every layer that deny. */
      readonly rules: readonly EgressRule[];
      /** The credentials that the proxy adds, without their values; absent for none. */
      readonly credentials?: readonly EgressCredential[];
    }
  | { readonly kind: 'bridge' }
  | {
      readonly kind: 'named';
      /** The name of the network on the engine. */
      readonly name: string;
    };

/** The network that a request asks for to get this one. */
export function networkInput(
  network: NetworkMode,
): 'none' | 'bridge' | { name: string } | { allow: readonly string[] } {
  if (network.kind === 'named') return { name: network.name };
  return network.kind === 'allow' ? { allow: network.entries } : network.kind;
}

/** A network as people call it, in a log, a record or a table. */
export function networkName(network: NetworkMode): string {
  return network.kind === 'named' ? network.name : network.kind;
}
