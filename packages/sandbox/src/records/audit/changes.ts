// Risky changes in the audit log: an outcome names the changes, and its intent the command and the workspace.

import * as z from 'zod';
import type { ChangesQuery, RecordedChanges } from '../../contract/audit.ts';
import type { RiskyKind } from '../../contract/result.ts';

// Only lines with one of these are taken apart: a log may hold millions of records.
const INTENT = '"kind":"intent"';
const OUTCOME = '"kind":"outcome"';
const SCANNED = '"operation":"scan"';
const FINDINGS = ['"riskyChanges":[', '"scan":"incomplete"', '"scan":"continuing"'] as const;
const INTENT_OF = /"intent":(\d+),/;

// A kind that a later version adds is kept as it is.
const kindSchema = z.custom<RiskyKind>(value => typeof value === 'string');
const stateSchema = z.enum(['complete', 'continuing', 'incomplete']);
const countsSchema = z.object({
  executable: z.int(),
  hidden: z.int(),
  configuration: z.int(),
  source: z.int(),
  other: z.int(),
});

const intentSchema = z.object({
  seq: z.int(),
  command: z.array(z.string()).catch([]),
  sandboxId: z.string().nullable().catch(null),
  workspace: z.string().nullable().catch(null),
});

const findingsSchema = z.object({
  seq: z.int(),
  ts: z.string(),
  intent: z.int().nullable().catch(null),
  exitCode: z.int().nullable().catch(null),
  command: z.array(z.string()).catch([]),
  sandboxId: z.string().nullable().catch(null),
  sandboxIds: z.array(z.string()).catch([]),
  correlationId: z.string().nullable().catch(null),
  correlationIds: z.array(z.string()).catch([]),
  workspace: z.string().nullable().catch(null),
  riskyChanges: z.array(z.object({ kind: kindSchema, path: z.string() })).catch([]),
  riskyChangesTotal: z.int().nullable().catch(null),
  changed: countsSchema.nullable().catch(null),
  scan: stateSchema.nullable().catch(null),
  scanReason: z.string().nullable().catch(null),
});

type Intent = z.output<typeof intentSchema>;
type Findings = z.output<typeof findingsSchema>;
interface Continuing {
  readonly run: RecordedChanges;
  readonly correlationId: string | null;
}

/** The runs that a query asks for, in the order of their commands, oldest first. A line that is no record is passed over: `verify` is what finds it. */
export async function recordedChanges(
  lines: AsyncIterable<string>,
  { workspace, since }: ChangesQuery = {},
): Promise<RecordedChanges[]> {
  const runs = new Runs();
  for await (const line of lines) runs.take(line);
  return runs.found(run => isWanted(run, workspace, since));
}

/** A run, with the last record that says something about what it left. */
interface Found {
  readonly run: RecordedChanges;
  readonly seq: number;
  readonly ts: string;
}

/** The runs that are known so far. */
class Runs {
  // Those whose outcome has not come yet, and so never more than ran at once or were killed with their process.
  readonly #open = new Map<number, Intent>();
  /** Those whose scan went on, by their sandbox, until it is known what it came to. */
  readonly #continuing = new Map<string, Continuing[]>();
  readonly #found: (Found | null)[] = [];

  take(line: string): void {
    if (line.includes(INTENT)) this.#remember(line);
    else if (line.includes(SCANNED)) this.#scanned(line);
    else if (FINDINGS.some(text => line.includes(text))) this.#left(line);
    else if (line.includes(OUTCOME)) this.#open.delete(intentOf(line));
  }

  /** Files that were left, and the scans whose end is unknown. */
  found(wants: (found: Found) => boolean): RecordedChanges[] {
    return this.#found
      .filter(found => found !== null && wants(found))
      .flatMap(found => found?.run ?? [])
      .sort((one, other) => (one.intent ?? one.record) - (other.intent ?? other.record) || one.record - other.record);
  }

  #remember(line: string): void {
    const parsed = intentSchema.safeParse(jsonOf(line));
    if (parsed.success) this.#open.set(parsed.data.seq, parsed.data);
  }

  #left(line: string): void {
    const intent = this.#open.get(intentOf(line));
    this.#open.delete(intentOf(line));
    const findings = findingsIn(line);
    if (!findings) return;
    const run = runOf(findings, intent);
    this.#found.push({ run, seq: run.record, ts: run.ts });
    if (run.scan !== 'continuing' || run.sandboxId === null) return;
    const { correlationId } = findings;
    this.#continuing.set(run.sandboxId, [...(this.#continuing.get(run.sandboxId) ?? []), { run, correlationId }]);
  }

  // A scan that went on has ended. What it found is a finding of its own; of the runs it is about, those that left nothing
  // else are settled by it.
  #scanned(line: string): void {
    const findings = findingsIn(line);
    if (!findings) return;
    const about = [...new Set(findings.sandboxIds)].flatMap(id => this.#settled(id, findings.correlationIds));
    const { seq, ts, scan } = findings;
    const isEmpty = findings.riskyChanges.length === 0;
    // A scan that found nothing and did not finish says no more than that about each of its runs.
    const isUnfinished = isEmpty && scan === 'incomplete';
    for (const run of about) this.#settle(run, findings, isUnfinished);
    if (isEmpty && (scan === 'complete' || about.length > 0)) return;
    const run = runOf(findings, undefined);
    const [first = run] = about;
    const { intent, command, exitCode } = first;
    const sandboxId = findings.sandboxIds[0] ?? run.sandboxId;
    this.#found.push({ run: { ...run, ts: first.ts, intent, command, exitCode, sandboxId }, seq, ts });
  }

  #settle(run: RecordedChanges, { seq, ts, scanReason }: Findings, isUnfinished: boolean): void {
    if (isUnfinished) this.#replace(run, { run: { ...run, scan: 'incomplete', scanReason }, seq, ts });
    else if (run.riskyChanges.length === 0) this.#replace(run, null);
    else this.#replace(run, { run: { ...run, scan: 'complete' }, seq, ts });
  }

  // A persistent sandbox has many runs, each with a scan of its own. A record that names no runs is about all of them.
  #settled(sandboxId: string, correlationIds: readonly string[]): RecordedChanges[] {
    const ids = new Set<string | null>(correlationIds);
    const all = this.#continuing.get(sandboxId) ?? [];
    const left = ids.size === 0 ? [] : all.filter(({ correlationId }) => !ids.has(correlationId));
    if (left.length === 0) this.#continuing.delete(sandboxId);
    else this.#continuing.set(sandboxId, left);
    return all.filter(one => !left.includes(one)).map(({ run }) => run);
  }

  #replace(run: RecordedChanges, by: Found | null): void {
    const at = this.#found.findIndex(found => found?.run === run);
    if (at >= 0) this.#found[at] = by;
  }
}

function findingsIn(line: string): Findings | null {
  const parsed = findingsSchema.safeParse(jsonOf(line));
  return parsed.success ? parsed.data : null;
}

function runOf(findings: Findings, intent: Intent | undefined): RecordedChanges {
  const { seq, sandboxIds: _, correlationId: __, correlationIds: ___, riskyChangesTotal, ...rest } = findings;
  return {
    ...rest,
    record: seq,
    command: intent?.command ?? rest.command,
    sandboxId: intent?.sandboxId ?? rest.sandboxId,
    workspace: intent?.workspace ?? rest.workspace,
    riskyChangesTotal: Math.max(riskyChangesTotal ?? 0, rest.riskyChanges.length),
  };
}

function intentOf(line: string): number {
  return Number(INTENT_OF.exec(line)?.[1] ?? NaN);
}

function isWanted({ run, seq, ts }: Found, workspace: string | undefined, since: Date | number | undefined): boolean {
  if (workspace !== undefined && run.workspace !== workspace) return false;
  if (since === undefined) return true;
  return typeof since === 'number' ? seq > since : Date.parse(ts) >= since.getTime();
}

/** A line of the log as data; null where it is not JSON. */
export function jsonOf(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
