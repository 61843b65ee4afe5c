// Telemetry: logs, metrics, key figures and events of each operation under one correlation id, nothing secret; and the life of containers
// in them.

import { randomUUID } from 'node:crypto';
import { AcodeError } from '../contract/errors.ts';
import type { Clock, LogFields, Logger, MetricLabels, Metrics } from '../contract/ports.ts';
import { redactFields } from '../contract/redact.ts';
import type { ProvisionFigures } from '../contract/audit.ts';
import type { KpiEvent, KpiReport } from '../contract/host.ts';
import type { AcodeEvent, AcodeEventType, AcodeEvents, EventBus, RemovalReason } from '../contract/events.ts';
import type { SandboxIdentity, SandboxSpec } from '../contract/spec.ts';

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

/** The logger and metrics of a host, and the operations reported to them. */
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

// A logger or metrics of the caller’s that fails must not keep a sandbox from being removed; and there is no other place to report it.
function harmless(tell: () => unknown): void {
  try {
    const reported = tell();
    if (reported instanceof Promise) reported.catch(() => undefined);
  } catch {
    // As if there were no logger.
  }
}

const MAX_EVENTS = 1000;

/** The phases of one host’s operations that have a promised duration. */
export class Kpis {
  readonly #events: KpiEvent[] = [];

  /** A sandbox is ready: created, started, verified. */
  provisioned(event: Omit<KpiEvent, 'phase'>): void {
    this.#events.push({ phase: 'sandbox_provision', ...event });
    if (this.#events.length > MAX_EVENTS) this.#events.shift();
  }

  /** The figures so far. */
  report(): KpiReport {
    const { medianMs, p95Ms } = figuresOf(this.#events.map(({ sandbox_provisioning_ms: ms }) => ms));
    return {
      sandbox_provision_latency_ms: p95Ms,
      sandbox_provision_median_ms: medianMs,
      kpi_events: [...this.#events],
    };
  }
}

/** Median and 95th percentile of some durations. */
export function figuresOf(durations: readonly number[]): ProvisionFigures {
  const sorted = [...durations].sort((one, other) => one - other);
  const at = (share: number): number | null => sorted[Math.ceil(sorted.length * share) - 1] ?? null;
  return { count: sorted.length, medianMs: at(0.5), p95Ms: at(0.95) };
}

type Listener = (event: AcodeEvent) => void;

/** The event bus of one host. */
export class Bus implements EventBus {
  readonly #listeners = new Map<AcodeEventType, Set<Listener>>();
  readonly #onListenerError: (error: unknown) => void;

  constructor(onListenerError: (error: unknown) => void) {
    this.#onListenerError = onListenerError;
  }

  on<Type extends AcodeEventType>(type: Type, listener: (event: AcodeEvent<Type>) => void): Disposable {
    const all = this.#listeners.get(type) ?? new Set<Listener>();
    this.#listeners.set(type, all);
    // The set is kept per type, so this listener only ever sees events of its own type.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const own = listener as Listener;
    all.add(own);
    return { [Symbol.dispose]: () => void all.delete(own) };
  }

  /** Tells everybody who listens to this type. */
  emit<Type extends AcodeEventType>(type: Type, correlationId: string, at: Date, fields: AcodeEvents[Type]): void {
    // Type and fields belong together by the signature; the compiler cannot see that through a spread.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const event = { type, correlationId, at: at.toISOString(), ...fields } as unknown as AcodeEvent;
    for (const listener of this.#listeners.get(type) ?? []) {
      try {
        listener(event);
      } catch (error) {
        this.#onListenerError(error);
      }
    }
  }
}

/** Something that is not on the engine any more; only a container has a sandbox. */
export interface Gone {
  readonly kind: 'container' | 'network' | 'volume';
  readonly id: string;
  readonly name: string;
  readonly sandboxId: string;
}

/** In the course of what it was removed. */
export interface AboutRemoval {
  readonly correlationId: string;
  readonly operation: string;
  readonly durationMs?: number;
}

/** Tells what happens to the containers of one host. */
export class ContainerReports {
  readonly #telemetry: Telemetry;
  readonly #bus: Bus;
  /** Whose each container being removed was, by container id. */
  readonly #leaving = new Map<string, SandboxIdentity>();
  /** The operation each pre-started sandbox was given to, by its own id. */
  readonly #given = new Map<string, string>();

  constructor(telemetry: Telemetry, bus: Bus) {
    this.#telemetry = telemetry;
    this.#bus = bus;
  }

  created({ identity }: SandboxSpec, containerId: string, durationMs: number): void {
    const { sandboxId, name, correlationId } = identity;
    this.#telemetry.observe(METRICS.create, durationMs);
    this.#log('info', 'container created', identity, { containerId, durationMs });
    this.#bus.emit('ContainerCreated', correlationId, this.#now(), { sandboxId, containerId, name, durationMs });
  }

  started({ identity }: SandboxSpec, containerId: string): void {
    const { sandboxId, name, correlationId } = identity;
    this.#log('info', 'container started', identity, { containerId });
    this.#bus.emit('ContainerStarted', correlationId, this.#now(), { sandboxId, containerId, name });
  }

  /** A pre-started sandbox was given to an operation: what becomes of it from now on is part of that. */
  given({ identity: { sandboxId } }: SandboxSpec, correlationId: string): void {
    this.#given.set(sandboxId, correlationId);
  }

  /** A container is about to be removed. */
  leaving({ identity }: SandboxSpec, containerId: string): void {
    const correlationId = this.#given.get(identity.sandboxId) ?? identity.correlationId;
    this.#given.delete(identity.sandboxId);
    this.#leaving.set(containerId, { ...identity, correlationId });
  }

  /** This session removed a container, because it was done with it. */
  removed(containerId: string, durationMs: number): void {
    const identity = this.#leaving.get(containerId);
    if (!identity) return;
    const { sandboxId, correlationId, name } = identity;
    this.#leaving.delete(containerId);
    const thing = { kind: 'container', id: containerId, name, sandboxId } as const;
    this.gone(thing, 'finished', { correlationId, operation: 'run', durationMs });
  }

  /** A resource of acode was removed from the engine: the one event for it, independent of who removed it and why. */
  gone(thing: Gone, reason: RemovalReason, about: AboutRemoval): void {
    const { kind, id, name, sandboxId } = thing;
    const { correlationId, operation, durationMs } = about;
    this.#telemetry.increment(METRICS.removals, { kind, reason });
    if (kind === 'container' && durationMs !== undefined) this.#telemetry.observe(METRICS.cleanup, durationMs);
    const level = reason === 'finished' ? 'debug' : 'info';
    const known = kind === 'container' ? { sandboxId, containerId: id } : { id };
    this.#telemetry.log(level, `${kind} removed`, { correlationId, operation, name, ...known, reason, durationMs });
    if (kind === 'network')
      this.#bus.emit('NetworkRemoved', correlationId, this.#now(), { networkId: id, name, reason });
    else if (kind === 'volume') this.#bus.emit('VolumeRemoved', correlationId, this.#now(), { name, reason });
    else
      this.#bus.emit('ContainerRemoved', correlationId, this.#now(), {
        sandboxId,
        containerId: id,
        reason,
        ...(durationMs === undefined ? {} : { durationMs }),
      });
  }

  /** This session removed a network, because it was done with it. */
  networkRemoved(id: string, name: string): void {
    const about = { correlationId: randomUUID(), operation: 'close' };
    this.gone({ kind: 'network', id, name, sandboxId: '' }, 'finished', about);
  }

  /** The engine’s event stream is lost: it was stopped, is being restarted, or crashed. */
  engineLost(socket: string, reason: string): void {
    const correlationId = randomUUID();
    this.#telemetry.log('warn', 'the engine is gone', { correlationId, operation: 'engine', socket, reason });
    this.#bus.emit('EngineLost', correlationId, this.#now(), { socket, reason });
  }

  /** It answers again. */
  engineFound(socket: string, lostMs: number): void {
    const correlationId = randomUUID();
    this.#telemetry.log('info', 'the engine answers again', { correlationId, operation: 'engine', socket, lostMs });
    this.#bus.emit('EngineFound', correlationId, this.#now(), { socket, lostMs });
  }

  notRemoved(containerId: string, error: AcodeError): void {
    this.#telemetry.increment(METRICS.cleanupFailures);
    const { correlationId, sandboxId, name } = this.#leaving.get(containerId) ?? {};
    const known = { correlationId, operation: 'run', sandboxId, name };
    const fields = { ...known, containerId, errorCode: error.code, reason: error.message };
    this.#telemetry.log('warn', 'container could not be removed', fields);
  }

  #log(
    level: 'debug' | 'info',
    message: string,
    { sandboxId, name, correlationId }: SandboxIdentity,
    more: LogFields,
  ): void {
    this.#telemetry.log(level, message, { correlationId, operation: 'run', sandboxId, name, ...more });
  }

  #now(): Date {
    return new Date(this.#telemetry.clock.now());
  }
}
