// Creation of containers: none is left behind, not by a lost reply and not by a caller who leaves in the middle.

import { randomUUID } from 'node:crypto';
import { ExponentialBackoff, handleWhen, retry } from 'cockatiel';
import { AcodeError } from '../../../contract/errors.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { shortageIn } from '../../../contract/system-error.ts';
import { MANAGED, NONCE, OWNER } from '../../../lifecycle/labels.ts';
import type { Removals, Remove } from '../../../lifecycle/removal.ts';
import { type Reach, reachOf } from '../../kernel.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { ContainerDetails, PendingExit } from '../engine/containers.ts';
import type { Engine, EngineEvent, EventFilters } from '../engine/index.ts';
import { EngineError, isTransient } from '../engine/protocol.ts';
import { type EngineObserver, OomWatch, type StartedContainer } from '../execution/execution.ts';
import { engineFailure, reasonOf } from '../failure.ts';
import { portKey } from '../request.ts';
import { type Left, OwnedResources, type OwnerOptions, removerOf } from './owned.ts';

/** What happens to a container, for whoever keeps logs. */
export interface ContainerObserver extends EngineObserver {
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
    this.oomWatch = new OomWatch(options.engine, `${OWNER}=${options.owner}`, options);
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
    return { id, engine: this.#engine, stream, exit, oomWatch: this.oomWatch, clock: this.#options.clock };
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
  return new AcodeError('ACODE-SBX-006', { name, reason, ...shortageIn(reason) }, { cause });
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
  return new AcodeError('ACODE-SBX-001', { name, reason, ...shortageIn(reason) }, { cause });
}

// Published ports: which ones the engine really took, and what it says when one was not to be had.

const LOOPBACK = '127.0.0.1';
const CLASH =
  /port is already allocated|address already in use|ports are not available|cannot expose privileged port|bind: permission denied/i;

/**
 * The ports of a container that runs, in the order they were asked for. One that came out anywhere but on the loopback is
 * an offer to the whole network, and refused.
 */
export function publishedPorts(spec: SandboxSpec, details: ContainerDetails): PublishedPort[] {
  const all = new Map(Object.entries(details.NetworkSettings.Ports ?? {}));
  const bindings = [...all.values()].flatMap(one => one ?? []);
  const elsewhere = bindings.find(({ HostIp }) => HostIp !== LOOPBACK);
  if (elsewhere)
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'SpecMismatch',
      detail: `port ${elsewhere.HostPort} is published on ${elsewhere.HostIp || 'every address'} instead of ${LOOPBACK}`,
    });
  return spec.ports.flatMap(port => {
    const [binding] = all.get(portKey(port)) ?? [];
    return binding
      ? [{ container: port.container, host: Number(binding.HostPort), protocol: port.protocol ?? ('tcp' as const) }]
      : [];
  });
}

/** The error for a container that did not start because of a port; null where it was something else. */
export function portFailure({ ports }: SandboxSpec, error: unknown): AcodeError | null {
  if (ports.length === 0 || !(error instanceof EngineError)) return null;
  const message = reasonOf(error);
  if (!CLASH.test(message)) return null;
  const wanted = ports.flatMap(({ host }) => (host === undefined ? [] : [host]));
  const port = wanted.find(host => new RegExp(`:${host}\\b`).test(message)) ?? wanted[0] ?? 0;
  const reason = /permission|privileged/i.test(message)
    ? 'the engine may not use so low a port'
    : 'something else on this host has it';
  return new AcodeError('ACODE-SBX-021', { port, reason }, { cause: error });
}

// Mount conflicts: which other sandboxes on the engine could exchange what one of ours has mounted. acode notices them as they
// come, so that it need not ask the engine at every command.

/** A sandbox that runs, or waits. */
export type Neighbour = Reach & { readonly id: string; readonly labels?: Readonly<Record<string, string>> };

/** The sandboxes around those of one session. */
export class MountConflicts {
  readonly #engine: Engine;
  readonly #owner: string;
  readonly #stamp: EventStamp;
  readonly #own = new Map<string, Neighbour>();
  #asked: { readonly mark: number | null; readonly others: readonly Neighbour[] } = { mark: null, others: [] };

  constructor(engine: Engine, owner: string) {
    this.#engine = engine;
    this.#owner = owner;
    this.#stamp = new EventStamp(engine, {
      filters: { type: ['container'], event: ['start', 'unpause'], label: [`${MANAGED}=true`] },
      counts: ({ attributes }) => attributes[OWNER] !== owner,
    });
  }

  /**
   * All that there can be: those of others when the engine was asked last, and this session’s own. Null where somebody may have
   * come since. Some may be gone.
   */
  get remembered(): readonly Neighbour[] | null {
    const { mark, others } = this.#asked;
    return this.#stamp.hasLastedSince(mark) ? [...others, ...this.#own.values()] : null;
  }

  /** Asks the engine who is there now. */
  async ask(signal: AbortSignal): Promise<readonly Neighbour[]> {
    // First: whoever comes while the engine answers has come since.
    const { mark } = this.#stamp;
    const labels = [`${MANAGED}=true`];
    const found = await this.#engine.containers.list({ labels, signal, deadlineMs: CALL_MS });
    const others = found.filter(one => one.labels[OWNER] !== this.#owner);
    this.#asked = { mark, others: others.map(neighbourOf) };
    return found.map(neighbourOf);
  }

  /** Resolves once the engine tells of whatever starts from now on; never rejects. */
  listen(): Promise<void> {
    return this.#stamp.listen();
  }

  /** One of this session’s is about to be started. */
  entered(id: string, spec: SandboxSpec): void {
    this.#own.set(id, { id, ...reachOf(spec) });
  }

  /** One of this session’s is gone. */
  left(id: string): void {
    this.#own.delete(id);
  }

  close(): void {
    this.#stamp.close();
  }
}

function neighbourOf({ id, labels = {}, writableSources, readOnlySources }: Neighbour): Neighbour {
  return { id, labels, writableSources, readOnlySources };
}

// Event stamps: whether anything of a kind has happened on an engine since a moment. Its events tell, so that acode need not ask
// at every command.

/** The events to be heard. */
interface Heard {
  readonly filters: EventFilters;
  /** Which of them break the silence; all where it is left out. */
  readonly counts?: (event: Pick<EngineEvent, 'attributes'>) => boolean;
}

/** The silence of an engine about one kind of thing. */
export class EventStamp {
  readonly #engine: Engine;
  readonly #heard: Heard;
  readonly #stop = new AbortController();
  #listening: Promise<void> | null = null;
  #events = 0;
  #hears = false;

  constructor(engine: Engine, heard: Heard) {
    this.#engine = engine;
    this.#heard = heard;
  }

  /** What is compared later; null while nobody listens, so that nothing follows from it. */
  get mark(): number | null {
    return this.#hears ? this.#events : null;
  }

  /** Whether nothing has happened since a mark. */
  hasLastedSince(mark: number | null): boolean {
    return mark !== null && this.mark === mark;
  }

  /**
   * Resolves once the engine tells of whatever happens from now on; never rejects. Podman is not listened to: it tells of
   * things some time after they have happened.
   */
  async listen(): Promise<void> {
    if (this.#engine.connection.isPodman) return;
    this.#listening ??= this.#subscribe();
    await this.#listening;
  }

  close(): void {
    this.#stop.abort();
  }

  async #subscribe(): Promise<void> {
    try {
      const { filters } = this.#heard;
      const subscription = await this.#engine.events.subscribe({ filters, signal: this.#stop.signal });
      this.#hears = true;
      void this.#follow(subscription);
    } catch {
      this.#listening = null;
    }
  }

  // What happens after the engine went away is not heard: whoever holds a mark asks then.
  async #follow(subscription: AsyncIterable<EngineEvent>): Promise<void> {
    const { counts = () => true } = this.#heard;
    try {
      for await (const event of subscription) if (counts(event)) this.#events += 1;
    } catch {
      // Said by what follows.
    }
    this.#hears = false;
    this.#events += 1;
    this.#listening = null;
  }
}
