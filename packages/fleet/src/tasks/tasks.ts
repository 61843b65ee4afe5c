// Tasks over an engine: submit, claim, finish, give back, cancel. Each step reads, decides, and writes if nothing has changed since.

import { randomUUID } from 'node:crypto';
import { FLEET_ERRORS } from '../errors.ts';
import type { Delivery, FleetEngine, QueuedTask } from '../engine/engine.ts';
import type { TaskKey } from '../engine/names.ts';
import { cancelled, claimStep, isFinal, parseState, withoutRequest } from './state.ts';
import type { FinalState, TaskState } from './state.ts';

/** How long a final state is kept. */
const KEEP_MS = 7 * 86_400_000;
const MAX_CONFLICTS = 20;
const NO_STATE: Found = { state: null, revision: 0 };

/** A claim: the permission to run a task and to write its result. */
export interface Claim extends TaskKey {
  readonly attempt: number;
  /** What only the holder knows to be its own. */
  readonly claim: string;
}

/** Who claims. */
export interface Claimer {
  readonly worker: string;
  readonly maxAttempts: number;
  /** Whether this worker works on a claim of its own. */
  readonly holds: (claim: string) => boolean;
}

/** What became of a try to claim: the claim, or why there is none. */
export type Claiming = { readonly is: 'claimed'; readonly claim: Claim } | { readonly is: 'busy' | 'over' };

/** A state and the revision that a write of the next one names. */
interface Found {
  readonly state: TaskState | null;
  readonly revision: number;
}

/** A task to be queued. */
export interface NewTask extends QueuedTask {
  /** Its id was made just now: nobody can have queued it before. */
  readonly isNew?: boolean;
}

/** The tasks of a fleet. */
export class FleetTasks {
  readonly #engine: FleetEngine;
  /** What was written for a claim, which the next write need not read again. */
  readonly #written = new WeakMap<Claim, Found>();

  constructor(engine: FleetEngine) {
    this.#engine = engine;
  }

  /** Queues a task. One that is unfinished, or whose result is kept, is not queued again. */
  async submit({ isNew = false, ...task }: NewTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    const state = isNew ? null : await this.state(task, signal);
    if (state && isFinal(state)) return 'present';
    return this.#engine.enqueue(task, signal);
  }

  /** The state of a task; null where none was written: it is queued, or unknown. */
  async state(key: TaskKey, signal?: AbortSignal): Promise<TaskState | null> {
    return (await this.#found(key, signal)).state;
  }

  /**
   * Claims a task for a worker. The worker that holds the claim and has a lease keeps it; a holder without a lease has lost it, and the
   * attempt with it.
   */
  async claim(delivery: Delivery, claimer: Claimer, signal?: AbortSignal): Promise<Claiming> {
    const claim = randomUUID();
    // Most tasks are handed out once and have no state: that is not asked first. Where it is wrong, the write fails.
    const isFirst = delivery.deliveries === 1;
    for (let round = 0; round < MAX_CONFLICTS; round += 1) {
      const found = isFirst && round === 0 ? NO_STATE : await this.#found(delivery.task, signal);
      const claiming = await this.#tryClaim(delivery, { ...claimer, claim }, found, signal);
      if (claiming !== null) return claiming;
    }
    return { is: 'busy' };
  }

  // One round; null where another writer was first.
  async #tryClaim(
    delivery: Delivery,
    claimer: Claimer & { readonly claim: string },
    { state, revision }: Found,
    signal?: AbortSignal,
  ): Promise<Claiming | null> {
    const { tenant, id } = delivery.task;
    const { worker, maxAttempts, claim } = claimer;
    // A write whose answer was lost has taken effect.
    if (state?.claim === claim) return { is: 'claimed', claim: { tenant, id, attempt: state.attempt, claim } };
    const holderLives = state?.state === 'claimed' && (await this.#isHeld(state, claimer, signal));
    const found = claimStep(state, { worker, claim, at: now(), maxAttempts, holderLives });
    if (found.step === 'wait') return { is: 'busy' };
    if (found.step === 'remove') return this.#removed(delivery);
    const options = found.step === 'lose' ? { keepMs: KEEP_MS } : {};
    const written = await this.#engine.write({ tenant, id }, revision, JSON.stringify(found.next), options, signal);
    if (written === null) return null;
    if (found.step === 'claim') {
      const made: Claim = { tenant, id, attempt: found.next.attempt, claim };
      this.#written.set(made, { state: found.next, revision: written });
      return { is: 'claimed', claim: made };
    }
    await this.#engine.notify({ tenant }, id);
    return this.#removed(delivery);
  }

  /** Writes how a task ended. Only the holder of the claim can: everybody else gets `ACODE-FLT-010`. */
  async finish(claim: Claim, state: FinalState, outcome: string, signal?: AbortSignal): Promise<void> {
    const next = (found: TaskState): TaskState => ({ ...withoutRequest(found), state, at: now(), outcome });
    await this.#asHolder(claim, next, { keepMs: KEEP_MS }, signal);
    await this.#engine.notify({ tenant: claim.tenant }, claim.id);
  }

  /** Gives a task back that was not begun: the attempt does not count. */
  async giveBack(claim: Claim, signal?: AbortSignal): Promise<void> {
    const next = (found: TaskState): TaskState => ({
      ...found,
      state: 'queued',
      attempt: found.attempt - 1,
      worker: null,
      claim: null,
      at: now(),
    });
    await this.#asHolder(claim, next, {}, signal);
  }

  /** Leaves a task to another worker after this one could not run it: the attempt counts. */
  async retry(claim: Claim, signal?: AbortSignal): Promise<void> {
    const next = (found: TaskState): TaskState => ({ ...found, state: 'queued', worker: null, claim: null, at: now() });
    await this.#asHolder(claim, next, {}, signal);
  }

  /** Whether the claim still holds, and whether its task is to be cancelled. */
  async standing(claim: Claim, signal?: AbortSignal): Promise<'held' | 'cancel' | 'lost'> {
    const state = await this.state(claim, signal);
    if (state?.state !== 'claimed' || state.claim !== claim.claim) return 'lost';
    return state.cancelRequested ? 'cancel' : 'held';
  }

  /** Cancels a task: at once where no worker has it, else its worker is told to. Returns the state after that. */
  async cancel(key: TaskKey, signal?: AbortSignal): Promise<TaskState> {
    for (let round = 0; round < MAX_CONFLICTS; round += 1) {
      const { state, revision } = await this.#found(key, signal);
      const next = cancelled(state, now());
      if (next === null && state) return state;
      if (next === null) break;
      const options = isFinal(next) ? { keepMs: KEEP_MS } : {};
      if ((await this.#engine.write(key, revision, JSON.stringify(next), options, signal)) === null) continue;
      if (next.worker !== null) await this.#engine.notify({ worker: next.worker }, `cancel ${key.tenant} ${key.id}`);
      await this.#engine.notify({ tenant: key.tenant }, key.id);
      return next;
    }
    throw FLEET_ERRORS.create('ACODE-FLT-011', { tenant: key.tenant, task: key.id });
  }

  async #found(key: TaskKey, signal?: AbortSignal): Promise<Found> {
    const found = await this.#engine.read(key, signal);
    return found ? { state: parseState(found.text), revision: found.revision } : { state: null, revision: 0 };
  }

  // A claim of this worker that it knows nothing of was written when it had given up waiting for the answer.
  async #isHeld({ worker, claim }: TaskState, claimer: Claimer, signal?: AbortSignal): Promise<boolean> {
    if (worker === claimer.worker) return claimer.holds(claim ?? '');
    return worker !== null && (await this.#engine.isLeased(worker, signal));
  }

  async #removed(delivery: Delivery): Promise<Claiming> {
    await delivery.done();
    return { is: 'over' };
  }

  async #asHolder(
    claim: Claim,
    next: (found: TaskState) => TaskState,
    options: { readonly keepMs?: number },
    signal?: AbortSignal,
  ): Promise<void> {
    let tried: TaskState | null = null;
    for (let round = 0; round < MAX_CONFLICTS; round += 1) {
      // Where somebody has written since, the write fails, and is tried again on what is there.
      const { state, revision } = (round === 0 && this.#written.get(claim)) || (await this.#found(claim, signal));
      // Our own write, whose answer was lost.
      if (tried && isSame(state, tried)) return;
      tried = next(heldState(state, claim));
      if ((await this.#engine.write(claim, revision, JSON.stringify(tried), options, signal)) !== null) return;
    }
    throw FLEET_ERRORS.create('ACODE-FLT-006', {
      operation: 'finish',
      deadlineMs: 0,
      reason: 'the state changed each time',
    });
  }
}

function isSame(found: TaskState | null, tried: TaskState): boolean {
  return found?.claim === tried.claim && found.state === tried.state && found.outcome === tried.outcome;
}

// Only the holder of the claim may change the state.
function heldState(state: TaskState | null, { tenant, id, attempt, claim }: Claim): TaskState {
  if (state?.state === 'claimed' && state.claim === claim && state.attempt === attempt) return state;
  throw FLEET_ERRORS.create('ACODE-FLT-010', { tenant, task: id, attempt });
}

function now(): string {
  return new Date().toISOString();
}
