// API keys of the E2B server: which tenant a key belongs to, and what the tenant may have. Keys are compared by their hashes.

import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { readPrivateFile, writePrivateFile } from '@acode/sandbox';
import { parse } from 'yaml';
import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';
import { checkedName } from '../engine/names.ts';

const MAX_FILE = 1024 ** 2;
const MAX_TENANTS = 1000;
const MIN_KEY = 20;
/** Largest number of sandboxes at once: that of the library. */
export const MAX_SANDBOXES = 128;
const DIGEST = /^sha256:[0-9a-f]{64}$/;
const LOCAL = 'local';

const fileSchema = z.strictObject({
  shared_kernel: z.boolean().optional(),
  tenants: z
    .record(
      z.string(),
      z.strictObject({
        keys: z.array(z.string().min(MIN_KEY, `must have ${MIN_KEY} characters or more`)).min(1),
        sandboxes: z.int().min(1).max(MAX_SANDBOXES).optional(),
      }),
    )
    .refine(
      tenants => Object.keys(tenants).length > 0 && Object.keys(tenants).length <= MAX_TENANTS,
      `1 to ${MAX_TENANTS} tenants`,
    ),
});

/** A tenant of the E2B server. */
export interface E2bTenant {
  /** Its name. */
  readonly name: string;
  /** How many sandboxes it may have at once. */
  readonly sandboxes: number;
}

/** The tenants, by the hashes of their keys. */
export class ApiKeys {
  /** How many tenants there are. */
  readonly tenants: number;
  /** Whether they may share a kernel at level `docker`. */
  readonly sharedKernel: boolean;
  readonly #byHash: ReadonlyMap<string, E2bTenant>;

  /** Made of hashes: a key itself is not kept. */
  constructor(byHash: ReadonlyMap<string, E2bTenant>, sharedKernel: boolean) {
    this.#byHash = byHash;
    this.tenants = new Set(byHash.values()).size;
    this.sharedKernel = sharedKernel;
  }

  /** The tenant of a key; null if nobody has it. */
  tenantOf(key: string): E2bTenant | null {
    // Looked up by its hash: how long that takes says nothing of a key.
    return this.#byHash.get(hashOf(key)) ?? null;
  }
}

function hashOf(key: string): string {
  return `sha256:${createHash('sha256').update(key).digest('hex')}`;
}

/** Reads a file of keys, which nobody but its owner may read. */
export function readKeys(path: string): ApiKeys {
  let text: string | null;
  try {
    text = readPrivateFile(path, { maxBytes: MAX_FILE })?.text ?? null;
  } catch (cause) {
    throw refusedFile(path, reasonOf(cause), cause);
  }
  if (text === null) throw refusedFile(path, 'there is no such file, or others may read it');
  return keysFrom(parsed(text, path), path);
}

/** The keys of a file’s content. */
export function keysFrom(content: unknown, path: string): ApiKeys {
  const { tenants, shared_kernel } = checkedFile(content, path);
  const byHash = new Map<string, E2bTenant>();
  for (const [name, { keys, sandboxes = MAX_SANDBOXES }] of Object.entries(tenants)) {
    const tenant = { name: checkedName('tenant', name), sandboxes };
    for (const key of keys) {
      const hash = DIGEST.test(key) ? key : hashOf(key);
      if (byHash.has(hash)) throw refusedFile(path, `tenants.${name}.keys: a key is there twice`);
      byHash.set(hash, tenant);
    }
  }
  return new ApiKeys(byHash, shared_kernel ?? false);
}

function checkedFile(content: unknown, path: string): z.infer<typeof fileSchema> {
  const read = fileSchema.safeParse(content);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw refusedFile(path, `${issue?.path.join('.') || 'the file'}: ${issue?.message ?? 'invalid'}`);
}

/** The key of this user alone, made at first use. */
export function ownKey(directory: string): { readonly keys: ApiKeys; readonly file: string } {
  const file = join(directory, 'api-key');
  let key = readPrivateFile(file, { maxBytes: MAX_FILE })?.text.trim() ?? '';
  if (key.length < MIN_KEY) {
    // What E2B’s keys look like: some programs check it.
    key = `e2b_${randomBytes(20).toString('hex')}`;
    writePrivateFile(file, `${key}\n`, { durable: 'name' });
  }
  return { keys: keysFrom({ tenants: { [LOCAL]: { keys: [key] } } }, file), file };
}

function parsed(text: string, path: string): unknown {
  try {
    return parse(text);
  } catch (cause) {
    throw refusedFile(path, reasonOf(cause), cause);
  }
}

function reasonOf(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).split('\n')[0] ?? 'it cannot be read';
}

function refusedFile(file: string, reason: string, cause?: unknown): Error {
  const remedy =
    'Write `tenants: { acme: { keys: [e2b_…] } }` into it, and take away the rights of others: `chmod 600`. `docs/e2b.md` has an example.';
  return FLEET_ERRORS.create('ACODE-FLT-040', { what: file, reason, remedy }, cause === undefined ? {} : { cause });
}
