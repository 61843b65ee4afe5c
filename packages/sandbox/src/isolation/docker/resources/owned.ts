// Owned resources: whatever acode makes on an engine carries a nonce, so that a lost reply leaves nothing behind, and its removal
// is repeated until the engine answers.

import type { EngineResource } from '../../../contract/host.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { isManaged, MANAGED, NONCE } from '../../../lifecycle/labels.ts';
import type { Remove } from '../../../lifecycle/removal.ts';
import type { Difference, KernelView } from '../../kernel.ts';
import type { ContainerDetails, Containers } from '../engine/containers.ts';
import type { Engine, NetworkDetails, VolumeDetails } from '../engine/index.ts';
import { EngineError, isNotFound, mayHaveBeenDone } from '../engine/protocol.ts';
import { reasonOf } from '../failure.ts';
import type { EngineFacts } from '../request.ts';

/** What owned resources depend on. */
export interface OwnerOptions {
  readonly clock: Clock;
  /** Fires when the session ends: from then on the reaper cleans up, where the engine is away. */
  readonly closing: AbortSignal;
  /** Keeps work that outlives its caller, so that closing waits for it. */
  readonly keep: (work: Promise<unknown>) => void;
  /** Runs a create that the reaper knows of, so that it cleans up where this process dies in the middle of it. */
  readonly making: <Value>(nonce: string, make: () => Promise<Value>) => Promise<Value>;
}

/** Something of an engine that could not be removed. */
export interface Left {
  readonly id: string;
  readonly reason: string;
}

/** One create. */
export interface OwnedCreate<Made> {
  /** Its label; each attempt has its own, or cleaning up after one would remove what the next one made. */
  readonly nonce: string;
  readonly make: () => Promise<Made>;
  /** Removes one that carries the nonce. */
  readonly remove: (id: string) => Promise<unknown>;
  /** Takes over what was made although its reply was lost; without it, that is removed. */
  readonly adopt?: (id: string) => Made;
}

/** Finds the ids of everything of one kind with these labels. */
export type FindByLabel = (terms: {
  readonly labels: readonly string[];
  readonly all: true;
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
}) => Promise<readonly string[]>;

type Cleanup = (deadlineMs: number) => Promise<void>;

const CALL_MS = 10_000;
// How long a caller waits for the first search after a lost create; the later ones are in the background.
const SEARCH_MS = 2000;
const LATE_MS = [500, 1500];
const MAX_SEARCH_MS = 60_000;
const REMOVAL_ATTEMPTS = 6;
const REMOVAL_PAUSE_MS = 100;
const FIRST_MS = 50;
// Short: everything is to be gone two seconds after the engine answers again, and a socket nobody listens on costs nothing.
const MAX_PAUSE_MS = 500;
const UNANSWERED = 'the engine did not say whether it was made';

/** What acode made of one kind. */
export class OwnedResources {
  readonly #options: OwnerOptions;
  readonly #find: FindByLabel;
  readonly #unanswered = new Map<string, Cleanup>();
  readonly #underWay = new Set<string>();

  constructor(options: OwnerOptions, find: FindByLabel) {
    this.#options = options;
    this.#find = find;
  }

  /** The creates that the engine never answered, by nonce. The reaper has to search for what they made. */
  get unanswered(): readonly Left[] {
    return [...this.#unanswered.keys()].map(id => ({ id, reason: UNANSWERED }));
  }

  /**
   * Makes one. Without the caller’s signal: a create under way cannot be taken back. Where the reply was lost and not the request,
   * what was made is found by its nonce: now, or a little later where the engine is still at it.
   */
  async create<Made>({ nonce, make, remove, adopt }: OwnedCreate<Made>): Promise<Made> {
    try {
      return await this.#options.making(nonce, make);
    } catch (error) {
      if (!mayHaveBeenDone(error)) throw error;
      const [made] = adopt ? await this.#made(nonce, SEARCH_MS).catch(() => []) : [];
      if (adopt && made !== undefined) return adopt(made);
      const cleanup: Cleanup = async deadlineMs => {
        await Promise.all((await this.#made(nonce, deadlineMs)).map(remove));
      };
      if (!adopt) await cleanup(SEARCH_MS).catch(() => undefined);
      const following = (): Promise<void> => this.follow(nonce, cleanup);
      // An engine that only takes its time is still at it; one whose connection broke has ended, and the create with it.
      const isSlow = error instanceof EngineError && error.kind === 'timeout';
      this.#options.keep(isSlow ? this.#options.making(nonce, following) : following());
      throw error;
    }
  }

  /** Cleans up after a create, again and later. Rejects where the engine did not answer; `unanswered` lists it then too. */
  async follow(nonce: string, cleanup: Cleanup): Promise<void> {
    const { clock, closing } = this.#options;
    const before = clock.monotonic();
    const isOver = (): boolean => closing.aborted || clock.monotonic() - before > MAX_SEARCH_MS;
    this.#unanswered.set(nonce, cleanup);
    this.#underWay.add(nonce);
    try {
      for (const ms of LATE_MS) {
        await pause(clock, ms);
        await whenItAnswers(() => cleanup(CALL_MS), { clock, isOver });
      }
    } finally {
      this.#underWay.delete(nonce);
    }
    this.#unanswered.delete(nonce);
  }

  /** Cleans up once more after creates that were given up: acode is about to make something, so the engine seems to answer again. */
  async again(): Promise<void> {
    const given = [...this.#unanswered].filter(([nonce]) => !this.#underWay.has(nonce));
    await Promise.allSettled(given.map(([nonce, cleanup]) => this.follow(nonce, cleanup)));
  }

  // Its own signal, which never fires: a caller that was cancelled must not leave anything behind.
  #made(nonce: string, deadlineMs: number): Promise<readonly string[]> {
    return this.#find({ labels: [`${NONCE}=${nonce}`], all: true, signal: new AbortController().signal, deadlineMs });
  }
}

/** Removes what a container may still hold for a moment; what could not be removed comes back. */
export async function removeHeld(
  clock: Pick<Clock, 'after'>,
  id: string,
  remove: () => Promise<void>,
): Promise<Left | null> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await remove();
      return null;
    } catch (error) {
      if (attempt >= REMOVAL_ATTEMPTS) return { id, reason: reasonOf(error) };
    }
    await pause(clock, REMOVAL_PAUSE_MS * 2 ** attempt);
  }
}

/**
 * Removes containers by id, however long the engine is away: until the caller cancels, or the session closes and leaves the rest to
 * the reaper.
 */
export function removerOf(
  containers: Pick<Containers, 'remove'>,
  { clock, closing }: Pick<OwnerOptions, 'clock' | 'closing'>,
  removed: (id: string) => void,
): Remove {
  return async (id, signal) => {
    const isOver = (): boolean => signal.aborted || closing.aborted;
    await whenItAnswers(() => containers.remove(id, { force: true, volumes: true, signal }), { clock, isOver });
    removed(id);
  };
}

/** How long to repeat a call. */
interface Patience {
  readonly clock: Clock;
  /** Whether to stop: the caller has left, or the reaper will do it. */
  readonly isOver: () => boolean;
}

/** Repeats a call until the engine has answered it, well or not: a restart of an engine takes seconds. */
export async function whenItAnswers<Value>(call: () => Promise<Value>, { clock, isOver }: Patience): Promise<Value> {
  for (let wait = FIRST_MS; ; wait = Math.min(2 * wait, MAX_PAUSE_MS)) {
    try {
      return await call();
    } catch (error) {
      if (isOver() || !isAway(error)) throw error;
    }
    // Jittered: many wait for the same engine, and would all come back in the same moment.
    await pause(clock, wait * (0.5 + Math.random() / 2));
  }
}

function isAway(error: unknown): boolean {
  return error instanceof EngineError && ['unreachable', 'disconnected', 'timeout'].includes(error.kind);
}

function pause(clock: Pick<Clock, 'after'>, ms: number): Promise<void> {
  return new Promise(resolve => void clock.after(ms, resolve));
}

// What of ours is on an engine besides containers: networks and volumes, found by label and taken by id.

const OURS = { labels: [`${MANAGED}=true`] };

/** Every network and volume of ours, whoever made it. */
export async function listBelongings(engine: Engine, signal: AbortSignal): Promise<EngineResource[]> {
  const options = { ...OURS, signal, deadlineMs: CALL_MS };
  const [networks, volumes] = await Promise.all([engine.networks.list(options), engine.volumes.list(options)]);
  return [...networks.map(asNetwork), ...volumes.map(asVolume)];
}

/** One of them as it is now; null where it is gone, or is not ours. */
export async function inspectBelonging(
  engine: Engine,
  { kind, id }: Pick<EngineResource, 'kind' | 'id'>,
  signal: AbortSignal,
): Promise<EngineResource | null> {
  const options = { signal, deadlineMs: CALL_MS };
  try {
    const found =
      kind === 'network'
        ? asNetwork(await engine.networks.inspect(id, options))
        : asVolume(await engine.volumes.inspect(id, options));
    return found.id === id && isManaged(found.labels) ? found : null;
  } catch (error) {
    if (isNotFound(error)) return null;
    throw error;
  }
}

/** Removes one. One that is gone is a success; one that is used is an error. */
export async function removeBelonging(
  engine: Engine,
  { kind, id }: Pick<EngineResource, 'kind' | 'id'>,
  signal: AbortSignal,
): Promise<void> {
  const options = { signal, deadlineMs: CALL_MS };
  await (kind === 'network' ? engine.networks.remove(id, options) : engine.volumes.remove(id, options));
}

function asNetwork({ Id: id, Name: name, Labels: labels }: NetworkDetails): EngineResource {
  return { kind: 'network', id, name, labels: labels ?? {} };
}

function asVolume({ Name: name, Labels: labels }: VolumeDetails): EngineResource {
  return { kind: 'volume', id: name, name, labels: labels ?? {} };
}

// Attachments: what a sandbox is given besides its container, such as a network or caches. Each is acquired before the container
// is made, verified with it, and released when it is gone.

/** What engine and kernel show of a container; `view` is null where the kernel shows nothing of it. */
export interface Seen {
  readonly details: ContainerDetails;
  readonly view: KernelView | null;
}

/** One thing that sandboxes are given. */
export interface Attachment {
  /** Finds or makes it for a plan; what the request for the container must know of it. */
  acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Partial<EngineFacts>>;
  /** The container is made and not started: what can be done only then. */
  created?(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void>;
  /** The sandbox was verified and waits for its command: what runs beside the command is started, and is ready when this resolves. */
  accompany?(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void>;
  /** What of it is not as planned. Pure. */
  verify(spec: SandboxSpec, facts: EngineFacts, seen: Seen): readonly Difference[];
  /** The sandbox is gone, or was never made. May be called more than once. */
  release(spec: SandboxSpec): void;
  /** Removes everything that was made, when no container is left; what could not be removed comes back. */
  close(): Promise<readonly Left[]>;
}

/** An attachment that is made with the first plan that asks for it, and has to do with no other plan. */
export class OnDemand<Made extends Attachment> implements Attachment {
  readonly #isAsked: (spec: SandboxSpec) => boolean;
  readonly #make: () => Made;
  #made: Made | null = null;

  /** `isAsked` is whether a plan asks for it. */
  constructor(isAsked: (spec: SandboxSpec) => boolean, make: () => Made) {
    this.#isAsked = isAsked;
    this.#make = make;
  }

  /** The attachment itself. */
  get own(): Made {
    return (this.#made ??= this.#make());
  }

  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Partial<EngineFacts>> {
    return this.#isAsked(spec) ? this.own.acquire(spec, signal) : {};
  }

  async created(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    if (this.#isAsked(spec)) await this.own.created?.(spec, containerId, signal);
  }

  async accompany(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    if (this.#isAsked(spec)) await this.own.accompany?.(spec, containerId, signal);
  }

  verify(spec: SandboxSpec, facts: EngineFacts, seen: Seen): readonly Difference[] {
    return this.#isAsked(spec) ? this.own.verify(spec, facts, seen) : [];
  }

  release(spec: SandboxSpec): void {
    if (this.#isAsked(spec)) this.own.release(spec);
  }

  async close(): Promise<readonly Left[]> {
    return (await this.#made?.close()) ?? [];
  }
}

/** Facts about a container that is to be verified, with what verifies its attachments. */
export interface AttachedFacts extends EngineFacts {
  readonly attachments: Pick<Attachments, 'accompany' | 'verify' | 'release'>;
}

/** All attachments of a backend: acquired in order, and each released whatever becomes of the others. */
export class Attachments {
  readonly #all: readonly Attachment[];

  constructor(all: readonly Attachment[]) {
    this.#all = all;
  }

  /** What the request must know of all of them. Where one fails, none is left. */
  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Partial<EngineFacts>> {
    let facts: Partial<EngineFacts> = {};
    try {
      for (const one of this.#all) facts = { ...facts, ...(await one.acquire(spec, signal)) };
      return facts;
    } catch (error) {
      this.release(spec);
      throw error;
    }
  }

  async created(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    for (const one of this.#all) await one.created?.(spec, containerId, signal);
  }

  async accompany(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    for (const one of this.#all) await one.accompany?.(spec, containerId, signal);
  }

  verify(spec: SandboxSpec, facts: EngineFacts, seen: Seen): Difference[] {
    return this.#all.flatMap(one => one.verify(spec, facts, seen));
  }

  release(spec: SandboxSpec): void {
    for (const one of this.#all) one.release(spec);
  }

  async close(): Promise<Left[]> {
    const left: Left[] = [];
    for (const one of this.#all) left.push(...(await one.close()));
    return left;
  }
}
