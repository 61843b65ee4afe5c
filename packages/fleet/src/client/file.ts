// File of a client: how it reaches the fleet, as which tenant, and whose results it believes.

import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import * as z from 'zod';
import { gateAddressSchema } from '../connect/open-gate.ts';
import type { GateAddress } from '../connect/open-gate.ts';
import { engineSchema } from '../connect/open-engine.ts';
import type { EngineAddress } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { checkedName } from '../engine/names.ts';
import { reasonOf } from '../engine/retry.ts';
import { keySchema } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';

const pairSchema = z.strictObject({ publicKey: keySchema, privateKey: z.string().startsWith('ed25519:') });

const fileSchema = z.strictObject({
  engine: engineSchema.optional(),
  gate: gateAddressSchema.optional(),
  fleet: z.string().default('acode'),
  tenant: z.string(),
  keys: pairSchema,
  pool: z.string().default('default'),
  workers: z.array(keySchema).optional(),
});

/** How a client reaches the fleet: through a gate, as a tenant has to, or straight to the engine, as the operator may. */
export type FleetReach =
  | {
      /** The engine, as the file has it. */
      readonly engine: EngineAddress;
      /** None. */
      readonly gate?: undefined;
    }
  | {
      /** Where gates are. */
      readonly gate: GateAddress;
      /** None. */
      readonly engine?: undefined;
    };

/** What a client’s file says, with what it leaves out. */
export type FleetFile = FleetReach & FleetIdentity;

/** Who a client is. */
export interface FleetIdentity {
  /** The fleet’s name. */
  readonly fleet: string;
  /** The tenant. */
  readonly tenant: string;
  /** The tenant’s keys. */
  readonly keys: KeyPair;
  /** The pool of tasks that name none. */
  readonly pool: string;
  /** Public keys of workers whose results are taken; absent: those of all. */
  readonly workers?: readonly string[] | undefined;
}

/** Reads a client’s file. */
export async function readFleetFile(path: string): Promise<FleetFile> {
  try {
    return fleetFileFrom(parse(await readFile(path, 'utf8')), path);
  } catch (cause) {
    if (cause instanceof Error && cause.name === 'AcodeError') throw cause;
    const isMissing = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT';
    const reason = isMissing ? 'there is no such file' : (reasonOf(cause).split('\n')[0] ?? 'it cannot be read');
    throw FLEET_ERRORS.create('ACODE-FLT-019', { file: path, reason }, { cause });
  }
}

/** The content of a client’s file. Refuses what it does not know. */
export function fleetFileFrom(content: unknown, path = 'the fleet’s file'): FleetFile {
  const parsed = fileSchema.safeParse(content);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    const where = issue?.path.join('.') ?? '';
    const reason = `${where === '' ? 'the file' : where}: ${issue?.message ?? 'invalid'}`;
    throw FLEET_ERRORS.create('ACODE-FLT-019', { file: path, reason });
  }
  return reaching(parsed.data, path);
}

function reaching({ engine, gate, ...rest }: z.infer<typeof fileSchema>, path: string): FleetFile {
  const { fleet, tenant, pool } = rest;
  checkedName('fleet', fleet);
  checkedName('tenant', tenant);
  checkedName('pool', pool);
  if (engine && !gate) return { ...rest, engine };
  if (gate && !engine) return { ...rest, gate };
  throw FLEET_ERRORS.create('ACODE-FLT-019', { file: path, reason: 'it needs `engine` or `gate`, and not both' });
}
