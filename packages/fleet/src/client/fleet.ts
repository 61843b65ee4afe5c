// Client of a fleet: submits a task and follows it. It repeats what was lost, until it has read how the task ended.

import { randomUUID } from 'node:crypto';
import type { Command, RunResult } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { FleetEngine } from '../engine/engine.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused } from '../engine/retry.ts';
import { decodePiece } from '../tasks/log-pieces.ts';
import type { LogChunk } from '../tasks/log-pieces.ts';
import { parseOutcome } from '../tasks/outcome.ts';
import type { Outcome } from '../tasks/outcome.ts';
import { hashOf, signed, unverified, verified } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { parseSpec } from '../tasks/spec.ts';
import type { TaskRequest } from '../tasks/spec.ts';
import { isFinal } from '../tasks/state.ts';
import type { TaskState, TaskStateName } from '../tasks/state.ts';
import { FleetTasks } from '../tasks/tasks.ts';

// A notice comes at once. This is for one that was lost.
const LOOK_MS = 1000;

/** Who submits. */
export interface FleetOptions {
  /** The engine. {@link Fleet.close} closes it. */
  readonly engine: FleetEngine;
  /** The tenant. */
  readonly tenant: string;
  /** The tenant’s keys; the public one is registered with the workers. */
  readonly keys: KeyPair;
  /** Public keys of workers. With them, a result of any other is refused; without, anyone who can write the state is believed. */
  readonly workers?: readonly string[];
}

/** Why a command never started. */
export interface TaskFailure {
  /** The code of the error on its worker. */
  readonly code: string;
  /** What happened. */
  readonly message: string;
  /** What to do next. */
  readonly hint: string;
}

/** How a task ended. */
export interface TaskEnd {
  /** The state. */
  readonly state: TaskStateName;
  /** How many workers began it. */
  readonly attempt: number;
  /** The result of its command; absent where the command never started. */
  readonly result?: RunResult | undefined;
  /** Why the command never started. */
  readonly error?: TaskFailure | undefined;
  /** The workspace as the command left it, as `acode fork import` takes it after `gunzip`; null where it was not asked for. */
  readonly files: () => Promise<Uint8Array | null>;
}

/** One task that was submitted. */
export interface FleetTask {
  /** Its id. */
  readonly id: string;
  /** What it prints, from the first byte on, also of an attempt after a lost one; ends with the task. */
  logs(signal?: AbortSignal): AsyncIterable<LogChunk>;
  /** How it ended, when it has. */
  end(signal?: AbortSignal): Promise<TaskEnd>;
  /** The result of its command; rejects where it never started. */
  result(signal?: AbortSignal): Promise<RunResult>;
  /** Cancels it. */
  cancel(signal?: AbortSignal): Promise<void>;
}

/** Queues a task again, under its id. */
type Queue = (signal?: AbortSignal) => Promise<unknown>;

/**
 * The fleet, for one tenant.
 *
 * @example
 * import { Fleet, PostgresEngine, makeKeys, packWorkspace } from '@acode/fleet';
 *
 * const engine = await PostgresEngine.open({ url: 'postgres://acode@10.0.0.1/fleet' });
 * await using fleet = new Fleet({ engine, tenant: 'acme', keys: makeKeys() });
 * const task = await fleet.submit(['npm', 'test'], { workspace: await packWorkspace('.') });
 * const { exitCode, stdout } = await task.result();
 */
export class Fleet implements AsyncDisposable {
  readonly #options: FleetOptions;
  readonly #tasks: FleetTasks;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#tasks = new FleetTasks(options.engine);
  }

  /** Submits a task. The same id again is the same task, whatever its command. */
  async submit(command: Command, request: TaskRequest = {}, signal?: AbortSignal): Promise<FleetTask> {
    const { engine, tenant, keys } = this.#options;
    const { id = randomUUID(), pool = 'default', priority = 'normal', workspace, ...rest } = request;
    const hash = workspace && hashOf(workspace);
    const named = { tenant, id, pool, priority };
    const packed = workspace && hash ? { workspace: { hash, bytes: workspace.length } } : {};
    const body = bodyOf(command, { ...rest, ...named, ...packed });
    // What a worker would refuse is refused here already.
    parseSpec(body);
    if (workspace && hash) await engine.putBlob(tenant, hash, workspace, signal);
    const task = { ...named, body: signed('task', body, keys) };
    const queue: Queue = within => this.#tasks.submit(task, within);
    await queue(signal);
    return this.#task({ tenant, id }, queue);
  }

  /** A task that was submitted before, perhaps by another process. */
  task(id: string): FleetTask {
    return this.#task({ tenant: this.#options.tenant, id }, null);
  }

  /** Disconnects. Tasks go on. */
  async close(): Promise<void> {
    await this.#options.engine.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #task(key: TaskKey, queue: Queue | null): FleetTask {
    const end = async (signal?: AbortSignal): Promise<TaskEnd> =>
      this.#ended(key, await this.#final(key, queue, signal));
    return {
      id: key.id,
      logs: signal => this.#logs(key, queue, signal),
      end,
      result: async signal => resultOf(key, await end(signal)),
      cancel: async signal => void (await this.#tasks.cancel(key, signal)),
    };
  }

  // A task that no worker has may have been lost with a stream: it is queued again, which changes nothing where it was not.
  async #final(key: TaskKey, queue: Queue | null, signal?: AbortSignal): Promise<TaskState> {
    const { engine } = this.#options;
    let wake: () => void = () => undefined;
    await using _listening = await engine.listen({ tenant: key.tenant }, id => {
      if (id === key.id) wake();
    });
    for (;;) {
      signal?.throwIfAborted();
      const noticed = new Promise<void>(resolve => (wake = resolve));
      const state = await this.#tasks.state(key, signal);
      if (state && isFinal(state)) return state;
      if (state?.state !== 'claimed') await queue?.(signal);
      await Promise.race([noticed, paused(LOOK_MS, signal)]);
    }
  }

  #ended(key: TaskKey, state: TaskState): TaskEnd {
    const outcome = state.outcome === undefined ? null : this.#outcome(key, state, state.outcome);
    const hash = outcome?.files;
    return {
      state: state.state,
      attempt: state.attempt,
      result: outcome?.result,
      error: outcome?.error,
      files: async () => {
        const bytes = hash === undefined ? null : await this.#options.engine.getBlob(key.tenant, hash);
        if (bytes && hashOf(bytes) !== hash) throw distrusted(key, 'its files are others than the worker signed');
        return bytes;
      },
    };
  }

  #outcome(key: TaskKey, state: TaskState, envelope: string): Outcome {
    const { workers } = this.#options;
    const body = workers === undefined ? unverified(envelope) : verified('result', envelope, workers);
    if (body === null) throw distrusted(key, 'no known worker has signed it');
    const outcome = parseOutcome(body);
    // Signed for another claim, it would be a result of before.
    const isSame = outcome?.tenant === key.tenant && outcome.id === key.id && outcome.claim === state.claim;
    if (!isSame || outcome.attempt !== state.attempt) throw distrusted(key, 'it was signed for another task or claim');
    return outcome;
  }

  async *#logs(key: TaskKey, queue: Queue | null, signal?: AbortSignal): AsyncGenerator<LogChunk, void, undefined> {
    const stop = new AbortController();
    const within = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    const over = this.#final(key, queue, within).catch(() => new Promise<null>(() => undefined));
    try {
      for (let attempt = 1; !within.aborted; attempt += 1) {
        const ended = new AbortController();
        const about = { attempt, over, ended, last: Infinity };
        const watching = this.#watch(key, about, within);
        const both = AbortSignal.any([within, ended.signal]);
        for await (const { sequence, bytes } of this.#options.engine.followLog({ ...key, attempt }, 0, both)) {
          yield* decodePiece(bytes);
          if (sequence >= about.last) break;
        }
        ended.abort();
        if ((await watching) <= attempt) return;
      }
    } finally {
      stop.abort();
    }
  }

  // Ends the log of one attempt, and returns the attempt that the task has by then.
  async #watch(
    key: TaskKey,
    about: {
      readonly attempt: number;
      readonly over: Promise<TaskState | null>;
      readonly ended: AbortController;
      last: number;
    },
    signal: AbortSignal,
  ): Promise<number> {
    const { attempt, over, ended } = about;
    const within = AbortSignal.any([signal, ended.signal]);
    for (;;) {
      const state = (await Promise.race([over, paused(LOOK_MS, within)])) ?? (await this.#stateOr(key, within));
      if (within.aborted) return state?.attempt ?? 0;
      if (!isEnded(state, attempt)) continue;
      const isEarlier = state.attempt > attempt;
      about.last = isEarlier ? Infinity : piecesOf(state);
      // What is on its way still arrives. How much an attempt has that was lost, nobody knows; and a lost piece is not waited for.
      if (about.last > 0) await paused(LOOK_MS, within);
      ended.abort();
      return state.attempt;
    }
  }

  async #stateOr(key: TaskKey, signal: AbortSignal): Promise<TaskState | null> {
    return this.#tasks.state(key, signal).catch(() => null);
  }
}

function bodyOf(command: Command, fields: object): string {
  return JSON.stringify({
    ...fields,
    schema: 'acode.fleet.task/1',
    submittedAt: new Date().toISOString(),
    command: typeof command === 'string' ? command : [...command],
  });
}

// Whether the log of an attempt can get no more pieces.
function isEnded(state: TaskState | null, attempt: number): state is TaskState {
  return state !== null && (isFinal(state) || state.attempt > attempt);
}

function piecesOf({ outcome }: TaskState): number {
  const body = outcome === undefined ? null : unverified(outcome);
  return body === null ? 0 : (parseOutcome(body)?.logPieces ?? 0);
}

function distrusted({ id }: TaskKey, reason: string): Error {
  return FLEET_ERRORS.create('ACODE-FLT-017', { task: id, reason });
}

function resultOf({ tenant, id }: TaskKey, { state, result, error, attempt }: TaskEnd): RunResult {
  if (result) return result;
  if (state === 'cancelled') throw FLEET_ERRORS.create('ACODE-FLT-016', { task: id });
  if (error) {
    const { code, message, hint } = error;
    throw FLEET_ERRORS.create('ACODE-FLT-018', { task: id, code, message, hint });
  }
  if (state === 'lost') throw FLEET_ERRORS.create('ACODE-FLT-015', { task: id, attempts: attempt });
  throw FLEET_ERRORS.create('ACODE-FLT-011', { tenant, task: id });
}
