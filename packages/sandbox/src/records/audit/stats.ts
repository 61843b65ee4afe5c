// Figures from the audit log: commands, how they ended, and how long their sandboxes took to be ready.

import * as z from 'zod';
import type { Stats, StatsQuery } from '../../contract/audit.ts';
import { Kpis, figuresOf } from '../telemetry.ts';
import { jsonOf } from './changes.ts';

// Only lines with one of these are parsed: a log may hold millions of records.
const OUTCOME = '"kind":"outcome"';
const REFUSAL = '"kind":"refusal"';

const outcomeSchema = z.object({
  kind: z.literal('outcome'),
  seq: z.int(),
  ts: z.string(),
  operation: z.string(),
  exitCode: z.int().nullable().catch(null),
  timedOut: z.boolean().catch(false),
  oomKilled: z.boolean().catch(false),
  errorCode: z.string().nullable().catch(null),
  sandboxId: z.string().nullable().catch(null),
  sandbox_provisioning_ms: z.number().nullable().catch(null),
  warm: z.boolean().catch(false),
});
const refusalSchema = z.object({ kind: z.literal('refusal'), seq: z.int(), ts: z.string() });
const recordSchema = z.discriminatedUnion('kind', [outcomeSchema, refusalSchema]);

type Outcome = z.output<typeof outcomeSchema>;

/** The figures of a log. A line that is not a record is skipped: `verify` finds it. */
export async function recordedStats(lines: AsyncIterable<string>, { since }: StatsQuery = {}): Promise<Stats> {
  const tally = new Tally();
  for await (const line of lines) {
    if (!line.includes(OUTCOME) && !line.includes(REFUSAL)) continue;
    const { data } = recordSchema.safeParse(jsonOf(line));
    if (!data || !isWanted(data, since)) continue;
    if (data.kind === 'outcome') tally.ended(data);
    else tally.refuse(data.ts);
  }
  return tally.stats();
}

function isWanted({ seq, ts }: { readonly seq: number; readonly ts: string }, since: StatsQuery['since']): boolean {
  if (since === undefined) return true;
  return typeof since === 'number' ? seq > since : Date.parse(ts) >= since.getTime();
}

/** What was counted so far. */
class Tally {
  readonly #counts = { commands: 0, failed: 0, timedOut: 0, oomKilled: 0, errors: 0, refused: 0 };
  readonly #warm: number[] = [];
  readonly #cold: number[] = [];
  /** The newest events. The figures are of all of them. */
  readonly #kpis = new Kpis();
  #from: string | null = null;
  #to: string | null = null;

  ended(outcome: Outcome): void {
    this.#seen(outcome.ts);
    this.#provisioned(outcome);
    // The end of a persistent sandbox is not the end of a command.
    if (outcome.operation === 'create') return;
    const counts = this.#counts;
    counts.commands += 1;
    if (outcome.errorCode !== null) counts.errors += 1;
    else if (outcome.exitCode !== 0) counts.failed += 1;
    if (outcome.timedOut) counts.timedOut += 1;
    if (outcome.oomKilled) counts.oomKilled += 1;
  }

  refuse(ts: string): void {
    this.#seen(ts);
    this.#counts.refused += 1;
  }

  stats(): Stats {
    const warm = figuresOf(this.#warm);
    const cold = figuresOf(this.#cold);
    const { medianMs, p95Ms } = figuresOf([...this.#warm, ...this.#cold]);
    return {
      from: this.#from,
      to: this.#to,
      ...this.#counts,
      warm,
      cold,
      sandbox_provision_latency_ms: p95Ms,
      sandbox_provision_median_ms: medianMs,
      kpi_events: this.#kpis.report().kpi_events,
    };
  }

  #provisioned({ ts, sandboxId, sandbox_provisioning_ms, warm }: Outcome): void {
    if (sandboxId === null || sandbox_provisioning_ms === null) return;
    (warm ? this.#warm : this.#cold).push(sandbox_provisioning_ms);
    this.#kpis.provisioned({ sandboxId, sandbox_provisioning_ms, at: ts, warm });
  }

  #seen(ts: string): void {
    this.#from ??= ts;
    this.#to = ts;
  }
}
