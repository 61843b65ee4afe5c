// Key figures, read from what telemetry observed anyway: there is no second store that could say something else.

import type { KpiEvent, KpiReport } from '../../contract/host.ts';

const MAX_EVENTS = 1000;

/** The phases of one host’s operations that somebody is promised a figure for. */
export class Kpis {
  readonly #events: KpiEvent[] = [];

  /** A sandbox is ready: created, started, verified. */
  provisioned(sandboxId: string, ms: number, at: Date): void {
    this.#events.push({ phase: 'sandbox_provision', sandboxId, sandbox_provisioning_ms: ms, at: at.toISOString() });
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
  }

  /** The figures so far. */
  report(): KpiReport {
    const sorted = this.#events.map(({ sandbox_provisioning_ms: ms }) => ms).sort((one, other) => one - other);
    const at = (share: number): number | null => sorted[Math.ceil(sorted.length * share) - 1] ?? null;
    return {
      sandbox_provision_latency_ms: at(0.95),
      sandbox_provision_median_ms: at(0.5),
      kpi_events: [...this.#events],
    };
  }
}
