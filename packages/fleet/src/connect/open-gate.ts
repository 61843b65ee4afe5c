// Address of gates, as a client’s file has it, and the link to one of them.

import * as z from 'zod';
import type { GateLink } from '../engine/link.ts';
import { NatsGateLink } from '../engine/nats/gate-link.ts';
import { present } from './open-engine.ts';

/** The section `gate` of a client’s file. */
export const gateAddressSchema = z.strictObject({
  nats: z.strictObject({
    servers: z.array(z.string().min(1)).min(1),
    credentials: z.string().optional(),
    seed: z.string().startsWith('SU').optional(),
    ca_file: z.string().optional(),
  }),
});

/** Where gates are: on NATS, with the user of a tenant. */
export interface GateAddress {
  /** On NATS. */
  readonly nats: {
    /** Addresses of servers. */
    readonly servers: readonly string[];
    /** A file with the credentials of a user. */
    readonly credentials?: string | undefined;
    /** The seed of an nkey, in place of a file. */
    readonly seed?: string | undefined;
    /** A file with certificates. */
    readonly ca_file?: string | undefined;
  };
}

/** Opens a link to a gate of a fleet, as a tenant. */
export function openGate(address: GateAddress, fleet: string, tenant: string): Promise<GateLink> {
  const { servers, ca_file: caFile, credentials, seed } = address.nats;
  return NatsGateLink.open({ servers, ...present({ caFile, credentials, seed }), fleet, tenant });
}
