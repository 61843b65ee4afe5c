// Level docker: sandboxes as containers of a Docker Engine.

import { AcodeError } from '../../contract/errors.ts';
import type { SandboxDetails, SandboxInfo, Status } from '../../contract/host.ts';
import type { Level } from '../../contract/levels.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { ImageFacts, SandboxSpec } from '../../contract/spec.ts';
import { MANAGED } from '../../lifecycle/labels.ts';
import type { Backend, Capability, WaitingSandbox } from '../backend.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { Creation, startFailure } from './creation.ts';
import type { Created, CreationOptions } from './creation.ts';
import { DirectContainer } from './direct.ts';
import { isNotFound } from './engine/error.ts';
import type { Engine } from './engine/index.ts';
import { engineFailure, reasonOf, unavailable } from './failure.ts';
import type { EngineInfo } from './engine/system.ts';
import { engineStatus, sandboxDetails, sandboxInfo } from './info.ts';
import { createRequest } from './request.ts';
import type { EngineFacts } from './request.ts';
import { WaitingContainer } from './waiting.ts';

/** How a backend should behave. */
export interface DockerBackendOptions extends CreationOptions {
  /** How the engine was found. */
  readonly source: string;
}

const CALL_MS = 10_000;
const INFO_MS = 4000;
const SHELL = WAITING_COMMAND[0] ?? '/bin/sh';

/** The Docker backend. */
export class DockerBackend implements Backend {
  readonly level: Level = 'docker';
  readonly #options: DockerBackendOptions;
  readonly #engine: Engine;
  readonly #creation: Creation;
  readonly #shells = new Map<string, boolean>();

  constructor(options: DockerBackendOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#creation = new Creation(options);
  }

  get socket(): string {
    return this.#engine.connection.socketPath;
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
        repositoryDigests: image.repoDigests,
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
    return createRequest(spec, { network: networkName(spec), seccomp: null });
  }

  async prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    const facts = await this.#facts(spec, signal);
    if (this.#shells.get(spec.image.id) === false) return this.#direct(spec, facts);
    const created = await this.#creation.create(spec, own => createRequest(own, facts), signal);
    try {
      return await this.#start(created, facts, signal);
    } catch (error) {
      const removed = this.#creation.remove(created.spec, created.id);
      if (!signal.aborted) await removed;
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
    this.#creation.oomWatch.close();
    this.#engine.close();
  }

  async #info(signal: AbortSignal): Promise<EngineInfo> {
    try {
      return await this.#engine.system.info({ signal, deadlineMs: INFO_MS });
    } catch (error) {
      throw signal.aborted ? signal.reason : unavailable(this.#engine.connection.socketPath, reasonOf(error), error);
    }
  }

  async #facts(spec: SandboxSpec, signal: AbortSignal): Promise<EngineFacts> {
    signal.throwIfAborted();
    return { network: networkName(spec), seccomp: null };
  }

  async #start({ id, spec }: Created, facts: EngineFacts, signal: AbortSignal): Promise<WaitingSandbox> {
    const [connected, hasShell] = await Promise.all([
      this.#creation.connect(id, signal),
      this.#hasShell(spec, id, signal),
    ]);
    if (!hasShell) {
      connected.stream.destroy();
      await this.#creation.remove(spec, id);
      return this.#direct(spec, facts);
    }
    const container = await this.#creation.start(spec, id, connected, signal);
    return new WaitingContainer(spec, facts, container, () => this.#creation.remove(spec, id));
  }

  #direct(spec: SandboxSpec, facts: EngineFacts): WaitingSandbox {
    return new DirectContainer({
      spec,
      facts,
      engine: this.#engine,
      creation: this.#creation,
      buildRequest: own => createRequest(own, facts),
    });
  }

  // Asked once per image, beside the attach: without a shell there is nobody to wait for a command.
  async #hasShell(spec: SandboxSpec, id: string, signal: AbortSignal): Promise<boolean> {
    const known = this.#shells.get(spec.image.id);
    if (known !== undefined) return known;
    const found = await this.#engine.archive.exists(id, SHELL, { signal, deadlineMs: CALL_MS });
    this.#shells.set(spec.image.id, found);
    return found;
  }
}

function networkName({ network }: SandboxSpec): string {
  return typeof network === 'string' ? network : network.name;
}
