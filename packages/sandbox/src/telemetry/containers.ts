// The life of containers in logs, metrics and events, each step under the operation it belongs to.

import type { AcodeError } from '../contract/errors.ts';
import type { LogFields } from '../contract/ports.ts';
import type { SandboxIdentity, SandboxSpec } from '../contract/spec.ts';
import type { Bus } from './bus.ts';
import { METRICS } from './operation.ts';
import type { Telemetry } from './operation.ts';

/** Tells what happens to the containers of one host. */
export class ContainerReports {
  readonly #telemetry: Telemetry;
  readonly #bus: Bus;
  /** Whose each container being removed was, by container id. */
  readonly #leaving = new Map<string, SandboxIdentity>();

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

  /** A container is about to be removed. */
  leaving({ identity }: SandboxSpec, containerId: string): void {
    this.#leaving.set(containerId, identity);
  }

  removed(containerId: string, durationMs: number): void {
    const identity = this.#leaving.get(containerId);
    this.#telemetry.observe(METRICS.cleanup, durationMs);
    if (!identity) return;
    const { sandboxId, correlationId } = identity;
    this.#log('debug', 'container removed', identity, { containerId, durationMs });
    this.#bus.emit('ContainerRemoved', correlationId, this.#now(), { sandboxId, containerId, durationMs });
    this.#leaving.delete(containerId);
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
