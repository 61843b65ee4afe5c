// Address of gates, as a client’s file has it, and the link to one of them.

import * as z from 'zod';
import { HttpGateLink, isToken } from '../engine/http/gate-link.ts';
import type { GateLink } from '../engine/link.ts';
import { NatsGateLink } from '../engine/nats/gate-link.ts';
import { present } from './open-engine.ts';

/** The section `gate` of a client’s file. */
export const gateAddressSchema = z.union([
  z.strictObject({
    nats: z.strictObject({
      servers: z.array(z.string().min(1)).min(1),
      credentials: z.string().optional(),
      seed: z.string().startsWith('SU').optional(),
      ca_file: z.string().optional(),
      unencrypted: z.boolean().optional(),
    }),
  }),
  z.strictObject({
    http: z.strictObject({
      urls: z.array(z.string().min(1)).min(1),
      token: z.string().refine(isToken, 'expected a token as `acode fleet tenant add` makes it'),
      ca_file: z.string().optional(),
    }),
  }),
]);

/** Where gates are, and as whom they are asked: on NATS with the user of a tenant, or over HTTP with its token. */
export type GateAddress =
  | {
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
        /** Whether servers on other machines may be reached without encryption. */
        readonly unencrypted?: boolean | undefined;
      };
    }
  | {
      /** Over HTTP. */
      readonly http: {
        /** Addresses of gates. */
        readonly urls: readonly string[];
        /** The tenant’s token. */
        readonly token: string;
        /** A file with certificates. */
        readonly ca_file?: string | undefined;
      };
    };

/** Opens a link to a gate of a fleet, as a tenant. */
export function openGate(address: GateAddress, fleet: string, tenant: string): Promise<GateLink> {
  if ('http' in address) {
    const { urls, token, ca_file: caFile } = address.http;
    return HttpGateLink.open({ urls, token, ...present({ caFile }) });
  }
  const { servers, ca_file: caFile, credentials, seed, unencrypted } = address.nats;
  return NatsGateLink.open({ servers, ...present({ caFile, credentials, seed, unencrypted }), fleet, tenant });
}
