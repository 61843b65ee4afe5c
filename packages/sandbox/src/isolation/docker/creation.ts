// Makes containers so that none is ever left behind: not by a lost reply, not by a caller who leaves in the middle.

import { randomUUID } from 'node:crypto';
import { ExponentialBackoff, handleWhen, retry } from 'cockatiel';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { EngineError, isTransient } from './engine/error.ts';
import type { HijackedStream } from './engine/hijack.ts';
import type { Engine } from './engine/index.ts';
import type { StartedContainer } from './execution.ts';
import { engineFailure, reasonOf } from './failure.ts';
import { OomWatch } from './oom-watch.ts';
import { portFailure } from './ports.ts';

/** What happens to a container, for whoever keeps logs. */
export interface ContainerObserver {
  created(spec: SandboxSpec, containerId: string, durationMs: number): void;
  started(spec: SandboxSpec, containerId: string): void;
}

/** How containers are made. */
export interface CreationOptions {
  readonly engine: Engine;
  /** The owner whose containers are watched. */
  readonly owner: string;
  readonly clock: Clock;
  readonly observer: ContainerObserver;
  readonly createTimeoutMs: number;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Removes a container off the caller’s path and never forgets it. */
  readonly remove: (spec: SandboxSpec, containerId: string) => Promise<void>;
}

/** The streams and the end of a container that was not started yet. */
export interface Connected {
  readonly stream: HijackedStream;
  readonly exit: StartedContainer['exit'];
}

const CALL_MS = 10_000;
const START_MS = 30_000;
// Longer than any command may run: the command’s own deadline comes first.
const EXIT_MS = 25 * 3600 * 1000;
const LONGEST_BACKOFF_MS = 5000;
// When to look again for a container whose creation was not answered.
const LATE_MS = [500, 1500];

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
  readonly #options: CreationOptions;
  readonly #engine: Engine;

  constructor(options: CreationOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.oomWatch = new OomWatch(options.engine, `acode.owner=${options.owner}`);
  }

  /** Creates a container; the plan that comes back carries the nonce of the attempt that made it. */
  async create(spec: SandboxSpec, build: RequestBuilder, signal: AbortSignal): Promise<Created> {
    const { attempts, baseMs, factor } = this.#options.retry;
    const backoff = new ExponentialBackoff({ initialDelay: baseMs, exponent: factor, maxDelay: LONGEST_BACKOFF_MS });
    const policy = retry(handleWhen(isTransient), { maxAttempts: attempts, backoff });
    const before = this.#options.clock.monotonic();
    try {
      const created = await policy.execute(({ attempt }) => {
        // Each attempt has a nonce of its own, or cleaning up after one would take the next one with it.
        const own = attempt === 0 ? spec : withFreshNonce(spec);
        return this.#createUnlessCancelled(own, build(own), signal);
      }, signal);
      this.#options.observer.created(created.spec, created.id, this.#options.clock.monotonic() - before);
      return created;
    } catch (error) {
      throw creationFailure(spec, error, signal);
    }
  }

  /** Attaches to a container before it starts, so that neither its first byte nor its end can be missed. */
  async connect(id: string, signal: AbortSignal): Promise<Connected> {
    const { containers } = this.#engine;
    const attaching = containers.attach(id, { stdin: true, stdout: true, stderr: true, signal, deadlineMs: CALL_MS });
    try {
      const [stream, { exit }] = await Promise.all([
        attaching,
        containers.expectExit(id, 'next-exit', { signal, deadlineMs: EXIT_MS }),
        this.oomWatch.follow(id),
      ]);
      return { stream, exit };
    } catch (error) {
      // The attach may have worked: to a container that never starts it would stay open until the host closes.
      attaching.then(
        stream => stream.destroy(),
        () => undefined,
      );
      throw error;
    }
  }

  /** Starts a container that is connected. */
  async start(
    spec: SandboxSpec,
    id: string,
    { stream, exit }: Connected,
    signal: AbortSignal,
  ): Promise<StartedContainer> {
    try {
      await this.#engine.containers.start(id, { signal, deadlineMs: START_MS });
    } catch (error) {
      stream.destroy();
      throw error;
    }
    this.#options.observer.started(spec, id);
    return { id, engine: this.#engine, stream, exit, oomWatch: this.oomWatch, clock: this.#options.clock };
  }

  /** Removes a container of a spec. */
  remove(spec: SandboxSpec, id: string): Promise<void> {
    return this.#options.remove(spec, id);
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
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(new AcodeError('ACODE-SBX-014', {}, { cause: signal.reason })), {
        once: true,
      });
    });
    try {
      return { id: await Promise.race([creating, aborted]), spec };
    } catch (error) {
      if (signal.aborted) this.#options.keep(creating.then(id => this.#options.remove(spec, id)));
      throw error;
    }
  }

  async #createOnce(spec: SandboxSpec, body: Record<string, unknown>): Promise<string> {
    const deadlineMs = this.#options.createTimeoutMs;
    try {
      const signal = AbortSignal.timeout(deadlineMs + CALL_MS);
      const { id } = await this.#engine.containers.create(body, { name: spec.identity.name, signal, deadlineMs });
      return id;
    } catch (error) {
      // The reply may have been lost and not the request: what this attempt made is found by its nonce and removed, now
      // or, if the engine is still at it, a little later.
      if (mayHaveBeenMade(error)) {
        await this.#removeByNonce(spec);
        this.#options.keep(this.#removeLateByNonce(spec));
      }
      throw error;
    }
  }

  async #removeLateByNonce(spec: SandboxSpec): Promise<void> {
    for (const ms of LATE_MS) {
      await new Promise<void>(resolve => void this.#options.clock.after(ms, resolve));
      await this.#removeByNonce(spec);
    }
  }

  async #removeByNonce(spec: SandboxSpec): Promise<void> {
    // Its own signal: a caller who has given up must not leave a container behind.
    const signal = AbortSignal.timeout(CALL_MS);
    const label = `acode.nonce=${spec.identity.labels['acode.nonce'] ?? ''}`;
    try {
      const made = await this.#engine.containers.list({ labels: [label], all: true, signal });
      await Promise.all(made.map(({ id }) => this.#options.remove(spec, id)));
    } catch {
      // The engine does not answer: the container, if there is one, carries its owner and expiry for a later sweep.
    }
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
  const labels = { ...spec.identity.labels, 'acode.nonce': randomUUID() };
  return { ...spec, identity: { ...spec.identity, labels } };
}

function mayHaveBeenMade(error: unknown): boolean {
  return error instanceof EngineError && ['timeout', 'disconnected', 'aborted', 'protocol'].includes(error.kind);
}

function creationFailure(spec: SandboxSpec, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted || !(error instanceof EngineError)) return engineFailure(error, signal);
  const { name } = spec.identity;
  const reason = error.status === 409 ? 'a sandbox of the same session and task has that name' : reasonOf(error);
  const cause =
    error.status === 409
      ? new AcodeError('ACODE-CTN-005', { name }, { cause: error })
      : new AcodeError('ACODE-CTN-001', { name, reason }, { cause: error });
  return new AcodeError('ACODE-SBX-001', { name, reason }, { cause });
}
