// One operation as logs and metrics see it: one correlation id on every line, one canonical event at the end, nothing secret.

import { randomUUID } from 'node:crypto';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock, LogFields, Logger, MetricLabels, Metrics } from '../../contract/ports.ts';
import { Kpis } from './kpi.ts';
import { redactFields } from '../../contract/redact.ts';

/** What is measured, by name. */
export const METRICS = {
  create: 'acode_container_create_ms',
  provision: 'acode_sandbox_provision_ms',
  execute: 'acode_container_exec_ms',
  cleanup: 'acode_container_cleanup_ms',
  active: 'acode_containers_active',
  waiting: 'acode_containers_waiting',
  unused: 'acode_waiting_unused_total',
  warm: 'acode_warm_total',
  orphaned: 'acode_containers_orphaned',
  operations: 'acode_container_ops_total',
  limits: 'acode_limit_exceeded_total',
  oom: 'acode_oom_total',
  networkDenied: 'acode_network_denied_total',
  cleanupFailures: 'acode_cleanup_failures_total',
  removals: 'acode_removals_total',
  pull: 'acode_image_pull_ms',
} as const;

/** The logger and metrics of a host, and the operations they are told about. */
export class Telemetry {
  readonly clock: Clock;
  readonly kpis = new Kpis();
  readonly #logger: Logger | undefined;
  readonly #metrics: Metrics | undefined;
  readonly #session: string;

  constructor(ports: { clock: Clock; logger?: Logger | undefined; metrics?: Metrics | undefined; session: string }) {
    this.clock = ports.clock;
    this.#logger = ports.logger;
    this.#metrics = ports.metrics;
    this.#session = ports.session;
  }

  /** Begins an operation. */
  begin(name: string, fields: LogFields = {}): Operation {
    return new Operation(this, name, fields);
  }

  /** Writes one line. */
  log(level: keyof Logger, message: string, fields: LogFields): void {
    harmless(() => this.#logger?.[level](redactFields({ session: this.#session, ...fields }), message));
  }

  increment(name: string, labels?: MetricLabels): void {
    harmless(() => this.#metrics?.increment(name, labels));
  }

  observe(name: string, value: number, labels?: MetricLabels): void {
    harmless(() => this.#metrics?.observe(name, value, labels));
  }

  gauge(name: string, value: number): void {
    harmless(() => this.#metrics?.gauge(name, value));
  }
}

/** One operation from its beginning to its end. */
export class Operation {
  readonly correlationId = randomUUID();
  readonly #telemetry: Telemetry;
  readonly name: string;
  readonly #fields: Record<string, unknown>;
  readonly #began: number;

  constructor(telemetry: Telemetry, name: string, fields: LogFields) {
    this.#telemetry = telemetry;
    this.name = name;
    this.#fields = { ...fields };
    this.#began = telemetry.clock.monotonic();
  }

  /** Adds to what the canonical event will say. */
  note(fields: LogFields): void {
    Object.assign(this.#fields, fields);
  }

  /** Writes a line about one step. */
  step(level: keyof Logger, message: string, fields: LogFields = {}): void {
    this.#telemetry.log(level, message, { correlationId: this.correlationId, operation: this.name, ...fields });
  }

  /** The canonical event of an operation that went well. */
  succeed(fields: LogFields = {}): void {
    this.#end('info', 'ok', fields);
  }

  /** The canonical event of one that did not; the error gets the correlation id. */
  fail(error: unknown): void {
    const known = error instanceof AcodeError ? error : null;
    if (known) known.correlationId = this.correlationId;
    const cancelled = known?.is('ACODE-SBX-014') === true;
    this.#end(cancelled ? 'info' : 'error', cancelled ? 'cancelled' : 'error', {
      errorCode: known?.code ?? 'unknown',
      errorMessage: error instanceof Error ? error.message : String(error),
    });
  }

  #end(level: keyof Logger, outcome: string, fields: LogFields): void {
    const durationMs = Math.round((this.#telemetry.clock.monotonic() - this.#began) * 10) / 10;
    this.#telemetry.increment(METRICS.operations, { op: this.name, outcome });
    this.step(level, `${this.name} ${outcome}`, { ...this.#fields, ...fields, outcome, durationMs });
  }
}

// A logger or metrics of the caller’s that fails must not keep a sandbox from being removed; and there is nobody to tell.
function harmless(tell: () => unknown): void {
  try {
    const told = tell();
    if (told instanceof Promise) told.catch(() => undefined);
  } catch {
    // As if nobody listened.
  }
}
