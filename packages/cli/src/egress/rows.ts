// Rows of connections in audit records, as a person reads them.

import * as z from 'zod';
import { formatBytes } from '@acode/sandbox';
import { plural } from '../terminal/text.ts';

// What a later version adds is left out.
const rowSchema = z.object({
  host: z.string(),
  port: z.int(),
  verdict: z.enum(['allowed', 'denied']),
  rule: z.string().optional(),
  reason: z.string().optional(),
  count: z.int(),
  bytesIn: z.number(),
  bytesOut: z.number(),
  ms: z.number(),
});

/** One row of connections. */
export type ConnectionRow = z.output<typeof rowSchema>;

/** The rows of a record; none where it has none, or they cannot be read. */
export function connectionsIn(value: unknown): ConnectionRow[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap(item => {
    const { data } = rowSchema.safeParse(item);
    return data ? [data] : [];
  });
}

/** A row in one line. */
export function connectionLine(row: ConnectionRow): string {
  const { verdict, count } = row;
  const why = verdict === 'denied' ? whyOf(row) : `${ruleOf(row)}, ${trafficOf(row)}`;
  return `${verdict} ${placeOf(row)}, ${count}×, ${why}`;
}

/** The host and the port; a row for what the proxy no longer tells apart has neither. */
export function placeOf({ host, port }: Pick<ConnectionRow, 'host' | 'port'>): string {
  if (host === '*') return 'further hosts';
  return host === '' ? 'any host' : `${host}:${port}`;
}

/** Why a row was denied: the reason, and the rule where one decided. */
export function whyOf({ reason = 'denied', rule }: Pick<ConnectionRow, 'reason' | 'rule'>): string {
  return rule === undefined ? reason : `${reason} by ${rule}`;
}

/** The rule that allowed a row. */
export function ruleOf({ rule }: Pick<ConnectionRow, 'rule'>): string {
  return rule ?? 'no rule';
}

/** Bytes in both directions, and the time. */
export function trafficOf({ bytesIn, bytesOut, ms }: Pick<ConnectionRow, 'bytesIn' | 'bytesOut' | 'ms'>): string {
  return `${formatBytes(bytesIn)} in, ${formatBytes(bytesOut)} out, ${ms} ms`;
}

/** What a command connected to, in a few words; nothing where it connected to nothing. */
export function connectionSummary(rows: readonly ConnectionRow[]): string[] {
  const hosts = (verdict: ConnectionRow['verdict']): number =>
    new Set(rows.filter(row => row.verdict === verdict).map(({ host }) => host)).size;
  const [allowed, denied] = [hosts('allowed'), hosts('denied')];
  return [
    allowed > 0 ? `connected to ${plural(allowed, 'host')}` : '',
    denied > 0 ? `refused ${plural(denied, 'host')}` : '',
  ].filter(text => text !== '');
}
