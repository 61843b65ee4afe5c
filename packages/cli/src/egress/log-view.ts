// Connections of commands, from the audit log and from sandboxes that run now.

import type { Audit, AuditRecord, RunningNetwork } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { cut, oneLine } from '../terminal/text.ts';
import { connectionLine, connectionsIn, placeOf, ruleOf, trafficOf, whyOf } from './rows.ts';
import type { ConnectionRow } from './rows.ts';

/** What of the log is wanted. */
interface Wanted {
  readonly lines: number;
  readonly follow?: true | undefined;
  readonly denied?: true | undefined;
}

/** One row of the log, with its command. */
interface LoggedRow extends ConnectionRow {
  /** The number of the record; null while the command runs. */
  readonly record: number | null;
  readonly ts: string;
  readonly sandboxId: string | null;
  readonly command: readonly string[];
  readonly workspace: string | null;
}

// An outcome stands a few records after its intent, among those of other commands.
const RECORDS_OF_ONE = 12;
const MAX_RECORDS = 10_000;

/** Shows the connections of the newest commands, or follows them. */
export async function showLog(call: Call, wanted: Wanted): Promise<number> {
  if (wanted.follow && call.options.json)
    throw new UsageError(
      '--follow has no end, and --json prints one object.',
      'Leave one of the two out; `acode audit export` prints the records as they are.',
    );
  await call.withObserver(async ({ audit, network }) => {
    const records = await audit.tail({ count: Math.min(MAX_RECORDS, wanted.lines * RECORDS_OF_ONE) });
    if (wanted.follow) return follow(call, audit, records, wanted);
    const running = (await network.running()).flatMap(rowsOfRunning);
    const items = [...rowsIn(records, wanted.lines), ...running].filter(row => isWanted(row, wanted));
    await call.print('acode.egress-log/1', { items }, look => renderLog(items, look));
  });
  return 0;
}

async function follow(call: Call, audit: Audit, before: readonly AuditRecord[], wanted: Wanted): Promise<void> {
  const { signal } = call.interruption;
  const say = async (rows: readonly LoggedRow[]): Promise<boolean> => {
    for (const row of rows.filter(one => isWanted(one, wanted)))
      if (!(await call.stdout.write(rowLine(row, call.look), signal))) return false;
    return true;
  };
  const contexts = new Map(before.filter(({ kind }) => kind === 'intent').map(record => [record.seq, record]));
  await say(rowsIn(before, wanted.lines));
  for await (const record of audit.follow({ after: before.at(-1)?.seq ?? 0, signal })) {
    if (record.kind === 'intent') contexts.set(record.seq, record);
    if (record.kind !== 'outcome') continue;
    const rows = rowsOf(record, contexts.get(Number(record['intent'])));
    contexts.delete(Number(record['intent']));
    if (!(await say(rows))) return;
  }
}

function isWanted({ verdict }: ConnectionRow, { denied }: Wanted): boolean {
  return denied !== true || verdict === 'denied';
}

/** The rows of the newest commands that have some, oldest first. */
function rowsIn(records: readonly AuditRecord[], commands: number): LoggedRow[] {
  const intents = new Map(records.filter(({ kind }) => kind === 'intent').map(record => [record.seq, record]));
  const outcomes = records.filter(({ kind, connections }) => kind === 'outcome' && Array.isArray(connections));
  return outcomes.slice(-commands).flatMap(record => rowsOf(record, intents.get(Number(record['intent']))));
}

function rowsOf(record: AuditRecord, intent: AuditRecord | undefined): LoggedRow[] {
  const about = {
    record: record.seq,
    ts: record.ts,
    sandboxId: textOf(intent?.['sandboxId'] ?? record['sandboxId']),
    command: Array.isArray(intent?.['command']) ? intent['command'].map(String) : [],
    workspace: textOf(intent?.['workspace']),
  };
  return connectionsIn(record['connections']).map(row => ({ ...about, ...row }));
}

function rowsOfRunning({ sandboxId, command, workspace, startedAt, connections }: RunningNetwork): LoggedRow[] {
  return connectionsIn(connections).map(row => ({
    record: null,
    ts: startedAt,
    sandboxId,
    command,
    workspace,
    ...row,
  }));
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function renderLog(items: readonly LoggedRow[], look: Look): string {
  if (items.length === 0) return 'No command with an allow-list connected to anything that is recorded here.\n';
  const rows = items.map(row => [
    row.record === null ? 'running' : age(row.ts, look.now),
    row.verdict,
    placeOf(row),
    String(row.count),
    row.verdict === 'denied' ? whyOf(row) : ruleOf(row),
    row.verdict === 'denied' ? '' : trafficOf(row),
    row.command.join(' '),
  ]);
  return table(['WHEN', 'VERDICT', 'HOST', 'TIMES', 'RULE', 'TRAFFIC', 'COMMAND'], rows, look, [
    'TRAFFIC',
    'COMMAND',
    'TIMES',
  ]);
}

function rowLine(row: LoggedRow, look: Look): string {
  const text = oneLine(`${row.ts}  ${connectionLine(row)}  ${row.command.join(' ')}`);
  return `${look.width === null ? text : cut(text, look.width)}\n`;
}
