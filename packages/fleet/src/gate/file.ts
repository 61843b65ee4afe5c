// Files of a gate: its own, and the tenants of the fleet, which `acode fleet tenant` writes.

import { readFileSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { parse } from 'yaml';
import * as z from 'zod';
import { engineSchema } from '../connect/open-engine.ts';
import type { EngineAddress } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { checkedName } from '../engine/names.ts';
import { reasonOf } from '../engine/retry.ts';
import { keySchema } from '../tasks/signature.ts';

const count = z.int().positive();
const MAX_QUEUE = 1_000_000;
const MAX_WEIGHT = 100;
const MAX_AFFINITY_MS = 200;
const LOOK_MS = 1000;

const tenantSchema = z.strictObject({
  keys: z.array(keySchema).min(1),
  weight: z.number().min(0.01).max(MAX_WEIGHT).default(1),
  quota: count.optional(),
  queue: count.max(MAX_QUEUE).default(10_000),
  user: z.string().startsWith('U').optional(),
  token: z.string().startsWith('sha256:').optional(),
});

const tenantsSchema = z.record(z.string(), tenantSchema);

/** The file of all tenants. */
export const registrySchema = z.strictObject({
  fleet: z.string().default('acode'),
  servers: z.array(z.string()).default([]),
  monitors: z.array(z.string()).default([]),
  ca_file: z.string().optional(),
  /** The database, and the addresses of gates, in place of `servers`. */
  postgres: z.string().optional(),
  gates: z.array(z.string()).default([]),
  users: z.strictObject({ operator: z.string(), gate: z.string(), worker: z.string() }).optional(),
  tenants: tenantsSchema.default({}),
});

/** The tenants of a fleet, and how they reach it. */
export type Registry = z.infer<typeof registrySchema>;

/** A tenant, as a gate knows it. */
export interface GateTenant {
  /** Public keys, one of which has to have signed each of its tasks. */
  readonly keys: string[];
  /** Its share beside other tenants; 1 by default. */
  readonly weight: number;
  /** The most of its tasks that run at once; no limit by default. */
  readonly quota?: number | undefined;
  /** The most unfinished tasks; 10,000 by default. */
  readonly queue: number;
  /** The public key of its user on NATS. */
  readonly user?: string | undefined;
  /** The digest of its token, with which it reaches a gate over HTTP. */
  readonly token?: string | undefined;
}

const gateSchema = z.strictObject({
  engine: engineSchema,
  fleet: z.string().default('acode'),
  pools: z.array(z.string()).min(1).default(['default']),
  tenants: z.union([z.string(), tenantsSchema]),
  http: z
    .strictObject({
      listen: z
        .string()
        .regex(/^(?:\[[0-9a-f:.]+\]|[^:[\]\s]+):\d{1,5}$/i, 'expected a host and a port: 127.0.0.1:7443'),
      cert_file: z.string().optional(),
      key_file: z.string().optional(),
    })
    .optional(),
  affinity_ms: z.int().min(0).max(MAX_AFFINITY_MS).default(MAX_AFFINITY_MS),
});

/** Where a gate answers over HTTP. */
export interface GateHttp {
  /** The address that it listens on. */
  readonly host: string;
  /** The port; 0 for any free one. */
  readonly port: number;
  /** Files with certificate and key; without them it may listen on the loopback only. */
  readonly tls?:
    | {
        /** The certificate, with those above it. */
        readonly certFile: string;
        /** Its key. */
        readonly keyFile: string;
      }
    | undefined;
}

/** What a gate’s file says. */
export interface GateFile {
  /** The engine. */
  readonly engine: EngineAddress;
  /** The fleet’s name. */
  readonly fleet: string;
  /** Where it answers tenants over HTTP; absent: it does so on NATS alone. */
  readonly http?: GateHttp | undefined;
  /** The pools whose tasks it hands out. */
  readonly pools: readonly string[];
  /** The tenants as they are now. */
  readonly tenants: () => ReadonlyMap<string, GateTenant>;
  /** How long a task waits for a host that has been used for its tenant, in milliseconds. */
  readonly affinityMs: number;
}

/** Reads a gate’s file. */
export async function readGateFile(path: string): Promise<GateFile> {
  let content: unknown;
  try {
    content = parse(await readFile(path, 'utf8'));
  } catch (cause) {
    throw invalid(path, faultOf(cause), cause);
  }
  return gateFileFrom(content, path);
}

/** The content of a gate’s file. A file of tenants that it names is read again when it changes. */
export function gateFileFrom(content: unknown, path = 'the gate’s file'): GateFile {
  const { engine, fleet, pools, tenants, affinity_ms, http } = checked(gateSchema, content, path);
  checkedName('fleet', fleet);
  for (const pool of pools) checkedName('pool', pool);
  const known = typeof tenants === 'string' ? tenantsOfFile(resolve(dirname(path), tenants)) : constant(mapOf(tenants));
  const way = http && httpOf(http, path);
  return { engine, fleet, pools, tenants: known, affinityMs: affinity_ms, ...(way && { http: way }) };
}

function httpOf(
  { listen, cert_file, key_file }: NonNullable<z.infer<typeof gateSchema>['http']>,
  path: string,
): GateHttp {
  const { hostname, port } = new URL(`http://${listen}`);
  const at = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port === '' ? 80 : port) };
  if (cert_file === undefined && key_file === undefined) return at;
  if (cert_file === undefined || key_file === undefined)
    throw invalid(path, 'http: a certificate needs both `cert_file` and `key_file`');
  const own = (file: string): string => resolve(dirname(path), file);
  return { ...at, tls: { certFile: own(cert_file), keyFile: own(key_file) } };
}

/** Reads the file of all tenants. */
export function readRegistry(path: string): Registry {
  let content: unknown;
  try {
    content = parse(readFileSync(path, 'utf8'));
  } catch (cause) {
    throw invalid(path, faultOf(cause), cause);
  }
  const registry = checked(registrySchema, content, path);
  for (const tenant of Object.keys(registry.tenants)) checkedName('tenant', tenant);
  return registry;
}

// What a change breaks does not stop a gate: it goes on with the tenants of before.
function tenantsOfFile(path: string): () => ReadonlyMap<string, GateTenant> {
  let changed = mark(path);
  let tenants = mapOf(readRegistry(path).tenants);
  let lookedAt = performance.now();
  return () => {
    if (performance.now() - lookedAt < LOOK_MS) return tenants;
    lookedAt = performance.now();
    const now = mark(path);
    if (now === changed) return tenants;
    try {
      tenants = mapOf(readRegistry(path).tenants);
      changed = now;
    } catch {
      // Read again in a second.
    }
    return tenants;
  };
}

function mark(path: string): string {
  const found = statSync(path, { throwIfNoEntry: false });
  return found ? `${found.ino} ${found.mtimeMs} ${found.size}` : '';
}

function mapOf(tenants: Readonly<Record<string, GateTenant>>): ReadonlyMap<string, GateTenant> {
  return new Map(Object.entries(tenants).map(([name, tenant]) => [checkedName('tenant', name), tenant]));
}

function constant<Value>(value: Value): () => Value {
  return () => value;
}

function checked<Value>(schema: z.ZodType<Value>, content: unknown, path: string): Value {
  const parsed = schema.safeParse(content);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const where = issue?.path.join('.') ?? '';
  throw invalid(path, `${where === '' ? 'the file' : where}: ${issue?.message ?? 'invalid'}`);
}

function faultOf(cause: unknown): string {
  const isMissing = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT';
  return isMissing ? 'there is no such file' : (reasonOf(cause).split('\n')[0] ?? 'it cannot be read');
}

function invalid(file: string, reason: string, cause?: unknown): Error {
  return FLEET_ERRORS.create('ACODE-FLT-033', { file, reason }, { cause });
}
