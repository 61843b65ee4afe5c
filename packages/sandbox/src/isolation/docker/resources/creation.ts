// Creation of containers: none is left behind, not by a lost reply and not by a caller who leaves in the middle.

import { randomUUID } from 'node:crypto';
import { ExponentialBackoff, handleWhen, retry } from 'cockatiel';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { Remove, Removals } from '../../../lifecycle/removal.ts';
import type { PendingExit } from '../engine/containers.ts';
import { NONCE, OWNER } from '../../../lifecycle/labels.ts';
import { EngineError, isTransient } from '../engine/error.ts';
import type { Engine } from '../engine/index.ts';
import type { StartedContainer } from '../execution/execution.ts';
import { engineFailure, reasonOf } from '../failure.ts';
import { type Left, OwnedResources, type OwnerOptions, removerOf } from './owned.ts';
import { MountConflicts } from './mount-conflicts.ts';
import { OomWatch } from '../execution/oom-watch.ts';
import { portFailure } from './ports.ts';
import { unlessCancelled } from '../../waiting.ts';

/** What happens to a container, for whoever keeps logs. */
export interface ContainerObserver {
  created(spec: SandboxSpec, containerId: string, durationMs: number): void;
  started(spec: SandboxSpec, containerId: string): void;
  /** A container is about to be removed. */
  leaving(spec: SandboxSpec, containerId: string): void;
  networkRemoved(id: string, name: string): void;
}

/** How containers are made. */
export interface CreationOptions extends OwnerOptions {
  readonly engine: Engine;
  /** The owner whose containers are watched. */
  readonly owner: string;
  readonly observer: ContainerObserver;
  readonly createTimeoutMs: number;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
  /** Whether sandboxes are kept waiting, so that somebody has to notice who else comes meanwhile. */
  readonly keepsWaiting?: boolean;
  /** Removes containers off the caller’s path, and repeats what failed. */
  readonly removals: Pick<Removals, 'begin'>;
}

const CALL_MS = 10_000;
const START_MS = 30_000;
// Longer than any command may run: the command’s own deadline comes first.
const EXIT_MS = 25 * 3600 * 1000;
const MAX_BACKOFF_MS = 5000;

/** A container that was created, and the plan it was created by. */
export interface Created {
  readonly id: string;
  readonly spec: SandboxSpec;
}

/** Builds the body of a create request. */
export type RequestBuilder = (spec: SandboxSpec) => Record<string, unknown>;

/** Creates and starts containers. */
export class Creation {
  readonly oomWatch: OomWatch;
  readonly mountConflicts: MountConflicts;
  /** Removes one container, with its anonymous volumes. */
  readonly remover: Remove;
  readonly #options: CreationOptions;
  readonly #engine: Engine;
  readonly #owned: OwnedResources;
  #isUsed = false;

  constructor(options: CreationOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#owned = new OwnedResources(options, async terms =>
      (await this.#engine.containers.list(terms)).map(({ id }) => id),
    );
    this.mountConflicts = new MountConflicts(options.engine, options.owner);
    // Reported only then: a container that could not be removed can still write to what it has mounted.
    this.remover = removerOf(options.engine.containers, options, id => this.mountConflicts.left(id));
    this.oomWatch = new OomWatch(options.engine, `${OWNER}=${options.owner}`);
  }

  /** The creates of which the engine, gone in the middle, has not said whether they made a container. */
  get unanswered(): readonly Left[] {
    return this.#owned.unanswered;
  }

  /** Creates a container; the plan that comes back carries the nonce of the attempt that made it. */
  async create(spec: SandboxSpec, build: RequestBuilder, signal: AbortSignal): Promise<Created> {
    const before = this.#options.clock.monotonic();
    const created = await this.#create(spec, build, signal);
    this.#options.observer.created(created.spec, created.id, this.#options.clock.monotonic() - before);
    return created;
  }

  /** Creates a container that is never started, lets it be looked at, and has it removed: no sandbox, and so no event. */
  async lookInto<Value>(
    spec: SandboxSpec,
    build: RequestBuilder,
    look: (id: string) => Promise<Value>,
    signal: AbortSignal,
  ): Promise<Value> {
    const { id } = await this.#create(spec, build, signal);
    try {
      return await look(id);
    } finally {
      this.#options.keep(this.#options.removals.begin(id, this.remover));
    }
  }

  async #create(spec: SandboxSpec, build: RequestBuilder, signal: AbortSignal): Promise<Created> {
    const { attempts, baseMs, factor } = this.#options.retry;
    this.#options.keep(this.#owned.again());
    const backoff = new ExponentialBackoff({ initialDelay: baseMs, exponent: factor, maxDelay: MAX_BACKOFF_MS });
    const before = this.#options.clock.monotonic();
    // What took all the time there is for it is not tried again: an engine that hangs would hang as often.
    const inTime = (): boolean => this.#options.clock.monotonic() - before < this.#options.createTimeoutMs;
    const policy = retry(
      handleWhen(error => isTransient(error) && inTime()),
      { maxAttempts: attempts, backoff },
    );
    try {
      return await policy.execute(({ attempt }) => {
        // Each attempt has a nonce of its own, or cleaning up after one would take the next one with it.
        const own = attempt === 0 ? spec : withFreshNonce(spec);
        return this.#createUnlessCancelled(own, build(own), signal);
      }, signal);
    } catch (error) {
      throw creationFailure(spec, error, signal);
    }
  }

  /** Begins to watch a container before it starts, so that its end cannot be missed. */
  async watch(id: string, signal: AbortSignal): Promise<PendingExit> {
    // For a single sandbox the engine is asked once who else is there; where there are more, it is to tell.
    const listens = this.#options.keepsWaiting === true || this.#isUsed;
    this.#isUsed = true;
    const [pending] = await Promise.all([
      this.#engine.containers.expectExit(id, 'next-exit', { signal, deadlineMs: EXIT_MS }),
      this.oomWatch.follow(id),
      listens ? this.mountConflicts.listen() : null,
    ]);
    return pending;
  }

  /**
   * Starts a container that is watched, with its streams attached before its first byte. The attach is the last call before
   * the start: engines never let go of the connection of one to a container that is removed without having been started.
   */
  async start(spec: SandboxSpec, id: string, { exit }: PendingExit, signal: AbortSignal): Promise<StartedContainer> {
    const { containers } = this.#engine;
    const streams = { stdin: true, stdout: true, stderr: true };
    const stream = await containers.attach(id, { ...streams, signal, deadlineMs: CALL_MS });
    this.mountConflicts.entered(id, spec);
    try {
      await containers.start(id, { signal, deadlineMs: START_MS });
    } catch (error) {
      stream.destroy();
      throw error;
    }
    this.#options.observer.started(spec, id);
    const { oomWatch, mountConflicts } = this;
    return { id, engine: this.#engine, stream, exit, oomWatch, mountConflicts, clock: this.#options.clock };
  }

  /** Removes a container of a spec, and reports its removal. */
  async remove(spec: SandboxSpec, id: string): Promise<void> {
    this.#options.observer.leaving(spec, id);
    await this.#options.removals.begin(id, this.remover);
  }

  // A create that is under way cannot be taken back: cutting the connection would leave a container that appears a moment
  // later. So a cancelled caller leaves at once, and what comes of the create is removed when it is there.
  async #createUnlessCancelled(
    spec: SandboxSpec,
    body: Record<string, unknown>,
    signal: AbortSignal,
  ): Promise<Created> {
    signal.throwIfAborted();
    const creating = this.#createOnce(spec, body);
    try {
      return { id: await unlessCancelled(creating, signal), spec };
    } catch (error) {
      if (signal.aborted) this.#options.keep(creating.then(id => this.remove(spec, id)));
      throw error;
    }
  }

  async #createOnce(spec: SandboxSpec, body: Record<string, unknown>): Promise<string> {
    const deadlineMs = this.#options.createTimeoutMs;
    const terms = { name: spec.identity.name, signal: AbortSignal.timeout(deadlineMs + CALL_MS), deadlineMs };
    const { id } = await this.#owned.create({
      nonce: spec.identity.labels[NONCE] ?? '',
      make: () => this.#engine.containers.create(body, terms),
      remove: made => this.remove(spec, made),
    });
    return id;
  }
}

/** Why a container did not start, as an error of the contract. */
export function startFailure(spec: SandboxSpec, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted || !(error instanceof EngineError)) return engineFailure(error, signal);
  const clash = portFailure(spec, error);
  if (clash) return clash;
  const { name } = spec.identity;
  const reason = reasonOf(error);
  const cause = new AcodeError('ACODE-CTN-002', { name, reason }, { cause: error });
  return new AcodeError('ACODE-SBX-006', { name, reason }, { cause });
}

function withFreshNonce(spec: SandboxSpec): SandboxSpec {
  const labels = { ...spec.identity.labels, [NONCE]: randomUUID() };
  return { ...spec, identity: { ...spec.identity, labels } };
}

function creationFailure(spec: SandboxSpec, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted || !(error instanceof EngineError)) return engineFailure(error, signal);
  const { name } = spec.identity;
  if (error.status === 409) {
    const reason = 'a sandbox of the same session and task has that name';
    const remedy = 'Let that run end, or give this one another --task or --session (taskId, sessionId).';
    const cause = new AcodeError('ACODE-CTN-005', { name }, { cause: error });
    return new AcodeError('ACODE-SBX-001', { name, reason, remedy }, { cause });
  }
  const reason = reasonOf(error);
  const cause = new AcodeError('ACODE-CTN-001', { name, reason }, { cause: error });
  return new AcodeError('ACODE-SBX-001', { name, reason }, { cause });
}
