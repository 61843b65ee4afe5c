// The life of containers in logs, metrics and events, each step under the operation it belongs to.

import { randomUUID } from 'node:crypto';
import type { AcodeError } from '../../contract/errors.ts';
import type { RemovalReason } from '../../contract/events.ts';
import type { LogFields } from '../../contract/ports.ts';
import type { SandboxIdentity, SandboxSpec } from '../../contract/spec.ts';
import { METRICS } from './operation.ts';
import type { Bus, Telemetry } from './operation.ts';

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
