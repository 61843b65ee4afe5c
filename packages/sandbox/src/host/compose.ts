// The composition root: builds one host from its parts, and passes each part only what it needs. Its backends are connected at first use,
// asked once what they can do, and pinned for the session.

import { setMaxListeners } from 'node:events';
import { join } from 'node:path';
import type { EgressProxy } from '../egress/proxy/proxy.ts';
import { AuditLog } from '../records/audit/log.ts';
import type { Directories } from '../lifecycle/directories.ts';
import type { LoadedConfig } from '../policy/config/check.ts';
import { environmentMode, settingsOf } from '../policy/config/load.ts';
import type { LoadedMachine, Settings } from '../policy/config/load.ts';
import { AcodeError } from '../contract/errors.ts';
import type { PullProgress } from '../contract/images.ts';
import type { UserId } from '../contract/policy.ts';
import type { Clock } from '../contract/ports.ts';
import type { ContinuedScans } from '../contract/scan.ts';
import type { OpenHost } from '../run/host.ts';
import type { EngineBackend, Backend, Capability } from '../isolation/backend.ts';
import { DockerBackend } from '../isolation/docker/backend.ts';
import { connectEngine } from '../isolation/docker/connect.ts';
import { identify, isAlive } from '../isolation/process/held.ts';
import { EgressMounts } from '../isolation/egress.ts';
import type { Pool } from '../isolation/pool/pool.ts';
import { Claim } from '../lifecycle/reaper.ts';
import { hostIdentity, Leases } from '../lifecycle/ownership.ts';
import { Grants, TrustStore } from '../policy/trust.ts';
import { MemoryShare } from '../lifecycle/memory-share.ts';
import { Slots } from '../lifecycle/slots.ts';
import { Removals } from '../lifecycle/removal.ts';
import { Session } from '../lifecycle/session.ts';
import type { AcodeOptions } from './options.ts';
import { imageForRun } from '../images/pulling.ts';
import { PulledImages, SharedWork } from '../images/pulls.ts';
import type { ImageHost, PullOutcome } from '../images/pulls.ts';
import { ScansInProcess, tellScan } from '../run/scanning.ts';
import { SavedLogs } from '../records/saved.ts';
import { Locks } from '../lifecycle/lock.ts';
import { recordLives } from '../run/trail.ts';
import { Bus, Telemetry, ContainerReports } from '../records/telemetry.ts';
import { openPool } from '../run/warm.ts';
import type { PoolHost } from '../run/warm.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';

/** A host with everything that acode.ts needs. */
export type ComposedHost = OpenHost & ImageHost;

/** The inputs from which a host is built. */
export interface Composition {
  readonly options: AcodeOptions;
  readonly config: LoadedConfig;
  readonly machine: LoadedMachine | null;
  readonly directories: Directories;
  readonly uid: number;
  readonly clock: Clock;
}

const MAX_CONCURRENT = 128;
// Most commands end before another process could ask for their output.
const OFFERED_AFTER_MS = 300;
// How long `close` waits for the engine to remove everything. The reaper removes the rest.
const CLOSING_MS = 10_000;
// The first user of most systems. Used if root runs acode by its own configuration: sandboxes never run as root.
const NOT_ROOT: UserId = { uid: 1000, gid: 1000 };

/** Builds a host. Contacts nothing. */
export async function composeHost({
  options,
  config,
  machine,
  directories,
  uid,
  clock,
}: Composition): Promise<ComposedHost> {
  checkSweep(options);
  const settings = settingsOf(config.config);
  const identity = await hostIdentity(directories.runtime);
  const { place: leases } = new Leases(directories.state);
  const session = new Session({ id: options.sessionId, host: identity, uid, leases, settings, clock });
  const telemetry = new Telemetry({ clock, logger: options.logger, metrics: options.metrics, session: session.id });
  const bus = new Bus(error => telemetry.log('error', 'an event listener failed', { reason: String(error) }));
  const reports = new ContainerReports(telemetry, bus);
  const claim = new Claim({
    runtimeDirectory: directories.runtime,
    owner: session.owner,
    uid,
    host: identity,
    createMs: settings.createTimeoutMs,
  });
  const audit = new AuditLog({ directory: join(directories.state, 'audit'), uid, clock });
  const background = new Background();
  recordLives(bus, { audit, telemetry, keep: work => background.keep(work) });
  const logs = new SavedLogs(directories.state, uid, settings.keepOutputDays ?? 0);
  const locks = new Locks({ directory: directories.runtime, uid, clock });
  const pulls = {
    locks,
    index: new PulledImages(directories.state, uid, locks),
    shared: new SharedWork<PullProgress, PullOutcome>(),
    verifySignature: options.verifySignature ?? null,
  };
  const egress = new EgressMounts(directories.state, uid);
  let proxy: Promise<EgressProxy> | null = null;
  const stop = new AbortController();
  // Each sandbox adds a listener. Above ten, Node would print a leak warning to standard error.
  setMaxListeners(0, stop.signal);
  const backends = new Backends({ connect, local: localLevels(), closing: stop.signal });
  const removals = new Removals({
    reports,
    attempts: settings.retry.attempts,
    deadlineMs: settings.cleanupMs,
    clock,
  });
  const shared = {
    bus,
    telemetry,
    session,
    closing: stop.signal,
    keep: (work: Promise<unknown>) => background.keep(work),
    backend: (level: Level) => backends.at(level),
    claim: async () => {
      removals.again();
      await claim.take((await backends.engine()).socket);
    },
  };
  const scans: ContinuedScans = options.continueScan
    ? { begin: options.continueScan }
    : new ScansInProcess({ ...shared, report: report => tellScan({ ...shared, audit }, report) });
  const host: ComposedHost = {
    ...shared,
    scans,
    config,
    machine,
    environmentMode: environmentMode(process.env),
    trust: new TrustStore(directories.state, uid),
    settings,
    directories,
    uid,
    identity,
    profile: options.profile ?? 'exec',
    caller: uid === 0 ? NOT_ROOT : { uid, gid: process.getgid?.() ?? uid },
    workspace: options.workspace ?? process.cwd(),
    workspaceNamed: options.workspace !== undefined,
    audit,
    reports,
    pulls,
    images: {
      forRun: (wanted, signal) => imageForRun(host, wanted, signal),
      // Loaded on demand: few runs have dependencies of a project image.
      dependencies: async (of, signal) =>
        (await import('../images/project/dependencies.ts')).dependenciesFor(await backends.engine(), of, signal),
    },
    // Loaded on demand: few runs have artifacts.
    withArtifacts: async (...of) => (await import('../persistent/artifacts.ts')).withArtifacts(...of),
    offer: run => {
      const begin = async (): Promise<void> => (await import('../persistent/relay/offer.ts')).offerRun(host, run);
      const cancel = clock.after(OFFERED_AFTER_MS, () => background.keep(begin()));
      run.running.result.then(cancel, cancel);
    },
    offerNetwork: network => {
      const begin = async (): Promise<void> =>
        (await import('../persistent/relay/network.ts')).offerNetwork(host, network);
      const cancel = clock.after(OFFERED_AFTER_MS, () => background.keep(begin()));
      void network.ended.then(cancel);
    },
    grants: new Grants(directories.state, () => clock.now()),
    egressMounts: egress,
    // Loaded on demand: few runs have an allow-list.
    egressProxy: () => (proxy ??= import('../egress/proxy/proxy.ts').then(({ egressProxy }) => egressProxy())),
    // Loaded on demand: few runs have forks.
    forks: async () => {
      const { ForkStore } = await import('../workspace/fork/store.ts');
      return new ForkStore(directories.state, () => clock.now());
    },
    locks,
    slots: new Slots(concurrency(options, settings), clock),
    memory: memoryShare(directories, clock),
    pool: poolOf(options, { ...shared, audit }),
    pastLogs: logs,
    savedLogs: settings.keepOutputDays === null ? null : logs,
    engineNamed: engineNamedBy(options, settings),
    engine: () => backends.engine(),
    capability: () => backends.capability(),
    localCapabilities: () => backends.local(),
    localCapability: level => backends.localCapability(level),
    close,
  };
  return host;

  // Loaded on demand: most hosts never use them.
  function localLevels(): BackendSources['local'] {
    const common = { clock, closing: stop.signal, keep: (work: Promise<unknown>) => background.keep(work) };
    const { acceptsProcessLimits: acceptProcessLimits, ulimit } = settings;
    return [
      [
        'bubblewrap',
        async () => {
          const { BubblewrapBackend } = await import('../isolation/bubblewrap/backend.ts');
          return new BubblewrapBackend({ ...common, acceptProcessLimits, egress, memory: directories.runtime });
        },
      ],
      [
        'ulimit',
        async () => {
          const { UlimitBackend } = await import('../isolation/ulimit/backend.ts');
          return new UlimitBackend({ ...common, ...ulimit });
        },
      ],
      [
        'none',
        async () => {
          const { NoneBackend } = await import('../isolation/none/backend.ts');
          return new NoneBackend(common);
        },
      ],
    ];
  }

  async function connect(signal: AbortSignal): Promise<EngineBackend> {
    const { engine, source } = await connectEngine(options.engine?.socket ?? settings.engineSocket, signal);
    const { socketPath, apiVersion } = engine.connection;
    telemetry.log('debug', 'engine found', { socket: socketPath, source, apiVersion });
    return new DockerBackend({
      engine,
      source,
      fileDirectory: directories.runtime,
      egress,
      owner: session.owner,
      clock,
      observer: reports,
      createTimeoutMs: settings.createTimeoutMs,
      keepsWaiting: options.pool !== undefined && options.pool !== false,
      retry: settings.retry,
      closing: stop.signal,
      keep: work => background.keep(work),
      making: (nonce, make) => claim.during(nonce, make),
      removals,
    });
  }

  async function close(): Promise<void> {
    // Cancelled commands abandon their sandboxes; the backend remains open until the last one is removed.
    stop.abort(new AcodeError('ACODE-SBX-014', {}));
    let cancel: () => void = () => undefined;
    const tooLong = new Promise<null>(resolve => (cancel = clock.after(CLOSING_MS, () => resolve(null))));
    const left = await Promise.race([letGo().catch(notLetGo), tooLong]);
    cancel();
    if (left === null) {
      telemetry.log('warn', 'the engine takes too long: what is left is removed in the background', {});
      await backends.abandon();
    }
    try {
      await audit.close();
    } finally {
      await claim.giveUp(left === null || left > 0);
    }
  }

  // If closing failed, something may be left behind: the reaper checks.
  function notLetGo(error: unknown): null {
    telemetry.log('error', 'closing failed', { reason: String(error) });
    return null;
  }

  /** Waits until everything is removed; returns how many resources could not be removed. */
  async function letGo(): Promise<number> {
    await background.settled();
    await removals.settled();
    if (proxy) await (await proxy).close();
    const belongings = await backends.close();
    for (const { id, reason } of belongings) telemetry.log('warn', 'could not be removed', { id, reason });
    return removals.left.length + belongings.length;
  }
}

/** Work that may outlive its caller. */
class Background {
  readonly #work = new Set<Promise<unknown>>();

  keep(work: Promise<unknown>): void {
    const kept: Promise<unknown> = work.catch(() => undefined).finally(() => this.#work.delete(kept));
    this.#work.add(kept);
  }

  // Work that ends may have started more work in the meantime.
  async settled(): Promise<void> {
    while (this.#work.size > 0) await Promise.allSettled(this.#work);
  }
}

// Few hosts have one.
function poolOf(options: AcodeOptions, host: PoolHost): Pool | null {
  return options.pool ? openPool(options, host) : null;
}

// In the order in which acode searches for the engine.
function engineNamedBy(options: AcodeOptions, settings: Settings): string | null {
  return options.engine?.socket ?? settings.engineSocket ?? process.env['DOCKER_HOST'] ?? null;
}

function memoryShare({ runtime, state }: Directories, clock: Clock): MemoryShare {
  const leases = new Leases(state);
  return new MemoryShare({
    directory: runtime,
    clock,
    self: identify(process.pid) ?? { pid: process.pid, startTime: '0' },
    isAlive: owner => owner.pid === process.pid || isAlive(owner),
    // Decided by the expiry time and not by the record, which remains if the container was removed by another program.
    isKept: sandboxId => leases.isCurrent(sandboxId, clock.now()),
  });
}

function concurrency(options: AcodeOptions, settings: Settings): number {
  const asked = options.maxConcurrent ?? settings.maxConcurrent;
  if (Number.isInteger(asked) && asked >= 1 && asked <= MAX_CONCURRENT) return asked;
  const reason = `must be a whole number from 1 to ${MAX_CONCURRENT}`;
  throw new AcodeError('ACODE-SBX-017', { field: 'maxConcurrent', reason });
}

const MIN_SWEEP_MS = 1000;

function checkSweep({ sweepEveryMs }: AcodeOptions): void {
  if (sweepEveryMs === undefined || (Number.isFinite(sweepEveryMs) && sweepEveryMs >= MIN_SWEEP_MS)) return;
  throw new AcodeError('ACODE-SBX-017', { field: 'sweepEveryMs', reason: `must be ${MIN_SWEEP_MS} or more` });
}

/** Loads the levels that are otherwise loaded on demand. */
export async function loadLevels(): Promise<void> {
  await Promise.all([
    import('../isolation/bubblewrap/backend.ts'),
    import('../isolation/none/backend.ts'),
    import('../isolation/ulimit/backend.ts'),
  ]);
}

/** How the backends of a host are had. */
interface BackendSources {
  readonly connect: (signal: AbortSignal) => Promise<EngineBackend>;
  /** The levels that need no engine, weakest last; made when first asked for. */
  readonly local: readonly (readonly [level: Level, make: () => Promise<Backend>])[];
  readonly closing: AbortSignal;
}

/** Every backend of a host, each connected when it is first needed. */
class Backends {
  readonly #engine: Lazy<EngineBackend>;
  readonly #local: ReadonlyMap<Level, Lazy<Backend>>;

  constructor({ connect, local, closing }: BackendSources) {
    this.#engine = new Lazy(connect, closing);
    this.#local = new Map(local.map(([level, make]) => [level, new Lazy(make, closing)]));
  }

  /** The engine’s backend. */
  engine(): Promise<EngineBackend> {
    return this.#engine.get();
  }

  /** What the engine’s backend can do here. */
  capability(): Promise<Capability> {
    return this.#engine.capability();
  }

  /** The backend for a level; null where this host has none for it. */
  async at(level: Level): Promise<Backend | null> {
    return usesEngine(level) ? this.engine() : ((await this.#local.get(level)?.get()) ?? null);
  }

  /** What the levels that need no engine can do here, strongest first. */
  async local(): Promise<Capability[]> {
    return Promise.all(
      [...this.#local].map(([level, backend]) =>
        backend.capability().catch((error: unknown) => unanswered(level, error)),
      ),
    );
  }

  /** What one of them can do here; null where this host has no such level. */
  async localCapability(level: Level): Promise<Capability | null> {
    return (await this.#local.get(level)?.capability()) ?? null;
  }

  /** Gives back what sandboxes shared and closes the backends that were connected; says what could not be removed. */
  async close(): Promise<readonly { readonly id: string; readonly reason: string }[]> {
    return (await Promise.all(this.#all().map(backend => backend.close()))).flat();
  }

  /** Lets go of the backends as they are: an engine that does not answer is not waited for any longer. */
  async abandon(): Promise<void> {
    await Promise.all(this.#all().map(backend => backend.abandon()));
  }

  #all(): Lazy<Backend>[] {
    return [this.#engine, ...this.#local.values()];
  }
}

function unanswered(level: Level, error: unknown): Capability {
  const reason = reasonOf(error);
  return { level, available: false, unknown: true, reason, cpus: 1, runtimes: {}, standardRuntime: '' };
}

// These levels have no engine that could have failed, as the whole message would say.
function reasonOf(error: unknown): string {
  if (error instanceof AcodeError && error.is('ACODE-SBX-018')) return error.context.reason;
  return error instanceof Error ? error.message : String(error);
}

/** A backend that is connected when it is first needed. */
class Lazy<Kind extends Backend> {
  readonly #connect: (signal: AbortSignal) => Promise<Kind>;
  readonly #closing: AbortSignal;
  #backend: Promise<Kind> | null = null;
  #capability: Promise<Capability> | null = null;

  constructor(connect: (signal: AbortSignal) => Promise<Kind>, closing: AbortSignal) {
    this.#connect = connect;
    this.#closing = closing;
  }

  // A connection that failed is tried again by the next caller.
  get(): Promise<Kind> {
    this.#backend ??= this.#connect(this.#closing).catch((error: unknown) => {
      this.#backend = null;
      throw error;
    });
    return this.#backend;
  }

  capability(): Promise<Capability> {
    this.#capability ??= this.get()
      .then(backend => backend.probe(this.#closing))
      .catch((error: unknown) => {
        this.#capability = null;
        throw error;
      });
    return this.#capability;
  }

  async close(): Promise<readonly { readonly id: string; readonly reason: string }[]> {
    const backend = await this.#backend?.catch(() => null);
    const left = await backend?.release();
    backend?.close();
    return left ?? [];
  }

  async abandon(): Promise<void> {
    const backend = await this.#backend?.catch(() => null);
    backend?.close();
  }
}
