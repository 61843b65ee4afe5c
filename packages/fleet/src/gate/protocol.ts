// Protocol between a client and a gate: a request and an answer, each JSON with bytes behind it.

import * as z from 'zod';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import { PRIORITIES } from '../engine/names.ts';

/** The most bytes of a workspace in one message. */
export const PART_BYTES = 384 * 1024;

const name = z.string().max(100);
const position = z.int().nonnegative();
const hash = z.string().max(64);

/** What a client asks of a gate. The tenant is not in it: the connection proves which one it is. */
export const gateRequestSchema = z.discriminatedUnion('verb', [
  /** Whether the gate answers. */
  z.strictObject({ verb: z.literal('hello') }),
  /** Queues a signed task. `isNew` says that its id was made just now; where that is wrong, a worker finds out. */
  z.strictObject({
    verb: z.literal('submit'),
    id: name,
    pool: name,
    priority: z.enum(PRIORITIES),
    body: z.string(),
    isNew: z.boolean().default(false),
  }),
  z.strictObject({ verb: z.literal('queued'), id: name, pool: name }),
  z.strictObject({ verb: z.literal('state'), id: name }),
  z.strictObject({ verb: z.literal('cancel'), id: name }),
  /** Which tasks changed after a number of this gate; waits for the next one. */
  z.strictObject({ verb: z.literal('changes'), gate: name.nullable(), after: position }),
  /** The pieces of a log after a number; waits for the next one. */
  z.strictObject({ verb: z.literal('log'), id: name, attempt: z.int().positive(), after: position }),
  /** A part of a workspace, whose bytes follow. The answer says how many the gate has. */
  z.strictObject({ verb: z.literal('put'), hash, size: position.max(MAX_BLOB_BYTES), at: position }),
  /** A part of a workspace. */
  z.strictObject({ verb: z.literal('get'), hash, at: position }),
  /** The leases of the tenant’s sandboxes. */
  z.strictObject({ verb: z.literal('sandboxes') }),
  /** A message to a sandbox, whose bytes follow. The gate passes it on, and its answer. */
  z.strictObject({ verb: z.literal('ask'), sandbox: name }),
]);

/** One request. */
export type GateRequest = z.infer<typeof gateRequestSchema>;

/** What each answer has. */
export const answers = {
  hello: z.object({ gate: z.string() }),
  submit: z.object({ is: z.enum(['queued', 'present']) }),
  queued: z.object({ queued: z.boolean() }),
  /** The state as it is stored. */
  state: z.object({ state: z.string().nullable() }),
  cancel: z.object({}),
  changes: z.object({ gate: z.string(), next: position, ids: z.array(z.string()) }),
  log: z.object({ pieces: z.array(z.object({ sequence: z.int(), length: position })) }),
  put: z.object({ have: position }),
  get: z.object({ size: position.nullable() }),
  sandboxes: z.object({ items: z.array(z.object({ id: z.string(), body: z.string() })) }),
  ask: z.object({}),
} as const;
