// Address of an engine, as files have it, and the engine that it names.

import * as z from 'zod';
import type { FleetEngine } from '../engine/engine.ts';
import { NatsEngine } from '../engine/nats/engine.ts';
import { PostgresEngine } from '../engine/postgres/engine.ts';

const urls = z.array(z.string().min(1)).min(1);

/** The section `engine` of a file. */
export const engineSchema = z.union([
  z.strictObject({
    nats: z.strictObject({
      servers: urls,
      monitors: urls.optional(),
      unsynced: z.boolean().optional(),
      credentials: z.string().optional(),
      seed: z.string().startsWith('SU').optional(),
      ca_file: z.string().optional(),
      replicas: z.int().min(1).max(5).optional(),
      log_bytes: z.int().positive().optional(),
      blob_bytes: z.int().positive().optional(),
      unencrypted: z.boolean().optional(),
    }),
  }),
  z.strictObject({
    postgres: z.strictObject({
      url: z.string().min(1),
      ca_file: z.string().optional(),
      unencrypted: z.boolean().optional(),
    }),
  }),
]);

/** The engine that a file names. */
export type EngineAddress =
  | {
      /** On NATS. */
      readonly nats: {
        /** Addresses of servers. */
        readonly servers: readonly string[];
        /** Addresses of their monitoring ports. */
        readonly monitors?: readonly string[] | undefined;
        /** Whether servers may be used that acode cannot check. */
        readonly unsynced?: boolean | undefined;
        /** A file with the credentials of a user. */
        readonly credentials?: string | undefined;
        /** The seed of an nkey, in place of a file. */
        readonly seed?: string | undefined;
        /** A file with certificates. */
        readonly ca_file?: string | undefined;
        /** How many servers keep each task. */
        readonly replicas?: number | undefined;
        /** Bytes that all logs may take; counts where the streams are created. */
        readonly log_bytes?: number | undefined;
        /** Bytes that all workspaces may take; counts where the streams are created. */
        readonly blob_bytes?: number | undefined;
        /** Whether servers on other machines may be reached without encryption. */
        readonly unencrypted?: boolean | undefined;
      };
    }
  | {
      /** On PostgreSQL. */
      readonly postgres: {
        /** How to connect. */
        readonly url: string;
        /** A file with certificates. */
        readonly ca_file?: string | undefined;
        /** Whether a server on another machine may be reached without encryption. */
        readonly unencrypted?: boolean | undefined;
      };
    };

/** Which fleet on which engine. */
export interface FleetAddress {
  /** The engine. */
  readonly engine: EngineAddress;
  /** The fleet’s name. */
  readonly fleet: string;
}

/** Opens the engine that a file names. */
export async function openEngine({ engine, fleet }: FleetAddress, signal?: AbortSignal): Promise<FleetEngine> {
  if ('postgres' in engine) {
    const { url, ca_file: caFile, unencrypted } = engine.postgres;
    return PostgresEngine.open({ url, fleet, ...present({ caFile, unencrypted }) }, signal);
  }
  const { ca_file: caFile, log_bytes: logBytes, blob_bytes: blobBytes, ...same } = engine.nats;
  return NatsEngine.open(
    { ...present({ caFile, logBytes, blobBytes, ...same }), servers: engine.nats.servers, fleet },
    signal,
  );
}

/** Fields with a value. */
type Present<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> };

/** The fields that have a value. */
export function present<Fields extends object>(fields: Fields): Present<Fields> {
  const found = Object.entries(fields).filter(([, value]) => value !== undefined);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return Object.fromEntries(found) as Present<Fields>;
}
