// The networks of sandboxes: one managed bridge per session without traffic between its containers, and those the user declared.
//
// A network is always used by its id. Names are not unique on an engine, and anybody who may use it can make a second one.

import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { shortageIn } from '../../../contract/system-error.ts';
import { CREATED, EXPIRES, MANAGED, NONCE, ownership, SESSION } from '../../../lifecycle/labels.ts';
import type { Difference } from '../../kernel.ts';
import { unlessCancelled } from '../../../lifecycle/clock.ts';
import type { Engine, NetworkDetails } from '../engine/index.ts';
import { EngineError, isNotFound } from '../engine/protocol.ts';
import { engineFailure, reasonOf } from '../failure.ts';
import type { EngineFacts } from '../request.ts';
import { connectionDifferences, interfaceDifferences } from '../verify/verify.ts';
import { type Attachment, type Left, OwnedResources, type OwnerOptions, removeHeld, type Seen } from './owned.ts';

/** A network as a container is connected to it. */
export interface ChosenNetwork {
  /** `none`, or the engine’s id of it. */
  readonly id: string;
  readonly name: string;
}

/** How networks are made. */
export interface NetworksOptions extends OwnerOptions {
  readonly engine: Engine;
  readonly observer: { networkRemoved(id: string, name: string): void };
}

interface Managed extends ChosenNetwork {
  readonly madeAt: number;
}

/** The network of a session, while it is made too, so that it is made once. */
interface Shared {
  readonly making: Promise<Managed>;
  /** The sandboxes that are on it, or are about to be. */
  readonly users: Set<string>;
  idleSince: number;
}

const CALL_MS = 10_000;
// A network is marked with the end of the sandbox it was made for. After an hour a new one is made, so that the mark of a
// network is never reached while a command that was started on it may still run.
const FRESH_MS = 3600 * 1000;
// A host that works for many sessions has a bridge for each. Engines have room for some thirty, so few are kept for sessions
// that have nothing running.
const MAX_IDLE = 4;
const MAX_IDLE_MS = 5 * 60 * 1000;

/** The networks of one backend. */
export class SandboxNetworks implements Attachment {
  readonly #options: NetworksOptions;
  readonly #engine: Engine;
  /** The present network of each session. */
  readonly #current = new Map<string, Shared>();
  /** Those that nobody is given any more, and that go with their last sandbox. */
  readonly #retired = new Set<Shared>();
  /** The names of those that were made, by id. */
  readonly #made = new Map<string, string>();
  readonly #owned: OwnedResources;

  constructor(options: NetworksOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#owned = new OwnedResources(options, async terms =>
      (await this.#engine.networks.list(terms)).map(({ Id }) => Id),
    );
  }

  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Pick<EngineFacts, 'network' | 'networkName'>> {
    const { id, name } = await this.choose(spec, signal);
    return { network: id, networkName: name };
  }

  verify(spec: SandboxSpec, facts: EngineFacts, { details, view }: Seen): Difference[] {
    return [...connectionDifferences(facts, details), ...(view ? interfaceDifferences(spec, view) : [])];
  }

  /** The network of a plan: made at its first use, looked at again at every further one. */
  async choose(spec: SandboxSpec, signal: AbortSignal): Promise<ChosenNetwork> {
    signal.throwIfAborted();
    try {
      return await this.#chosen(spec, signal);
    } catch (error) {
      this.release(spec);
      throw engineFailure(error, signal);
    }
  }

  async #chosen(spec: SandboxSpec, signal: AbortSignal): Promise<ChosenNetwork> {
    const { network } = spec;
    if (network.kind === 'bridge') return this.#bridge(spec, signal);
    // What an allow-list lets through comes by the forwarder inside: the engine gives the sandbox no network.
    return network.kind === 'named' ? this.#named(network.name, signal) : { id: 'none', name: 'none' };
  }

  /** A sandbox is gone, or was never made: its network is one user poorer. */
  release({ identity: { sandboxId } }: SandboxSpec): void {
    for (const shared of [...this.#current.values(), ...this.#retired])
      if (shared.users.delete(sandboxId) && shared.users.size === 0) shared.idleSince = this.#options.clock.monotonic();
    this.#tidy();
  }

  /** Removes every network that was made here; what could not be removed comes back. Containers go first. */
  async close(): Promise<Left[]> {
    await Promise.allSettled([...this.#current.values()].map(({ making }) => making));
    this.#current.clear();
    const left = await Promise.all([...this.#made.keys()].map(id => this.#remove(id)));
    return [...left.filter(one => one !== null), ...this.#owned.unanswered];
  }

  async #bridge(spec: SandboxSpec, signal: AbortSignal): Promise<ChosenNetwork> {
    const session = spec.identity.labels[SESSION] ?? '';
    const user = spec.identity.sandboxId;
    const known = this.#current.get(session);
    if (known) {
      // Before anything is waited for: one that somebody is about to use is not idle.
      known.users.add(user);
      const usable = await this.#stillUsable(await unlessCancelled(known.making, signal), spec, signal);
      if (usable) return usable;
      known.users.delete(user);
      // Only the first who finds it unusable replaces it; the others find its successor.
      if (this.#current.get(session) !== known) return this.#bridge(spec, signal);
      this.#retired.add(known);
    }
    const shared: Shared = { making: this.#make(spec), users: new Set([user]), idleSince: 0 };
    this.#current.set(session, shared);
    shared.making.catch(() => {
      if (this.#current.get(session) === shared) this.#current.delete(session);
    });
    this.#options.keep(shared.making);
    this.#tidy();
    return unlessCancelled(shared.making, signal);
  }

  // The network itself where it can be used once more; null where a new one has to be made.
  async #stillUsable(network: Managed, spec: SandboxSpec, signal: AbortSignal): Promise<Managed | null> {
    if (this.#options.clock.monotonic() - network.madeAt > FRESH_MS) return null;
    try {
      assertManaged(await this.#engine.networks.inspect(network.id, { signal, deadlineMs: CALL_MS }), spec);
      return network;
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#made.delete(network.id);
      return null;
    }
  }

  // Gives back what nobody is on: those that were replaced, those idle for long, and the longest idle where there are many.
  #tidy(): void {
    const now = this.#options.clock.monotonic();
    const idle = [...this.#current].filter(([, { users }]) => users.size === 0);
    idle.sort(([, one], [, other]) => one.idleSince - other.idleSince);
    for (const [at, [session, shared]] of idle.entries()) {
      if (at >= idle.length - MAX_IDLE && now - shared.idleSince <= MAX_IDLE_MS) continue;
      this.#current.delete(session);
      this.#retired.add(shared);
    }
    for (const shared of this.#retired) {
      if (shared.users.size > 0) continue;
      this.#retired.delete(shared);
      this.#options.keep(this.#giveBack(shared));
    }
  }

  // What the engine does not remove now it is asked for again when the session closes.
  async #giveBack({ making }: Shared): Promise<void> {
    const { id } = await making;
    if (this.#made.has(id)) await this.#remove(id);
  }

  // Without the caller’s signal: others may wait for the same network, and a create under way cannot be taken back.
  async #make(spec: SandboxSpec): Promise<Managed> {
    const nonce = randomUUID();
    const name = bridgeName(spec);
    const body = bridgeRequest(spec, name, nonce);
    const signal = AbortSignal.timeout(3 * CALL_MS);
    const id = await this.#createOrAdopt(body, nonce, signal);
    this.#made.set(id, name);
    try {
      assertManaged(await this.#engine.networks.inspect(id, { signal, deadlineMs: CALL_MS }), spec);
    } catch (error) {
      this.#options.keep(this.#remove(id));
      throw error;
    }
    return { id, name, madeAt: this.#options.clock.monotonic() };
  }

  async #createOrAdopt(body: object, nonce: string, signal: AbortSignal): Promise<string> {
    try {
      return await this.#owned.create({
        nonce,
        make: () => this.#engine.networks.create(body, { signal, deadlineMs: CALL_MS }),
        adopt: id => id,
        remove: id => this.#remove(id),
      });
    } catch (error) {
      if (!(error instanceof EngineError && error.kind === 'status')) throw error;
      const reason = reasonOf(error);
      throw new AcodeError('ACODE-SBX-001', { name: 'network', reason, ...shortageIn(reason) }, { cause: error });
    }
  }

  async #remove(id: string): Promise<Left | null> {
    const left = await removeNetwork(this.#engine, id, this.#options.clock);
    if (left !== null) return left;
    this.#options.observer.networkRemoved(id, this.#made.get(id) ?? '');
    this.#made.delete(id);
    return null;
  }

  async #named(name: string, signal: AbortSignal): Promise<ChosenNetwork> {
    const candidates = await this.#engine.networks.list({ name, signal, deadlineMs: CALL_MS });
    const found = candidates.filter(({ Name }) => Name === name);
    const [network] = found;
    const fault = found.length > 1 ? SEVERAL : faultOf(network);
    if (fault) {
      const [rule, remedy] = fault;
      throw new AcodeError('ACODE-SBX-005', { network: name, rule, setBy: 'the built-in rules', remedy });
    }
    return { id: network?.Id ?? '', name };
  }
}

/** Removes a network; what could not be removed comes back. */
export function removeNetwork(engine: Engine, id: string, clock: Pick<Clock, 'after'>): Promise<Left | null> {
  return removeHeld(clock, id, () =>
    engine.networks.remove(id, { signal: AbortSignal.timeout(CALL_MS), deadlineMs: CALL_MS }),
  );
}

// Which networks are fit for a sandbox: what the bridge of a session is asked to be, and what the others must not be.

const ICC = 'com.docker.network.bridge.enable_icc';
const DEFAULT_BRIDGE = 'com.docker.network.bridge.default_bridge';

type Fault = readonly [rule: string, remedy: string];

/** Why a name that several networks have is of no use. */
const SEVERAL: Fault = [
  'more than one network has that name, so nobody can tell which is meant',
  'Remove or rename the others; `docker network ls` lists them.',
];

/** Why sandboxes may not be connected to a network that was named; null where they may. */
export function faultOf(network: NetworkDetails | undefined): Fault | null {
  if (!network)
    return [
      'the engine has no network of that name',
      'Make it with `docker network create <name>`, or choose one that exists; trying again without that cannot help.',
    ];
  if (network.Labels?.[MANAGED] !== undefined)
    return [
      'it is the managed network of a session, which is not to be shared',
      'Ask for the network `bridge`, or make one of your own with `docker network create <name>`.',
    ];
  if (network.Driver !== 'bridge' || network.Scope !== 'local' || network.ConfigOnly === true)
    return [
      `its driver is ${network.Driver} (${network.Scope}), and only local bridge networks keep a sandbox off the host’s own interfaces`,
      'Make a bridge network with `docker network create <name>` and declare that one.',
    ];
  if (network.Options?.[DEFAULT_BRIDGE] === 'true')
    return [
      'it is the engine’s default network, on which every container reaches every other',
      'Ask for the network `bridge`, which acode makes for the session, or make one with `docker network create <name>`.',
    ];
  return null;
}

/** The body of `POST /networks/create` for the bridge of a session. */
export function bridgeRequest(spec: SandboxSpec, name: string, nonce: string): Record<string, unknown> {
  return {
    Name: name,
    CheckDuplicate: true,
    Driver: 'bridge',
    Internal: false,
    Attachable: false,
    Ingress: false,
    EnableIPv6: false,
    // No container on it reaches another; between networks the engine keeps them apart anyway.
    Options: { [ICC]: 'false' },
    Labels: { ...ownership(spec), [NONCE]: nonce },
  };
}

/** Refuses a network that is not what a managed one must be. */
export function assertManaged(network: NetworkDetails, spec: SandboxSpec): void {
  const { [CREATED]: _, [EXPIRES]: __, ...owner } = ownership(spec);
  const { Driver, Scope, Options, Labels, EnableIPv6, Internal, Attachable, Ingress } = network;
  const expectations: readonly (readonly [met: boolean, otherwise: string])[] = [
    [Driver === 'bridge' && Scope === 'local', `its driver is ${Driver} (${Scope})`],
    [Options?.[ICC] === 'false', 'containers on it may reach each other'],
    [!EnableIPv6, 'IPv6 is on'],
    [[Internal, Attachable, Ingress ?? false].every(one => !one), 'it is of another kind'],
    [Object.entries(owner).every(([label, value]) => Labels?.[label] === value), 'its owner is another'],
  ];
  const wrong = expectations.flatMap(([met, otherwise]) => (met ? [] : [otherwise]));
  if (wrong.length === 0) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'SpecMismatch',
    detail: `the network ${network.Name} is not as planned: ${wrong.join('; ')}`,
  });
}

/** What the bridge of a session is called. The random end keeps two hosts of one session apart. */
function bridgeName({ identity }: SandboxSpec): string {
  const session = createHash('sha256')
    .update(identity.labels[SESSION] ?? '')
    .digest('hex');
  return `acode-${session.slice(0, 8)}-bridge-${randomBytes(4).toString('hex')}`;
}
