// Figures from the lines of an audit log.

import { describe, expect, it } from 'vitest';
import { recordedStats } from './stats.ts';

const EMPTY = { count: 0, medianMs: null, p95Ms: null };

async function* log(...records: readonly object[]): AsyncGenerator<string> {
  let seq = 0;
  for (const record of records)
    yield `${JSON.stringify({ seq: (seq += 1), ts: `2026-01-02T03:04:0${seq}Z`, ...record })}\n`;
}

describe('stats', () => {
  it('of an empty log are empty', async () => {
    const stats = await recordedStats(log());
    expect(stats).toMatchObject({ from: null, to: null, commands: 0, refused: 0, warm: EMPTY, cold: EMPTY });
    expect(stats.kpi_events).toEqual([]);
  });

  const RECORDS = [
    { kind: 'intent', operation: 'run' },
    { kind: 'outcome', operation: 'run', exitCode: 0, sandboxId: 'a', sandbox_provisioning_ms: 300, warm: false },
    { kind: 'outcome', operation: 'run', exitCode: 2, sandboxId: 'b', sandbox_provisioning_ms: 7.5, warm: true },
    { kind: 'outcome', operation: 'exec', exitCode: null, timedOut: true, oomKilled: true },
    { kind: 'outcome', operation: 'run', exitCode: null, errorCode: 'ACODE-SBX-018' },
    { kind: 'refusal', operation: 'deny', errorCode: 'ACODE-SBX-005' },
    { kind: 'outcome', operation: 'create', exitCode: null, sandboxId: 'c', sandbox_provisioning_ms: 400, warm: false },
  ] as const;

  it('count commands by how they ended, and keep warm and cold sandboxes apart', async () => {
    expect(await recordedStats(log(...RECORDS))).toEqual({
      from: '2026-01-02T03:04:02Z',
      to: '2026-01-02T03:04:07Z',
      commands: 4,
      failed: 2,
      timedOut: 1,
      oomKilled: 1,
      errors: 1,
      refused: 1,
      warm: { count: 1, medianMs: 7.5, p95Ms: 7.5 },
      cold: { count: 2, medianMs: 300, p95Ms: 400 },
      sandbox_provision_latency_ms: 400,
      sandbox_provision_median_ms: 300,
      kpi_events: [
        {
          phase: 'sandbox_provision',
          sandboxId: 'a',
          sandbox_provisioning_ms: 300,
          at: '2026-01-02T03:04:02Z',
          warm: false,
        },
        {
          phase: 'sandbox_provision',
          sandboxId: 'b',
          sandbox_provisioning_ms: 7.5,
          at: '2026-01-02T03:04:03Z',
          warm: true,
        },
        {
          phase: 'sandbox_provision',
          sandboxId: 'c',
          sandbox_provisioning_ms: 400,
          at: '2026-01-02T03:04:07Z',
          warm: false,
        },
      ],
    });
  });

  it('begin at a moment or after a record', async () => {
    const since = new Date('2026-01-02T03:04:05Z');
    expect(await recordedStats(log(...RECORDS), { since })).toMatchObject({ commands: 1, errors: 1, refused: 1 });
    expect(await recordedStats(log(...RECORDS), { since: 6 })).toMatchObject({
      commands: 0,
      refused: 0,
      cold: { count: 1 },
    });
  });

  it('skip lines that are not records, and records of older versions', async () => {
    async function* lines(): AsyncGenerator<string> {
      yield '{"kind":"outcome" broken\n';
      yield '{"kind":"outcome","seq":1,"ts":"2026-01-02T03:04:05Z","operation":"run","exitCode":0}\n';
    }
    expect(await recordedStats(lines())).toMatchObject({ commands: 1, failed: 0, warm: EMPTY, cold: EMPTY });
  });
});
