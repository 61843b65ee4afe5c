// Figures of `acode stats` as a person reads them.

import { describe, expect, it } from 'vitest';
import type { Stats } from '@acode/sandbox';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { Recorder } from '../test-process.ts';
import { renderStats } from './stats.ts';

const look = lookOf(new Output(new Recorder()), { env: {}, now: () => 0 }, false);
const NONE = { count: 0, medianMs: null, p95Ms: null };
const stats: Stats = {
  from: '2026-01-02T03:04:05.000Z',
  to: '2026-01-03T13:14:15.000Z',
  commands: 12,
  failed: 3,
  timedOut: 0,
  oomKilled: 1,
  errors: 0,
  refused: 2,
  warm: { count: 10, medianMs: 7.25, p95Ms: 18.6 },
  cold: { count: 1, medianMs: 412.5, p95Ms: 1240 },
  sandbox_provision_latency_ms: 412.5,
  sandbox_provision_median_ms: 7.25,
  kpi_events: [],
};

describe('stats', () => {
  it('leave out what did not happen', () => {
    expect(renderStats(stats, look).split('\n')).toEqual([
      '  Commands       12',
      '  Failed         3',
      '  Out of memory  1',
      '  Refused        2',
      '  Ready, warm    7.3 ms (95 % within 19 ms), 10 sandboxes',
      '  Ready, cold    413 ms (95 % within 1.2 s), 1 sandbox',
      '  Period         2026-01-02 03:04 UTC to 2026-01-03 13:14 UTC',
      '',
    ]);
  });

  it('of nothing are one sentence', () => {
    const nothing = { ...stats, from: null, to: null, warm: NONE, cold: NONE };
    expect(renderStats(nothing, look)).toBe('No command is recorded for that time.\n');
  });
});
