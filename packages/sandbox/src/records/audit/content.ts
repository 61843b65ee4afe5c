// What of an entry reaches the log: no secret, no value of a variable, and never more than a line that can be read.

import type { AuditEntry } from '../../contract/audit.ts';
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
