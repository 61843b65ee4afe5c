// The composition root: puts one host together from its parts, each with what it needs and nothing else.

import type { AcodeOptions } from './acode.ts';
import type { Directories } from './config/directories.ts';
import type { LoadedConfig } from './config/load.ts';
import { AcodeError } from './contract/errors.ts';
import type { UserId } from './contract/policy.ts';
import type { Clock } from './contract/ports.ts';
import type { SandboxSpec } from './contract/spec.ts';
import type { Host } from './host.ts';
import type { Backend } from './isolation/backend.ts';
import { DockerBackend } from './isolation/docker/backend.ts';
import { connectEngine } from './isolation/docker/connect.ts';
import { LazyBackend } from './isolation/select.ts';
import { hostIdentity } from './lifecycle/host.ts';
import { Removals } from './lifecycle/removal.ts';
import { Session } from './lifecycle/session.ts';
import { Slots } from './lifecycle/slots.ts';
import { SavedLogs } from './output/saved.ts';
import { Bus } from './telemetry/bus.ts';
import { METRICS, Telemetry } from './telemetry/operation.ts';
import type { Operation } from './telemetry/operation.ts';

/** A host with the way to close it. */
export interface OpenHost extends Host {
  close(): Promise<void>;
}

/** What a host is put together from. */
export interface Composition {
  readonly options: AcodeOptions;
  readonly config: LoadedConfig;
  readonly directories: Directories;
  readonly uid: number;
  readonly clock: Clock;
  readonly cleanupMs: number;
}

const MOST_CONCURRENT = 16;
const USUAL_CONCURRENT = 4;
// The first user of most systems, for a caller who is root by their own configuration: sandboxes are never root.
const NOT_ROOT: UserId = { uid: 1000, gid: 1000 };

/** Puts a host together. Contacts nothing. */
export async function composeHost(from: Composition): Promise<OpenHost> {
  const { options, config, directories, uid, clock } = from;
  const settings = config.config.sandbox;
  const identity = await hostIdentity(directories.runtime);
  const session = new Session({
    id: options.sessionId,
    host: identity,
    uid,
    namePrefix: settings?.containers?.name_prefix ?? 'acode',
    extraLabels: settings?.containers?.labels ?? {},
    now: () => clock.now(),
  });
  const telemetry = new Telemetry({ clock, logger: options.logger, metrics: options.metrics, session: session.id });
  const bus = new Bus(error => telemetry.log('error', 'an event listener failed', { reason: String(error) }));
  const stop = new AbortController();
  const operations = new Map<string, Operation>();
  const background = new Set<Promise<unknown>>();
  const owners = new Map<string, SandboxSpec>();
  const lazy = new LazyBackend(connect, stop.signal);
  const removals = new Removals({
    remove: async (id, signal) => (await lazy.get()).remove(id, signal),
    removed: reportRemoved,
    failed: (id, error) => {
      telemetry.increment(METRICS.cleanupFailures);
      telemetry.log('warn', 'container could not be removed', {
        containerId: id,
        errorCode: error.code,
        reason: error.message,
      });
    },
    attempts: settings?.retry?.attempts ?? 3,
    deadlineMs: from.cleanupMs,
    monotonic: () => clock.monotonic(),
  });
  const host: OpenHost = {
    config,
    directories,
    uid,
    identity,
    caller: uid === 0 ? NOT_ROOT : { uid, gid: process.getgid?.() ?? uid },
    workspace: options.workspace ?? process.cwd(),
    workspaceNamed: options.workspace !== undefined,
    telemetry,
    bus,
    session,
    slots: new Slots(concurrency(options, settings?.containers?.max_concurrent), clock),
    removals,
    savedLogs:
      settings?.output?.save === false
        ? null
        : new SavedLogs(directories.state, uid, settings?.output?.retention_days ?? 7),
    operations,
    keep,
    closing: stop.signal,
    backend: () => lazy.get(),
    capability: () => lazy.capability(),
    close,
  };
  return host;

  async function connect(signal: AbortSignal): Promise<Backend> {
    const found = await connectEngine(options.engine?.socket ?? settings?.docker?.host, signal);
    telemetry.log('debug', 'engine found', {
      socket: found.engine.connection.socketPath,
      source: found.source,
      apiVersion: found.engine.connection.apiVersion,
    });
    return new DockerBackend({
      engine: found.engine,
      source: found.source,
      owner: session.owner,
      clock,
      observer: { created: reportCreated, started: reportStarted },
      createTimeoutMs: (settings?.containers?.create_timeout_seconds ?? 30) * 1000,
      retry: {
        attempts: settings?.retry?.attempts ?? 3,
        baseMs: settings?.retry?.base_ms ?? 100,
        factor: settings?.retry?.factor ?? 2,
      },
      keep,
      remove: (spec, id) => {
        owners.set(id, spec);
        return removals.begin(id);
      },
    });
  }

  function keep(work: Promise<unknown>): void {
    const kept: Promise<unknown> = work.catch(() => undefined).finally(() => background.delete(kept));
    background.add(kept);
  }

  async function close(): Promise<void> {
    // Cancelled commands give their sandboxes up; the backend stays open until the last one is gone.
    stop.abort(new AcodeError('ACODE-SBX-014', {}));
    while (background.size > 0) await Promise.allSettled(background);
    await removals.settled();
    await lazy.close();
  }

  function reportCreated(spec: SandboxSpec, containerId: string, durationMs: number): void {
    const { sandboxId, name } = spec.identity;
    telemetry.observe(METRICS.create, durationMs);
    operations.get(sandboxId)?.step('info', 'container created', { sandboxId, containerId, name, durationMs });
    bus.emit('ContainerCreated', correlation(sandboxId), new Date(clock.now()), {
      sandboxId,
      containerId,
      name,
      durationMs,
    });
  }

  function reportStarted(spec: SandboxSpec, containerId: string): void {
    const { sandboxId, name } = spec.identity;
    operations.get(sandboxId)?.step('info', 'container started', { sandboxId, containerId, name });
    bus.emit('ContainerStarted', correlation(sandboxId), new Date(clock.now()), { sandboxId, containerId, name });
  }

  function reportRemoved(containerId: string, durationMs: number): void {
    const sandboxId = owners.get(containerId)?.identity.sandboxId ?? '';
    telemetry.observe(METRICS.cleanup, durationMs);
    operations.get(sandboxId)?.step('debug', 'container removed', { sandboxId, containerId, durationMs });
    bus.emit('ContainerRemoved', correlation(sandboxId), new Date(clock.now()), { sandboxId, containerId, durationMs });
    owners.delete(containerId);
  }

  function correlation(sandboxId: string): string {
    return operations.get(sandboxId)?.correlationId ?? '';
  }
}

function concurrency(options: AcodeOptions, configured: number | undefined): number {
  const asked = options.maxConcurrent ?? configured ?? USUAL_CONCURRENT;
  if (Number.isInteger(asked) && asked >= 1 && asked <= MOST_CONCURRENT) return asked;
  throw new AcodeError('ACODE-SBX-017', {
    field: 'maxConcurrent',
    reason: `must be a whole number from 1 to ${MOST_CONCURRENT}`,
  });
}
