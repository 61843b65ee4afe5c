// Audit record as one line: bounded content, canonical JSON, and the hash of everything before it as the last field.

import { createHash } from 'node:crypto';
import * as z from 'zod';
import { AUDIT_KINDS } from '../../contract/audit.ts';
import type { AuditEntry, AuditHead, AuditKind, AuditRecord } from '../../contract/audit.ts';
import { redactFields } from '../../contract/redact.ts';

/** The most bytes that the content of a record takes; what stands around it is added. */
export const MAX_CONTENT = 64 * 1024;

// Tried in this order: a record keeps as much as fits.
const SHORTER = [4096, 1024, 256, 64, 16] as const;
const MAX_ITEMS = 256;
// As telemetry/redact.ts has them.
const MAX_WORDS = 64;
const MAX_WORD = 4096;

/** Fields that can be written. */
export type Content = Readonly<Record<string, unknown>>;

/** The fields of an entry as they are written. */
export function contentOf(entry: AuditEntry): Content {
  const fields: Record<string, unknown> = { ...entry };
  // A caller who hands over `NAME=value` still gets only the name written.
  if ('env' in entry && entry.env) fields['env'] = entry.env.map(name => name.split('=', 1)[0] ?? '');
  const masked = { ...redactFields(fields), ...unmasked(entry) };
  const safe = isLong(entry) ? { ...masked, cut: true } : masked;
  if (fits(safe)) return safe;
  for (const most of SHORTER) {
    const shorter = Object.fromEntries(Object.entries(safe).map(([key, item]) => [key, shortened(item, most)]));
    if (fits(shorter)) return { ...shorter, cut: true };
  }
  throw new TypeError('an audit record is too large, however much of it is left out');
}

// Paths are written as they are: a command could otherwise hide one by calling it as secrets are called.
function unmasked(entry: AuditEntry): Content {
  return 'riskyChanges' in entry && entry.riskyChanges ? { riskyChanges: entry.riskyChanges } : {};
}

// Beyond this, taking secrets out leaves the rest out as well.
function isLong(entry: AuditEntry): boolean {
  const words = 'command' in entry ? (entry.command ?? []) : [];
  return words.length > MAX_WORDS || words.some(word => word.length > MAX_WORD);
}

function fits(content: Content): boolean {
  // What is added when it is cut, and quotes and keys, stay within what readers expect by a wide margin. The language’s own
  // writer says the same in another order, and much faster.
  return Buffer.byteLength(JSON.stringify(content)) <= MAX_CONTENT - 64;
}

function shortened(value: unknown, most: number): unknown {
  if (typeof value === 'string')
    return value.length <= most ? value : `${value.slice(0, most)}… (${value.length} characters)`;
  if (Array.isArray(value)) {
    const kept = value.slice(0, MAX_ITEMS).map(item => shortened(item, most));
    return value.length <= MAX_ITEMS ? kept : [...kept, `… (${value.length} items)`];
  }
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).slice(0, MAX_ITEMS);
  return Object.fromEntries(entries.map(([key, item]) => [key, shortened(item, most)]));
}

/** What the first record says of the one before it. */
export const NO_HASH = '0'.repeat(64);

/** The first record of a chain that was begun beside the key of an earlier one, whose records are missing. */
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

// Records are a few levels deep; what is deeper was not made by us, and would end in the stack.
const MAX_DEPTH = 16;

/**
 * Canonical JSON: keys sorted, no white space, absent where undefined. Only what JSON itself can say is taken; everything
 * else is a mistake of the caller, since its text could not be read back.
 */
export function canonicalJson(value: unknown): string {
  return textOf(value, 0);
}

function textOf(value: unknown, depth: number): string {
  if (depth > MAX_DEPTH) throw new TypeError('an audit record is too deep');
  if (Array.isArray(value)) return `[${value.map(item => textOf(item, depth + 1)).join(',')}]`;
  if (typeof value === 'object' && value !== null) return objectText(value, depth);
  return scalarText(value);
}

function scalarText(value: unknown): string {
  const known =
    value === null || typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value)
      ? JSON.stringify(value)
      : undefined;
  if (known === undefined) throw new TypeError(`an audit record cannot hold ${typeof value}`);
  return known;
}

function objectText(value: object, depth: number): string {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null)
    throw new TypeError('an audit record holds plain data only');
  const entries: [string, unknown][] = Object.entries(value).filter(([, item]) => item !== undefined);
  // By code units, as the language sorts: the same on every machine, whatever its locale.
  entries.sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${textOf(item, depth + 1)}`).join(',')}}`;
}
