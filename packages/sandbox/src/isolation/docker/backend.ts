// Level docker: sandboxes as containers of a Docker Engine.

import { AcodeError } from '../../contract/errors.ts';
import type { CacheVolume } from '../../contract/caches.ts';
import type { EngineResource, SandboxDetails, SandboxInfo, SandboxUsage, Status } from '../../contract/host.ts';
import type { Level } from '../../contract/levels.ts';
import { networkName } from '../../contract/network.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { ImageFacts, SandboxSpec } from '../../contract/spec.ts';
import { isManaged, MANAGED } from '../../lifecycle/labels.ts';
import type {
  CacheState,
  Capability,
  Diagnosis,
  EngineBackend,
  ForkWay,
  ImageKinds,
  ImageReader,
  OpenSandbox,
  WaitingSandbox,
  WeakenedBackend,
  Weakening,
} from '../backend.ts';
import type { EgressMounts } from '../egress.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { sameness } from '../process/held.ts';
import {
  type AttachedFacts,
  type Attachment,
  Attachments,
  inspectBelonging,
  type Left,
  listBelongings,
  OnDemand,
  removeBelonging,
} from './resources/owned.ts';
import { DockerBuilds, EngineImages } from './images/image-store.ts';
import { refuseDirectFill } from './resources/volume-rules.ts';
import { SandboxCaches } from './resources/caches.ts';
import { SandboxDependencies } from './resources/dependencies.ts';
import { SandboxOverlays } from './resources/overlays.ts';
import { SandboxServices } from './resources/services.ts';
import {
  Creation,
  startFailure,
  type Created,
  type CreationOptions,
  type RequestBuilder,
} from './resources/creation.ts';
import { diagnoseEngine, engineStatus, rootDirectoryIn, sandboxDetails, sandboxInfo } from './info.ts';
import { usageNow } from './execution/execution.ts';
import { DirectContainer, WaitingContainer } from './execution/waiting.ts';
import { EngineError, isNotFound } from './engine/protocol.ts';
import type { Engine, EngineInfo } from './engine/index.ts';
import { asked, engineFailure, reasonOf, unavailable } from './failure.ts';
import { assertNoNeighbour, assertSources, inspectRunning } from './verify/inspection.ts';
import { SandboxNetworks } from './resources/networks.ts';
import { OpenContainer } from './execution/open.ts';
import {
  planForPodman,
  type PodmanFacts,
  podmanFacts,
  podmanRequest,
  podmanVariables,
  refuseDirectOnPodman,
  refuseOnPodman,
  writeFilter,
} from './podman/podman.ts';
import { createRequest, type EngineFacts } from './request.ts';
import { Runtimes, runtimeKind } from './runtime.ts';
import { architectureOf } from '../seccomp/profile.ts';
import { UnverifiedSandbox, Weakness } from './weaken.ts';

/** Options of the Docker backend. */
export interface DockerBackendOptions extends CreationOptions {
  /** How the engine was found. */
  readonly source: string;
  /** A directory that only the user can access, for settings that the engine accepts only as files. */
  readonly fileDirectory: string;
  /** What sandboxes with an allow-list mount. */
  readonly egress: EgressMounts;
  /** Attachments of its sandboxes besides networks and caches. */
  readonly attachments?: readonly Attachment[];
  /** The protections to leave out, if its sandboxes are controls of the doctor. */
  readonly weakness?: Weakness;
}

const CALL_MS = 10_000;
const USAGE_MS = 3000;
const INFO_MS = 4000;
const MAX_LIFE_MS = 25 * 3600 * 1000;
const SHELL = WAITING_COMMAND[0] ?? '/bin/sh';

/** The Docker backend. */
export class DockerBackend implements EngineBackend, WeakenedBackend {
  readonly level: Level = 'docker';
  readonly notes = [];
  readonly images: EngineImages;
  readonly builds: DockerBuilds;
  readonly #options: DockerBackendOptions;
  readonly #engine: Engine;
  readonly #creation: Creation;
  readonly #caches: OnDemand<SandboxCaches>;
  readonly #overlays: OnDemand<SandboxOverlays>;
  readonly #attachments: Attachments;
  readonly #runtimes: Runtimes;
  readonly #shells = new Map<string, boolean>();

  constructor(options: DockerBackendOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.images = new EngineImages(options);
    this.builds = new DockerBuilds(options.engine);
    this.#caches = new OnDemand(
      ({ caches }) => caches.length > 0,
      () => new SandboxCaches(options),
    );
    this.#overlays = new OnDemand(
      ({ mounts }) => mounts.some(({ overlay }) => overlay !== undefined),
      () => new SandboxOverlays({ ...options, prepare: (spec, signal) => this.#whole(spec, signal) }),
    );
    this.#attachments = new Attachments([
      // Asked with every plan: no network is a plan too, which is verified.
      new SandboxNetworks(options),
      this.#caches,
      new OnDemand(
        ({ dependencies = [] }) => dependencies.length > 0,
        () => new SandboxDependencies(options),
      ),
      this.#overlays,
      this.#forwarders,
      new OnDemand(
        ({ services = [] }) => services.length > 0,
        () =>
          new SandboxServices({ ...options, prepare: (spec, network, signal) => this.#whole(spec, signal, network) }),
      ),
      ...(options.attachments ?? []),
    ]);
    this.#creation = new Creation(options);
    this.#runtimes = new Runtimes(options.engine);
  }

  // Podman 4 describes such a container with another control group namespace, and a variable of its own.
  get withoutServices(): string | null {
    return this.#isPodman ? 'Podman does not describe a container in the network of another as it is' : null;
  }

  get socket(): string {
    return this.#engine.connection.socketPath;
  }

  async probe(signal: AbortSignal): Promise<Capability> {
    const info = await this.#info(signal);
    // Without a system call filter, the whole kernel interface is open to the sandbox: such an engine counts as
    // unavailable.
    const filtered = (info.SecurityOptions ?? []).some(
      option => option.startsWith('name=seccomp') && !option.includes('profile=unconfined'),
    );
    const known = architectureOf(info.Architecture) !== null;
    this.#runtimes.learn(info);
    this.images.learn(info.ID);
    return {
      level: this.level,
      available: filtered && known,
      cpus: info.NCPU,
      memoryBytes: info.MemTotal,
      reportsOom: !this.#isPodman,
      ...(this.#isPodman ? {} : throughputOf(info)),
      ...rootDirectoryIn(info),
      runtimes: this.#runtimes.levels,
      standardRuntime: this.#runtimes.standard,
      unprotecting: this.#runtimes.unprotecting,
      ...(filtered ? {} : { reason: 'the engine runs containers without a seccomp filter' }),
      ...(known ? {} : { reason: `there is no system call filter for ${info.Architecture}` }),
    };
  }

  async resolveImage(policy: EffectivePolicy, signal: AbortSignal): Promise<ImageFacts> {
    const image = policy.image.value;
    const found = await this.images.find(image, signal);
    if (found) return found;
    throw new AcodeError('ACODE-SBX-009', { image }, { cause: new AcodeError('ACODE-CTN-011', { image }) });
  }

  // What they mount is in the plan (`EgressMounts.planned`), which request and verification follow.
  get #forwarders(): Attachment {
    const { egress, keep } = this.#options;
    return {
      acquire: async () => ({}),
      verify: () => [],
      release: spec => keep(egress.release(spec)),
      close: async () => [],
    };
  }

  async forkWay(): Promise<ForkWay> {
    // Podman takes no size for memory.
    return this.#isPodman ? { way: 'volume' } : { way: 'volume', inMemory: true };
  }

  collect(spec: SandboxSpec): Promise<void> {
    return this.#overlays.own.collect(spec);
  }

  describe(spec: SandboxSpec): unknown {
    const facts = { network: engineNetwork(spec), ...withForwarder(spec, this.#runtimes.facts(spec)) };
    if (!this.#isPodman) return createRequest(spec, facts);
    const planned = planForPodman(spec);
    return podmanRequest(createRequest(planned, facts), planned, this.#podmanFacts(facts));
  }

  prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox> {
    return this.#whole(spec, signal);
  }

  // `joined` is the network of a service: the namespace of the container that it belongs to.
  async #whole(spec: SandboxSpec, signal: AbortSignal, joined?: string): Promise<WaitingSandbox> {
    try {
      const whole = await this.#options.egress.planned(spec);
      return await this.#prepare(this.#isPodman ? planForPodman(whole) : whole, signal, joined);
    } catch (error) {
      this.#attachments.release(spec);
      throw error;
    }
  }

  async #prepare(spec: SandboxSpec, signal: AbortSignal, joined?: string): Promise<WaitingSandbox> {
    // Refused before anything is created: otherwise a cache that can never be filled would remain.
    if (this.#shells.get(spec.image.id) === false) refuseDirectFill(spec);
    const facts = await this.#facts(spec, signal, joined);
    const verified = this.#options.weakness?.verified ?? true;
    if (verified && !runtimeKind(facts.runtime).hostKernel)
      await assertNoNeighbour(this.#creation.mountConflicts, spec, signal);
    if (this.#shells.get(spec.image.id) === false) return this.#direct(spec, facts);
    const created = await this.#creation.create(spec, await this.#builder(spec, facts), signal);
    try {
      await this.#attachments.created(created.spec, created.id, signal);
      const sandbox = await this.#start(created, facts, signal);
      return verified ? sandbox : new UnverifiedSandbox(sandbox);
    } catch (error) {
      const removed = this.#creation.remove(created.spec, created.id);
      if (!signal.aborted) await removed;
      throw startFailure(spec, error, signal);
    }
  }

  async list(signal: AbortSignal): Promise<SandboxInfo[]> {
    const terms = { labels: [`${MANAGED}=true`], all: true, signal, deadlineMs: CALL_MS };
    return asked(async () => (await this.#engine.containers.list(terms)).map(sandboxInfo), signal);
  }

  async inspect(reference: string, signal: AbortSignal): Promise<SandboxDetails | null> {
    try {
      const details = await this.#engine.containers.inspect(reference, { signal, deadlineMs: CALL_MS });
      return isManaged(details.Config.Labels) ? sandboxDetails(details) : null;
    } catch (error) {
      if (isNotFound(error)) return null;
      throw engineFailure(error, signal);
    }
  }

  async usage(id: string, signal: AbortSignal): Promise<Pick<SandboxUsage, 'memoryBytes' | 'cpuMs'> | null> {
    try {
      return usageNow(await this.#engine.containers.stats(id, { signal, deadlineMs: USAGE_MS }));
    } catch (error) {
      // It may end at any moment.
      if (error instanceof EngineError) return null;
      throw engineFailure(error, signal);
    }
  }

  async engine(signal: AbortSignal): Promise<NonNullable<Status['engine']>> {
    return engineStatus(this.#engine, this.#options.source, await this.#info(signal));
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#creation.remover(id, signal);
  }

  async freeze(id: string, action: 'pause' | 'unpause', signal: AbortSignal): Promise<void> {
    return asked(() => this.#engine.containers.freeze(id, action, { signal, deadlineMs: CALL_MS }), signal);
  }

  async reopen(planned: SandboxSpec, id: string, signal: AbortSignal): Promise<OpenSandbox> {
    const whole = await this.#options.egress.planned(planned);
    const spec = this.#isPodman ? planForPodman(whole) : whole;
    const facts = await this.#facts(spec, signal);
    const { hostKernel } = runtimeKind(facts.runtime);
    const around = this.#creation.mountConflicts;
    const { details, held } = await inspectRunning(this.#engine, id, { spec, facts, around, isKept: true }, signal);
    if (!details.State.Running)
      throw new AcodeError('ACODE-SBX-025', { sandbox: spec.identity.sandboxId, reason: 'it has ended' });
    const { clock } = this.#options;
    // Lives as long as the sandbox is in use. The signal of this call would end too early, and so would the host’s
    // `closing` signal: a closing host still has to end cancelled commands in the sandbox.
    const use = new AbortController();
    const terms = { signal: use.signal, deadlineMs: MAX_LIFE_MS };
    const { exit } = await asked(() => this.#engine.containers.expectExit(id, 'not-running', terms), signal);
    return new OpenContainer({
      id,
      spec,
      engine: this.#engine,
      clock,
      ports: [],
      exit,
      over: () => use.abort(),
      oomWatch: this.#creation.oomWatch,
      // A client in another process usually runs a single command.
      ready: 0,
      network: engineNetwork(spec),
      unset: this.#isPodman ? podmanVariables(spec) : [],
      same: sameness(spec, held),
      hostKernel,
      remove: () => this.#creation.remove(spec, id),
    });
  }

  async belongings(signal: AbortSignal): Promise<EngineResource[]> {
    return asked(() => listBelongings(this.#engine, signal), signal);
  }

  async belonging(of: Pick<EngineResource, 'kind' | 'id'>, signal: AbortSignal): Promise<EngineResource | null> {
    return asked(() => inspectBelonging(this.#engine, of, signal), signal);
  }

  async removeBelonging(of: Pick<EngineResource, 'kind' | 'id'>, signal: AbortSignal): Promise<void> {
    return asked(() => removeBelonging(this.#engine, of, signal), signal);
  }

  async caches(volumes: readonly CacheVolume[], uid: number, signal: AbortSignal): Promise<CacheState[]> {
    return this.#isPodman ? volumes.map(() => 'unsupported') : this.#caches.own.find(volumes, uid, signal);
  }

  async readImage<Value>(
    wanted: SandboxSpec,
    use: (read: ImageReader, kindAt: ImageKinds) => Promise<Value>,
    signal: AbortSignal,
  ): Promise<Value> {
    const planned = this.#isPodman ? planForPodman(wanted) : wanted;
    try {
      const facts = await this.#facts(planned, signal);
      const { podman } = facts;
      const build: RequestBuilder = own =>
        podman ? podmanRequest(createRequest(own, facts), own, podman) : createRequest(own, facts);
      const look = (id: string): Promise<Value> =>
        use(
          path => this.#read(id, path, signal),
          path => this.#kindAt(id, path, signal),
        );
      return await this.#creation.lookInto(planned, build, look, signal);
    } catch (error) {
      throw engineFailure(error, signal);
    } finally {
      this.#attachments.release(planned);
    }
  }

  async #read(id: string, path: string, signal: AbortSignal): ReturnType<ImageReader> {
    try {
      return { tar: await this.#engine.archive.get(id, path, { signal, deadlineMs: CALL_MS }) };
    } catch (error) {
      if (isNotFound(error)) return null;
      // For example, a loop of links: that must not make the image unusable.
      if (error instanceof EngineError && error.kind === 'status') return { refused: reasonOf(error) };
      throw error;
    }
  }

  async #kindAt(id: string, path: string, signal: AbortSignal): ReturnType<ImageKinds> {
    try {
      return await this.#engine.archive.kindAt(id, path, { signal, deadlineMs: CALL_MS });
    } catch (error) {
      if (error instanceof EngineError && error.kind === 'status') return 'other';
      throw error;
    }
  }

  async release(): Promise<Left[]> {
    return [...this.#creation.unanswered, ...(await this.#attachments.close())];
  }

  async diagnose(image: string, signal: AbortSignal): Promise<Diagnosis> {
    return diagnoseEngine(this.#engine, this.#options.source, image, signal);
  }

  weakened(weakenings: readonly Weakening[], beforeCreate?: () => Promise<void>): WeakenedBackend {
    return new DockerBackend({ ...this.#options, weakness: new Weakness(this.#engine, weakenings, beforeCreate) });
  }

  close(): void {
    this.#creation.oomWatch.close();
    this.#creation.mountConflicts.close();
    this.images.close();
    // A weakened backend shares the engine of the original one.
    if (!this.#options.weakness) this.#engine.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
    await this.#options.weakness?.[Symbol.asyncDispose]();
    this.close();
  }

  get #isPodman(): boolean {
    return this.#engine.connection.isPodman;
  }

  #podmanFacts({ seccomp }: Pick<EngineFacts, 'seccomp'>): PodmanFacts {
    return podmanFacts(this.#options.fileDirectory, seccomp);
  }

  async #builder(spec: SandboxSpec, facts: EngineFacts): Promise<RequestBuilder> {
    const build: RequestBuilder = own => createRequest(own, facts);
    const { weakness } = this.#options;
    const whole = weakness ? await weakness.apply(build, spec) : build;
    const { podman } = facts;
    // Last, since it translates the complete request for Podman.
    return podman ? own => podmanRequest(whole(own), own, podman) : whole;
  }

  async #info(signal: AbortSignal): Promise<EngineInfo> {
    try {
      return await this.#engine.system.info({ signal, deadlineMs: INFO_MS });
    } catch (error) {
      throw signal.aborted
        ? signal.reason
        : unavailable(this.#engine.connection.socketPath, reasonOf(error), { cause: error });
    }
  }

  async #facts(spec: SandboxSpec, signal: AbortSignal, joined?: string): Promise<AttachedFacts> {
    if (this.#isPodman) refuseOnPodman(spec);
    const runtime = await this.#runtimes.choose(spec, signal);
    const attachments = this.#attachments;
    const facts = {
      network: 'none',
      ...(await attachments.acquire(spec, signal)),
      ...(joined === undefined ? {} : { network: joined, networkName: joined }),
      ...withForwarder(spec, runtime),
      attachments,
    };
    if (!this.#isPodman) return facts;
    const podman = this.#podmanFacts(facts);
    await writeFilter(podman.filterFile, facts.seccomp, spec);
    return { ...facts, podman };
  }

  async #start({ id, spec }: Created, facts: AttachedFacts, signal: AbortSignal): Promise<WaitingSandbox> {
    const [exit, hasShell] = await Promise.all([this.#creation.watch(id, signal), this.#hasShell(spec, id, signal)]);
    if (!hasShell) {
      await this.#creation.remove(spec, id);
      return this.#direct(spec, facts);
    }
    const container = await this.#creation.start(spec, id, exit, signal);
    try {
      await this.#runtimes.prove(facts.runtime, id, signal);
    } catch (error) {
      container.stream.destroy();
      throw error;
    }
    return new WaitingContainer(spec, facts, container, this.#creation);
  }

  #direct(spec: SandboxSpec, facts: AttachedFacts): WaitingSandbox {
    if (facts.podman) refuseDirectOnPodman(spec);
    refuseDirectForwarder(spec);
    refuseDirectServices(spec);
    this.#runtimes.requireProven(facts.runtime, spec.image.reference);
    refuseDirectFill(spec);
    return new DirectContainer({
      spec,
      facts,
      engine: this.#engine,
      creation: this.#creation,
      buildRequest: own => createRequest(own, facts),
      own: (created, until) => this.#attachments.created(created.spec, created.id, until),
      over: () => this.#attachments.release(spec),
    });
  }

  // Checked once per image: without a shell, no process can wait for a command.
  async #hasShell(spec: SandboxSpec, id: string, signal: AbortSignal): Promise<boolean> {
    const known = this.#shells.get(spec.image.id);
    if (known !== undefined) return known;
    const look = (): Promise<boolean> => this.#engine.archive.exists(id, SHELL, { signal, deadlineMs: CALL_MS });
    // An engine gives the same answer if a mount source is missing. A wrong answer would disable verification for every
    // later sandbox of an image that has a shell, so it counts only if it is repeated while all mount sources exist.
    let found: boolean;
    try {
      found = await look();
    } catch (error) {
      // Docker 28 mounts everything for its answer, and fails at a mask in a read-only directory. The container itself starts: an image
      // without a shell fails there. Not remembered, since nothing was seen.
      if (!hasMasks(spec) || !(error instanceof EngineError) || error.status !== 500) throw error;
      return true;
    }
    if (!found) {
      assertSources(spec);
      found = await look();
    }
    this.#shells.set(spec.image.id, found);
    return found;
  }
}

function hasMasks({ mounts }: SandboxSpec): boolean {
  return mounts.some(({ purpose }) => purpose === 'masked');
}

// An engine says of what its kernel lacks, and leaves the limit out then.
function throughputOf({ CgroupVersion, Warnings }: EngineInfo): Pick<Capability, 'throughput'> {
  const lacks = (Warnings ?? []).some(one => /throttle\.(?:read|write)_bps_device|io\.max \([rw]bps\)/.test(one));
  return lacks ? {} : { throughput: CgroupVersion === '2' ? 'all' : 'waiting' };
}

// The engine gives a sandbox with an allow-list no network.
function engineNetwork({ network }: SandboxSpec): string {
  return network.kind === 'allow' ? 'none' : networkName(network);
}

// The forwarder is a process of the sandbox, and not one that the command may start.
function withForwarder<Facts extends Pick<EngineFacts, 'ownTasks'>>({ network }: SandboxSpec, facts: Facts): Facts {
  return network.kind === 'allow' ? { ...facts, ownTasks: (facts.ownTasks ?? 0) + 1 } : facts;
}

function refuseDirectServices({ services, image }: SandboxSpec): void {
  if (!services) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `A service beside ${image.reference}, which has no shell to wait until it is ready,`,
    instead: 'Use an image that has /bin/sh.',
  });
}

function refuseDirectForwarder({ network, image }: SandboxSpec): void {
  if (network.kind !== 'allow') return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `An allow-list for ${image.reference}, which has no shell to start its forwarder,`,
    instead: 'Use an image that has /bin/sh.',
  });
}
