// A record of the audit log for a person: a row among others, or every field of it.

import type { AuditRecord } from '@acode/sandbox';
import { connectionLine, connectionSummary, connectionsIn } from '../egress/rows.ts';
import { quoted } from '../arguments/command-arguments.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { fields, table } from '../terminal/table.ts';
import { cut, oneLine, plural } from '../terminal/text.ts';

const SHORT = 12;
// What a reader looks for first; the rest follows by name, and the chain last.
const LEADING = ['ts', 'kind', 'operation', 'correlationId', 'sandbox_level', 'command'];
const CHAIN = ['prev', 'hash'];
const LEFT_OUT = new Set(['v', 'seq', ...LEADING, ...CHAIN]);

/** The records as a table. */
export function renderRecords(records: readonly AuditRecord[], look: Look): string {
  if (records.length === 0) return 'Nothing was recorded yet.\n';
  const rows = records.map(record => [String(record.seq), age(record.ts, look.now), record.kind, aboutRecord(record)]);
  return table(['RECORD', 'WHEN', 'KIND', 'WHAT'], rows, look);
}

/** A record as one line, for following. */
export function renderLine(record: AuditRecord, look: Look): string {
  const text = oneLine(`${record.seq}  ${record.ts}  ${record.kind.padEnd(10)}  ${aboutRecord(record)}`);
  return `${look.width === null ? text : cut(text, look.width)}\n`;
}

/** Every field of a record. Values are never cut short, unless they were when they were written. */
export function renderRecord(record: AuditRecord, look: Look): string {
  const others = Object.keys(record).filter(name => !LEFT_OUT.has(name));
  const names = [...LEADING, ...others, ...CHAIN].filter(name => record[name] !== undefined);
  const pairs = names.flatMap(name => pairsOf(name, record[name]));
  return `${look.colours.bold(`Record ${record.seq}`)}\n${fields(pairs, look)}`;
}

// One line for each risky change and each host: they are what a reader looks for.
function pairsOf(name: string, value: unknown): (readonly [label: string, value: string])[] {
  if (name === 'connections') {
    const rows = connectionsIn(value);
    if (rows.length > 0) return rows.map((row, index) => [index === 0 ? name : '', connectionLine(row)]);
  }
  if (name !== 'riskyChanges' || !Array.isArray(value) || !value.every(isChange))
    return [[oneLine(name), valueText(name, value)]];
  return value.map(({ kind, path }, index) => [index === 0 ? name : '', `${kind}: ${quoted(oneLine(path))}`]);
}

function isChange(value: unknown): value is { readonly kind: string; readonly path: string } {
  if (typeof value !== 'object' || value === null || !('kind' in value && 'path' in value)) return false;
  return typeof value.kind === 'string' && typeof value.path === 'string';
}

/** The summary of a record, in one line. */
function aboutRecord(record: AuditRecord): string {
  return ABOUT[record.kind](record);
}

const ABOUT: Readonly<Record<AuditRecord['kind'], (record: AuditRecord) => string>> = {
  intent: record => words(record, 'sandbox_level', 'command'),
  creation: record => words(record, 'what', 'name', 'id'),
  outcome: record => `of ${valueText('intent', record['intent'])}: ${outcome(record)}`,
  refusal: record => words(record, 'errorCode', 'message'),
  removal: record => words(record, 'what', 'name', 'id', 'reason'),
  event: record => [words(record, 'event', 'detail'), ...found(record)].filter(text => text !== '').join(', '),
  checkpoint: record => `signed by key ${valueText('key', record['key']).slice(0, SHORT)}`,
};

function outcome(record: AuditRecord): string {
  const { errorCode, exitCode, durationMs } = record;
  const how = [
    typeof errorCode === 'string' ? errorCode : '',
    typeof exitCode === 'number' ? `exit ${exitCode}` : 'no exit status',
    record['timedOut'] === true ? 'timed out' : '',
    record['oomKilled'] === true ? 'out of memory' : '',
    typeof durationMs === 'number' ? `${durationMs / 1000} s` : '',
    ...found(record),
  ];
  return how.filter(part => part !== '').join(', ');
}

// What the network of the command led to, and what the scan of the workspace found.
function found({ riskyChangesTotal, scan, connections }: AuditRecord): string[] {
  return [
    ...connectionSummary(connectionsIn(connections)),
    typeof riskyChangesTotal === 'number' ? plural(riskyChangesTotal, 'risky change') : '',
    scan === 'incomplete' ? 'scan incomplete' : '',
  ];
}

function words(record: AuditRecord, ...names: readonly string[]): string {
  return names
    .map(name => (record[name] === undefined ? '' : valueText(name, record[name])))
    .filter(text => text !== '')
    .join(' ');
}

function valueText(name: string, value: unknown): string {
  if (typeof value === 'string') return value;
  if (name === 'command' && Array.isArray(value)) return value.map(String).join(' ');
  return JSON.stringify(value) ?? '';
}
