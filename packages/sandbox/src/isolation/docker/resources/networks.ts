// The networks of sandboxes: one managed bridge per session without traffic between its containers, and those the user declared.
//
// A network is always used by its id. Names are not unique on an engine, and anybody who may use it can make a second one.

import { randomUUID } from 'node:crypto';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { SESSION } from '../../../lifecycle/labels.ts';
import { EngineError, isNotFound } from '../engine/error.ts';
import type { Attachment, Seen } from './attachment.ts';
import { type Left, OwnedResources, type OwnerOptions, removeHeld } from './owned.ts';
import type { Engine } from '../engine/index.ts';
import { engineFailure, reasonOf } from '../failure.ts';
import { SEVERAL, assertManaged, bridgeName, bridgeRequest, faultOf } from './network-rules.ts';
import type { Difference } from '../../mount-differences.ts';
import { unlessCancelled } from '../../waiting.ts';
import type { EngineFacts } from '../request.ts';
import { connectionDifferences, interfaceDifferences } from '../verify/verify-network.ts';

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
    if (network.kind === 'none') return { id: 'none', name: 'none' };
    return network.kind === 'bridge' ? this.#bridge(spec, signal) : this.#named(network.name, signal);
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
      throw new AcodeError('ACODE-SBX-001', { name: 'network', reason: reasonOf(error) }, { cause: error });
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
