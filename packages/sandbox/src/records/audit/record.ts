// One record as one line: canonical JSON, with the hash of everything before it as the last field.

import { createHash } from 'node:crypto';
import * as z from 'zod';
import { AUDIT_KINDS } from '../../contract/audit.ts';
import type { AuditHead, AuditKind, AuditRecord } from '../../contract/audit.ts';
import { canonicalJson } from './canonical.ts';
import { MAX_CONTENT } from './content.ts';
import type { Content } from './content.ts';

/** What the first record says of the one before it. */
export const NO_HASH = '0'.repeat(64);

/** What the first record says of a chain that was begun beside the key of another, whose records are gone. */
export const LOST = 'the records before this one are lost: the log was emptied or removed';

/** The longest line there can be, newline and all. */
export const MAX_LINE = MAX_CONTENT + 1024;

const HASH = /^[0-9a-f]{64}$/;
const SEAL_BEGINS = Buffer.from(',"hash":"');
const SEAL_ENDS = Buffer.from('"}');
const SEAL_LENGTH = SEAL_BEGINS.length + 64 + SEAL_ENDS.length;
const CLOSING = '}';

// What every record has; the rest of it is kept as it is.
const recordSchema = z.object({
  v: z.literal(1),
  seq: z.int().positive(),
  ts: z.string(),
  prev: z.string().regex(HASH),
  kind: z.enum(AUDIT_KINDS),
  hash: z.string().regex(HASH),
  correlationId: z.string().optional(),
  operation: z.string().optional(),
});

const headSchema = z.object({ seq: recordSchema.shape.seq, kind: recordSchema.shape.kind });

/** A line that was written, or is about to be. */
export interface Sealed extends AuditHead {
  readonly line: string;
}

/** What stands around the content of a record. */
export interface Place {
  readonly seq: number;
  readonly ts: string;
  readonly prev: string;
}

/** The line of a record, with its newline. */
export function seal(place: Place, kind: AuditKind, content: Content): Sealed {
  const body = canonicalJson({ ...content, v: 1, ...place, kind, hash: undefined });
  const hash = createHash('sha256').update(body).digest('hex');
  return { seq: place.seq, hash, line: `${body.slice(0, -1)},"hash":"${hash}"}\n` };
}

/** What a line turned out to be. `broken` says why it is no record. */
export type Opened =
  | { readonly record: AuditRecord; readonly broken: null }
  | { readonly record: AuditRecord | null; readonly broken: 'not-json' | 'not-canonical' | 'edited' };

/** Reads one line without its newline. Every byte counts: what differs from what was written in one of them is broken. */
export function openLine(bytes: Buffer): Opened {
  const found = parsed(bytes);
  if (found === null) return { record: null, broken: 'not-json' };
  const { record, text } = found;
  const hash = sealOf(bytes);
  if (hash === null) return { record, broken: 'not-canonical' };
  if (hashOf(bytes) !== hash) return { record, broken: 'edited' };
  return isCanonical(record, text) ? { record, broken: null } : { record, broken: 'not-canonical' };
}

/** What a writer needs to know of the last line; null where it is not what its hash says, or no record. */
export function headOf(bytes: Buffer): (AuditHead & { readonly kind: AuditKind }) | null {
  const hash = sealOf(bytes);
  if (hash === null || hashOf(bytes) !== hash) return null;
  try {
    const { seq, kind } = headSchema.parse(JSON.parse(bytes.toString('utf8')));
    return { seq, hash, kind };
  } catch {
    return null;
  }
}

function hashOf(bytes: Buffer): string {
  // Over the bytes and not their text: two texts can read the same.
  const body = bytes.subarray(0, bytes.length - SEAL_LENGTH);
  return createHash('sha256').update(body).update(CLOSING).digest('hex');
}

// Most lines are shown to be canonical by the language’s own writer, which is much faster than ours; it puts names that are
// numbers in another order, so that its no is not the last word.
function isCanonical(record: AuditRecord, text: string): boolean {
  try {
    const keys = Object.keys(record);
    if (keys.pop() === 'hash' && areSorted(keys) && sortedWithin(record) && JSON.stringify(record) === text)
      return true;
    const { hash: _, ...body } = record;
    return `${canonicalJson(body).slice(0, -1)}${text.slice(-SEAL_LENGTH)}` === text;
  } catch {
    // Deeper than anything we write, or than the stack.
    return false;
  }
}

function sortedWithin(value: object): boolean {
  return Object.values(value).every(
    (item: unknown) =>
      typeof item !== 'object' ||
      item === null ||
      ((Array.isArray(item) || areSorted(Object.keys(item))) && sortedWithin(item)),
  );
}

function areSorted(keys: readonly string[]): boolean {
  for (let at = 1; at < keys.length; at += 1) if ((keys[at - 1] ?? '') > (keys[at] ?? '')) return false;
  return true;
}

function parsed(bytes: Buffer): { record: AuditRecord; text: string } | null {
  try {
    const text = bytes.toString('utf8');
    const raw: unknown = JSON.parse(text);
    return isRecord(raw) ? { record: raw, text } : null;
  } catch {
    return null;
  }
}

function isRecord(raw: unknown): raw is AuditRecord {
  return recordSchema.safeParse(raw).success;
}

function sealOf(bytes: Buffer): string | null {
  const at = bytes.length - SEAL_LENGTH;
  const framed =
    at > 0 &&
    bytes.subarray(at, at + SEAL_BEGINS.length).equals(SEAL_BEGINS) &&
    bytes.subarray(-SEAL_ENDS.length).equals(SEAL_ENDS);
  const hash = framed ? bytes.toString('latin1', at + SEAL_BEGINS.length, bytes.length - SEAL_ENDS.length) : '';
  return HASH.test(hash) ? hash : null;
}
