// File of a worker: the operator’s own. It says which engine, which pool, which tenants, and what their tasks may have at most.

import { readFile } from 'node:fs/promises';
import type { ConfigInput } from '@acode/sandbox';
import { parse } from 'yaml';
import * as z from 'zod';
import { engineSchema } from '../connect/open-engine.ts';
import type { EngineAddress } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { checkedName } from '../engine/names.ts';
import { reasonOf } from '../engine/retry.ts';
import { keySchema } from '../tasks/signature.ts';

const MAX_SLOTS = 16;
const MAX_TENANTS = 1000;
const HOUR_S = 3600;

const fileSchema = z.strictObject({
  name: z.string().optional(),
  engine: engineSchema,
  fleet: z.string().default('acode'),
  pool: z.string().default('default'),
  slots: z.int().min(1).max(MAX_SLOTS).default(4),
  gate: z.boolean().default(false),
  level: z.enum(['docker', 'gvisor', 'microvm']).default('docker'),
  shared_kernel: z.boolean().optional(),
  images: z.array(z.string().min(1)).min(1),
  tenants: z
    .record(
      z.string(),
      z.strictObject({ keys: z.array(keySchema).min(1), slots: z.int().min(1).max(MAX_SLOTS).optional() }),
    )
    .refine(
      tenants => Object.keys(tenants).length > 0 && Object.keys(tenants).length <= MAX_TENANTS,
      `1 to ${MAX_TENANTS} tenants`,
    ),
  warm: z.int().min(0).max(MAX_SLOTS).default(1),
  socket: z.string().nullable().default(null),
  drain_s: z.int().min(0).max(HOUR_S).default(30),
  sandbox: z.record(z.string(), z.unknown()).default({}),
});

/** A tenant whose tasks a worker runs. */
export interface WorkerTenant {
  /** Public keys, one of which has to have signed each of its tasks. */
  readonly keys: readonly string[];
  /** How many of its tasks run at once. */
  readonly slots: number;
}

/** What a worker’s file says, with what it leaves out. */
export interface WorkerFile {
  /** The name of the host, for people. */
  readonly name: string;
  /** The engine, as the file has it. */
  readonly engine: EngineAddress;
  /** The fleet’s name. */
  readonly fleet: string;
  /** The pool whose tasks it takes. */
  readonly pool: string;
  /** How many tasks it runs at once. */
  readonly slots: number;
  /** Whether it takes only what a gate grants. */
  readonly granted: boolean;
  /** The least isolation level of its tasks. */
  readonly level: 'docker' | 'gvisor' | 'microvm';
  /** References that tasks may name; the first is that of tasks that name none. One with `*` at its end allows what begins so. */
  readonly images: readonly string[];
  /** The tenants, by name. */
  readonly tenants: ReadonlyMap<string, WorkerTenant>;
  /** Sandboxes that wait for each tenant that is active. */
  readonly warm: number;
  /** The socket of the container engine; null for the usual one. */
  readonly socket: string | null;
  /** How long running tasks may go on after SIGTERM. */
  readonly drainMs: number;
  /** Configuration of the library for all tenants. */
  readonly config: ConfigInput;
}

/** Reads a worker’s file. */
export async function readWorkerFile(path: string, host: string): Promise<WorkerFile> {
  try {
    return workerFileFrom(parse(await readFile(path, 'utf8')), host, path);
  } catch (cause) {
    if (cause instanceof Error && cause.name === 'AcodeError') throw cause;
    throw FLEET_ERRORS.create('ACODE-FLT-014', { file: path, reason: faultOf(cause) }, { cause });
  }
}

function faultOf(cause: unknown): string {
  const isMissing = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT';
  return isMissing ? 'there is no such file' : (reasonOf(cause).split('\n')[0] ?? 'it cannot be read');
}

/** The content of a worker’s file. Refuses what it does not know, and tenants that would share a kernel without a word. */
export function workerFileFrom(content: unknown, host: string, path = 'the worker’s file'): WorkerFile {
  const data = parsedFile(content, path);
  const { engine, images, level, slots, warm, socket, drain_s, sandbox } = data;
  for (const tenant of Object.keys(data.tenants)) checkedName('tenant', tenant);
  const pool = checkedName('pool', data.pool);
  assertApart(data, pool, level);
  const tenants = Object.entries(data.tenants).map(
    ([tenant, { keys, slots: most = slots }]) => [tenant, { keys, slots: Math.min(most, slots) }] as const,
  );
  return {
    name: data.name ?? host,
    engine,
    fleet: checkedName('fleet', data.fleet),
    pool,
    slots,
    granted: data.gate,
    level,
    images,
    tenants: new Map(tenants),
    warm,
    socket,
    drainMs: drain_s * 1000,
    // Checked by the library when the first sandbox host is opened.
    config: { sandbox },
  };
}

function parsedFile(content: unknown, path: string): z.infer<typeof fileSchema> {
  const parsed = fileSchema.safeParse(content);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const where = issue?.path.join('.') ?? '';
  const reason = `${where === '' ? 'the file' : where}: ${issue?.message ?? 'invalid'}`;
  throw FLEET_ERRORS.create('ACODE-FLT-014', { file: path, reason });
}

function assertApart(
  { tenants, shared_kernel }: z.infer<typeof fileSchema>,
  pool: string,
  level: WorkerFile['level'],
): void {
  const count = Object.keys(tenants).length;
  if (count > 1 && level === 'docker' && shared_kernel !== true)
    throw FLEET_ERRORS.create('ACODE-FLT-013', { pool, tenants: count, level });
}

/** Whether a task may name this image. An id or a name without a repository would be an image that the worker has of someone else. */
export function mayUseImage(images: readonly string[], image: string): boolean {
  return images.some(one => (one.endsWith('*') ? image.startsWith(one.slice(0, -1)) : image === one));
}
