// Key figures of a host.

import { describe, expect, it } from 'vitest';
import { Kpis } from './telemetry.ts';

describe('Kpis', () => {
  const event = (sandboxId: string, ms: number) => ({
    sandboxId,
    sandbox_provisioning_ms: ms,
    at: '2026-01-02T03:04:05.000Z',
    warm: false,
  });

  it('has no figure before the first sandbox', () => {
    expect(new Kpis().report()).toEqual({
      sandbox_provision_latency_ms: null,
      sandbox_provision_median_ms: null,
      kpi_events: [],
    });
  });

  it('reports the 95th percentile and the median, with an event for each sandbox', () => {
    const kpis = new Kpis();
    for (let ms = 100; ms >= 1; ms -= 1) kpis.provisioned(event(`id-${ms}`, ms));
    const report = kpis.report();
    expect(report).toMatchObject({ sandbox_provision_latency_ms: 95, sandbox_provision_median_ms: 50 });
    expect(report.kpi_events[0]).toEqual({
      phase: 'sandbox_provision',
      sandboxId: 'id-100',
      sandbox_provisioning_ms: 100,
      at: '2026-01-02T03:04:05.000Z',
      warm: false,
    });
  });

  it('keeps the last thousand', () => {
    const kpis = new Kpis();
    for (let ms = 1; ms <= 1500; ms += 1) kpis.provisioned(event('id', ms));
    expect(kpis.report().kpi_events).toHaveLength(1000);
    expect(kpis.report().kpi_events[0]?.sandbox_provisioning_ms).toBe(501);
  });
});
