// The networks of sandboxes: one managed bridge per session without traffic between its containers, and those the user declared.
//
// A network is always used by its id. Names are not unique on an engine, and anybody who may use it can make a second one.

import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { MANAGED } from '../../lifecycle/labels.ts';
import { EngineError, isNotFound, mayHaveBeenDone } from './engine/error.ts';
import { LateLooks } from './late-looks.ts';
import type { Engine } from './engine/index.ts';
import type { NetworkDetails } from './engine/networks.ts';
import { engineFailure, reasonOf } from './failure.ts';
import { unlessCancelled } from './unless-cancelled.ts';

/** A network as a container is connected to it. */
export interface ChosenNetwork {
  /** `none`, or the engine’s id of it. */
  readonly id: string;
  readonly name: string;
}

/** How networks are made. */
export interface NetworksOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  readonly observer: { networkRemoved(id: string, name: string): void };
}

/** Why a create that was never answered counts as something left. */
export const UNANSWERED = 'the engine did not say whether it was made';

/** A network that could not be removed. */
export interface NetworkLeft {
  readonly id: string;
  readonly reason: string;
}

interface Managed extends ChosenNetwork {
  readonly madeAt: number;
}

const CALL_MS = 10_000;
// A network is marked with the end of the sandbox it was made for. After an hour a new one is made, so that the mark of a
// network is never reached while a command that was started on it may still run.
const FRESH_MS = 3600 * 1000;
const REMOVAL_ATTEMPTS = 6;
const REMOVAL_PAUSE_MS = 100;
const ICC = 'com.docker.network.bridge.enable_icc';
const DEFAULT_BRIDGE = 'com.docker.network.bridge.default_bridge';
// Whose a network is and how long it may live: what whoever cleans up after a dead session needs to know.
const OWNERSHIP = ['acode.session', 'acode.owner', 'acode.host', 'acode.uid', 'acode.created', 'acode.expires'];

/** The networks of one backend. */
export class SandboxNetworks {
  readonly #options: NetworksOptions;
  readonly #engine: Engine;
  /** The present network of each session, while it is made too, so that it is made once. */
  readonly #current = new Map<string, Promise<Managed>>();
  /** The names of those that were made, by id. */
  readonly #made = new Map<string, string>();
  readonly #lateLooks: LateLooks;

  constructor(options: NetworksOptions) {
    this.#options = options;
    this.#engine = options.engine;
    this.#lateLooks = new LateLooks(options);
  }

  /** The network of a plan: made at its first use, looked at again at every further one. */
  async choose(spec: SandboxSpec, signal: AbortSignal): Promise<ChosenNetwork> {
    signal.throwIfAborted();
    if (spec.network === 'none') return { id: 'none', name: 'none' };
    try {
      return spec.network === 'bridge'
        ? await this.#bridge(spec, signal)
        : await this.#named(spec.network.name, signal);
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }

  /** Removes every network that was made here; what could not be removed comes back. Containers go first. */
  async release(): Promise<NetworkLeft[]> {
    await Promise.allSettled(this.#current.values());
    this.#current.clear();
    const left = await Promise.all([...this.#made.keys()].map(id => this.#remove(id, REMOVAL_ATTEMPTS)));
    const { unanswered } = this.#lateLooks;
    return [...left.filter(one => one !== null), ...unanswered.map(nonce => ({ id: nonce, reason: UNANSWERED }))];
  }

  async #bridge(spec: SandboxSpec, signal: AbortSignal): Promise<ChosenNetwork> {
    const session = spec.identity.labels['acode.session'] ?? '';
    const known = this.#current.get(session);
    if (known) {
      const usable = await this.#stillUsable(await unlessCancelled(known, signal), spec, signal);
      if (usable) return usable;
      // Only the first who finds it unusable replaces it; the others find its successor.
      if (this.#current.get(session) !== known) return this.#bridge(spec, signal);
    }
    const making = this.#make(spec);
    this.#current.set(session, making);
    making.catch(() => {
      if (this.#current.get(session) === making) this.#current.delete(session);
    });
    this.#options.keep(making);
    return unlessCancelled(making, signal);
  }

  async #stillUsable(network: Managed, spec: SandboxSpec, signal: AbortSignal): Promise<Managed | null> {
    if (this.#options.clock.monotonic() - network.madeAt > FRESH_MS) {
      // One that is still used is refused by the engine now and removed when the session closes.
      this.#options.keep(this.#remove(network.id, 1));
      return null;
    }
    try {
      assertManaged(await this.#engine.networks.inspect(network.id, { signal, deadlineMs: CALL_MS }), spec);
      return network;
    } catch (error) {
      if (!isNotFound(error)) throw error;
      this.#made.delete(network.id);
      return null;
    }
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
      this.#options.keep(this.#remove(id, REMOVAL_ATTEMPTS));
      throw error;
    }
    return { id, name, madeAt: this.#options.clock.monotonic() };
  }

  async #createOrAdopt(body: object, nonce: string, signal: AbortSignal): Promise<string> {
    try {
      return await this.#engine.networks.create(body, { signal, deadlineMs: CALL_MS });
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      const refusal =
        error.kind === 'status'
          ? new AcodeError('ACODE-SBX-001', { name: 'network', reason: reasonOf(error) }, { cause: error })
          : error;
      if (!mayHaveBeenDone(error)) throw refusal;
      // The reply may have been lost and not the request: what was made is found by its nonce.
      const [made] = await this.#madeWith(nonce).catch(() => []);
      if (made) return made;
      this.#options.keep(this.#lateLooks.follow(nonce, () => this.#removeLate(nonce)));
      throw refusal;
    }
  }

  async #removeLate(nonce: string): Promise<void> {
    const late = await this.#madeWith(nonce);
    await Promise.all(late.map(id => this.#remove(id, REMOVAL_ATTEMPTS)));
  }

  async #madeWith(nonce: string): Promise<string[]> {
    // A signal that never fires: nobody who has given up may leave a network behind.
    const { signal } = new AbortController();
    const found = await this.#engine.networks.list({ labels: [`acode.nonce=${nonce}`], signal, deadlineMs: CALL_MS });
    return found.map(({ Id }) => Id);
  }

  async #remove(id: string, attempts: number): Promise<NetworkLeft | null> {
    const left = await removeNetwork(this.#engine, id, attempts, ms => this.#pause(ms));
    if (left !== null) return left;
    this.#options.observer.networkRemoved(id, this.#made.get(id) ?? '');
    this.#made.delete(id);
    return null;
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => void this.#options.clock.after(ms, resolve));
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

/** Removes a network; what could not be removed comes back. A container that is being removed still holds it for a moment. */
export async function removeNetwork(
  engine: Engine,
  id: string,
  attempts: number,
  pause: (ms: number) => Promise<void>,
): Promise<NetworkLeft | null> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await engine.networks.remove(id, { signal: AbortSignal.timeout(CALL_MS), deadlineMs: CALL_MS });
      return null;
    } catch (error) {
      if (attempt >= attempts) return { id, reason: reasonOf(error) };
    }
    await pause(REMOVAL_PAUSE_MS * 2 ** attempt);
  }
}

type Fault = readonly [rule: string, remedy: string];

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
    Labels: { ...ownership(spec), 'acode.nonce': nonce },
  };
}

/** Refuses a network that is not what a managed one must be. */
export function assertManaged(network: NetworkDetails, spec: SandboxSpec): void {
  const { 'acode.created': _, 'acode.expires': __, ...owner } = ownership(spec);
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

/** The labels that say whose a network is. */
export function ownership({ identity }: SandboxSpec): Record<string, string> {
  return {
    [MANAGED]: 'true',
    ...Object.fromEntries(OWNERSHIP.map(label => [label, identity.labels[label] ?? ''])),
  };
}

// The random end keeps two hosts of one session apart.
function bridgeName({ identity }: SandboxSpec): string {
  const session = createHash('sha256')
    .update(identity.labels['acode.session'] ?? '')
    .digest('hex');
  return `acode-${session.slice(0, 8)}-bridge-${randomBytes(4).toString('hex')}`;
}
