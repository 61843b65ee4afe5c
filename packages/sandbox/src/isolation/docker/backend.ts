// Level docker: sandboxes as containers of a Docker Engine.

import { ExponentialBackoff, handleWhen, retry } from 'cockatiel';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxDetails, SandboxInfo, Status } from '../../contract/host.ts';
import type { Level } from '../../contract/levels.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { MANAGED } from '../../lifecycle/labels.ts';
import type { Backend, Capability, WaitingSandbox } from '../backend.ts';
import type { ImageFacts } from '../plan.ts';
import { EngineError, isNotFound, isTransient } from './engine/error.ts';
import type { Engine } from './engine/index.ts';
import { engineFailure, reasonOf, unavailable } from './failure.ts';
import type { EngineInfo } from './engine/system.ts';
import { engineStatus, sandboxDetails, sandboxInfo } from './info.ts';
import { OomWatch } from './oom-watch.ts';
import { createRequest } from './request.ts';
import { WaitingContainer } from './waiting.ts';

/** What happens to a container, for whoever keeps logs. */
export interface ContainerObserver {
  created(spec: SandboxSpec, containerId: string, durationMs: number): void;
  started(spec: SandboxSpec, containerId: string): void;
}

/** How a backend should behave. */
export interface DockerBackendOptions {
  readonly engine: Engine;
  /** How the engine was found. */
  readonly source: string;
  readonly owner: string;
  readonly clock: Clock;
  readonly observer: ContainerObserver;
  readonly createTimeoutMs: number;
  readonly retry: { readonly attempts: number; readonly baseMs: number; readonly factor: number };
  /** Builds the engine request; verification does not trust it. */
  readonly buildRequest?: (spec: SandboxSpec) => Record<string, unknown>;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Removes a container off the caller’s path and never forgets it. */
  readonly remove: (spec: SandboxSpec, containerId: string) => Promise<void>;
}

const CALL_MS = 10_000;
const INFO_MS = 5000;
const START_MS = 30_000;
// Longer than any command may run: the command’s own deadline comes first.
const EXIT_MS = 25 * 3600 * 1000;
const LONGEST_BACKOFF_MS = 5000;
// When to look again for a container whose creation was not answered.
const LATE_MS = [500, 1500];

/** The Docker backend. */
export class DockerBackend implements Backend {
  readonly level: Level = 'docker';
  readonly #options: DockerBackendOptions;
  readonly #engine: Engine;
  readonly #oomWatch: OomWatch;

  constructor(options: DockerBackendOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#oomWatch = new OomWatch(options.engine, `acode.owner=${options.owner}`);
  }

  async probe(signal: AbortSignal): Promise<Capability> {
    const info = await this.#info(signal);
    // Without a filter on system calls the kernel is open to the sandbox: an engine like that counts as none.
    const filtered = (info.SecurityOptions ?? []).some(
      option => option.startsWith('name=seccomp') && !option.includes('profile=unconfined'),
    );
    return {
      level: this.level,
      available: filtered,
      cpus: info.NCPU,
      ...(filtered ? {} : { reason: 'the engine runs containers without a seccomp filter' }),
    };
  }

  async resolveImage(policy: EffectivePolicy, signal: AbortSignal): Promise<ImageFacts> {
    const reference = policy.image.value;
    try {
      const image = await this.#engine.images.inspect(reference, { signal, deadlineMs: CALL_MS });
      return {
        reference,
        id: image.id,
        digest: image.repoDigests[0]?.split('@')[1] ?? image.id,
        environment: image.config.Env ?? [],
        volumes: Object.keys(image.config.Volumes ?? {}),
      };
    } catch (error) {
      if (!isNotFound(error)) throw engineFailure(error, signal);
      throw new AcodeError(
        'ACODE-SBX-009',
        { image: reference },
        { cause: new AcodeError('ACODE-CTN-011', { image: reference }, { cause: error }) },
      );
    }
  }

  describe(spec: SandboxSpec): unknown {
    return createRequest(spec);
  }

  async prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    const id = await this.#create(spec, signal);
    try {
      return await this.#start(spec, id, signal);
    } catch (error) {
      await this.#options.remove(spec, id);
      throw startFailure(spec, error, signal);
    }
  }

  async list(signal: AbortSignal): Promise<SandboxInfo[]> {
    try {
      const found = await this.#engine.containers.list({
        labels: [`${MANAGED}=true`],
        all: true,
        signal,
        deadlineMs: CALL_MS,
      });
      return found.map(sandboxInfo);
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }

  async inspect(reference: string, signal: AbortSignal): Promise<SandboxDetails | null> {
    try {
      const details = await this.#engine.containers.inspect(reference, { signal, deadlineMs: CALL_MS });
      return details.Config.Labels?.[MANAGED] === 'true' ? sandboxDetails(details) : null;
    } catch (error) {
      if (isNotFound(error)) return null;
      throw engineFailure(error, signal);
    }
  }

  async engine(signal: AbortSignal): Promise<NonNullable<Status['engine']>> {
    return engineStatus(this.#engine, this.#options.source, await this.#info(signal));
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#engine.containers.remove(id, { force: true, volumes: true, signal });
  }

  close(): void {
    this.#oomWatch.close();
    this.#engine.close();
  }

  async #info(signal: AbortSignal): Promise<EngineInfo> {
    try {
      return await this.#engine.system.info({ signal, deadlineMs: INFO_MS });
    } catch (error) {
      throw signal.aborted ? signal.reason : unavailable(this.#engine.connection.socketPath, reasonOf(error), error);
    }
  }

  async #create(spec: SandboxSpec, signal: AbortSignal): Promise<string> {
    const { attempts, baseMs, factor } = this.#options.retry;
    const backoff = new ExponentialBackoff({ initialDelay: baseMs, exponent: factor, maxDelay: LONGEST_BACKOFF_MS });
    const policy = retry(handleWhen(isTransient), { maxAttempts: attempts, backoff });
    const before = this.#options.clock.monotonic();
    try {
      const id = await policy.execute(() => this.#createUnlessCancelled(spec, signal), signal);
      this.#options.observer.created(spec, id, this.#options.clock.monotonic() - before);
      return id;
    } catch (error) {
      throw creationFailure(spec, error, signal);
    }
  }

  // A create that is under way cannot be taken back: cutting the connection would leave a container that appears a moment
  // later. So a cancelled caller leaves at once, and what comes of the create is removed when it is there.
  async #createUnlessCancelled(spec: SandboxSpec, signal: AbortSignal): Promise<string> {
    signal.throwIfAborted();
    const creating = this.#createOnce(spec);
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    });
    try {
      return await Promise.race([creating, aborted]);
    } catch (error) {
      if (signal.aborted) this.#options.keep(creating.then(id => this.#options.remove(spec, id)));
      throw error;
    }
  }

  async #createOnce(spec: SandboxSpec): Promise<string> {
    const build = this.#options.buildRequest ?? createRequest;
    const signal = AbortSignal.timeout(this.#options.createTimeoutMs);
    try {
      const { id } = await this.#engine.containers.create(build(spec), {
        name: spec.identity.name,
        signal,
        deadlineMs: this.#options.createTimeoutMs,
      });
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

  async #start(spec: SandboxSpec, id: string, signal: AbortSignal): Promise<WaitingSandbox> {
    const { containers } = this.#engine;
    const [stream, { exit }] = await Promise.all([
      containers.attach(id, { stdin: true, stdout: true, stderr: true, signal, deadlineMs: CALL_MS }),
      containers.expectExit(id, 'next-exit', { signal, deadlineMs: EXIT_MS }),
      this.#oomWatch.ready(),
    ]);
    try {
      await containers.start(id, { signal, deadlineMs: START_MS });
    } catch (error) {
      stream.destroy();
      throw error;
    }
    this.#options.observer.started(spec, id);
    const container = { id, engine: this.#engine, stream, exit, oomWatch: this.#oomWatch, clock: this.#options.clock };
    return new WaitingContainer(spec, container, () => this.#options.remove(spec, id));
  }
}

function mayHaveBeenMade(error: unknown): boolean {
  return error instanceof EngineError && ['timeout', 'disconnected', 'aborted', 'protocol'].includes(error.kind);
}

function creationFailure(spec: SandboxSpec, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted || !(error instanceof EngineError)) return engineFailure(error, signal);
  const { name } = spec.identity;
  const reason = reasonOf(error);
  const cause =
    error.status === 409
      ? new AcodeError('ACODE-CTN-005', { name }, { cause: error })
      : new AcodeError('ACODE-CTN-001', { name, reason }, { cause: error });
  return new AcodeError('ACODE-SBX-001', { name, reason }, { cause });
}

function startFailure(spec: SandboxSpec, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted || !(error instanceof EngineError)) return engineFailure(error, signal);
  const { name } = spec.identity;
  const reason = reasonOf(error);
  return new AcodeError(
    'ACODE-SBX-006',
    { name, reason },
    { cause: new AcodeError('ACODE-CTN-002', { name, reason }, { cause: error }) },
  );
}
