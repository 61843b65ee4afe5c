// The network of a sandbox. Without imports: the command line loads it with every call.

/** The network of a sandbox: none, the managed bridge, or a network that the user declared by name. */
export type NetworkMode =
  | {
      /** Which kind of network it is. */
      readonly kind: 'none';
    }
  | { readonly kind: 'bridge' }
  | {
      readonly kind: 'named';
      /** The name of the network on the engine. */
      readonly name: string;
    };

/** The network that a request asks for to get this one. */
export function networkInput(network: NetworkMode): 'none' | 'bridge' | { name: string } {
  return network.kind === 'named' ? { name: network.name } : network.kind;
}

/** A network as people call it, in a log, a record or a table. */
export function networkName(network: NetworkMode): string {
  return network.kind === 'named' ? network.name : network.kind;
}
