// One submitted task: its log, its end, its result, its cancellation. What a server lost is queued again until the end is read.

import type { RunResult } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused } from '../engine/retry.ts';
import { decodePiece } from '../tasks/log-pieces.ts';
import type { LogChunk } from '../tasks/log-pieces.ts';
import { parseOutcome } from '../tasks/outcome.ts';
import type { Outcome } from '../tasks/outcome.ts';
import { hashOf, unverified, verified } from '../tasks/signature.ts';
import { isFinal } from '../tasks/state.ts';
import type { TaskState, TaskStateName } from '../tasks/state.ts';
import type { TaskAccess } from './access.ts';

// A notice comes at once. This is for one that was lost: soon at first, then less and less often, and less often with many tasks.
const LOOK_MS = 1000;
const LESS_OFTEN = 1.5;
const MANY = 20;
const MAX_LOOK_MS = 20_000;
// Pieces that were sent before the result may still be on their way.
const LATE_MS = 1000;
const QUIET_LOOKS = 3;

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

/** Where a task stands. */
export interface TaskPosition {
  /** The state. */
  readonly state: TaskStateName;
  /** How many workers have begun it. */
  readonly attempt: number;
  /** The worker that has it, or had it last. */
  readonly worker: string | null;
  /** When it came into this state. */
  readonly at: string;
}

/** One task that was submitted. */
export interface FleetTask {
  /** Its id. */
  readonly id: string;
  /**
   * What it prints, from the first byte on, also of an attempt after a lost one; ends with the task. A lost connection does not end
   * it: it goes on where it was. Each call reads from the beginning.
   */
  logs(signal?: AbortSignal): AsyncIterable<LogChunk>;
  /** Where it stands now; null where no worker has had it yet. */
  state(signal?: AbortSignal): Promise<TaskPosition | null>;
  /** How it ended, when it has. */
  end(signal?: AbortSignal): Promise<TaskEnd>;
  /** The result of its command; rejects where it never started. */
  result(signal?: AbortSignal): Promise<RunResult>;
  /** Cancels it. */
  cancel(signal?: AbortSignal): Promise<void>;
}

/** What a task needs of its fleet. */
export interface TaskParts {
  readonly access: TaskAccess;
  readonly key: TaskKey;
  /** Public keys of workers whose results are taken; absent: those of all. */
  readonly workers: readonly string[] | undefined;
  /** This client queued it just now, and hears every notice about it: before the first one there is nothing to read. */
  readonly isNew: boolean;
  /** Queues it again if the fleet has lost it; null where this process did not keep it. */
  readonly repair: ((signal?: AbortSignal) => Promise<void>) | null;
  /** Waits until something happens to the task. */
  readonly noticed: (id: string) => Promise<Noticed>;
  /** How many tasks of this client are waited for. */
  readonly waiting: () => number;
  /** Its end was read: it need not be kept any more. */
  readonly over: () => void;
}

/** Notices about one task. */
export interface Noticed extends Disposable {
  /** Settles with the next notice. */
  next(): Promise<void>;
}

/** A task of a fleet. */
export class SubmittedTask implements FleetTask {
  readonly #parts: TaskParts;
  #isNew: boolean;

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.#isNew = parts.isNew;
  }

  get id(): string {
    return this.#parts.key.id;
  }

  state(signal?: AbortSignal): Promise<TaskPosition | null> {
    return this.#parts.access.state(this.#parts.key, signal);
  }

  async end(signal?: AbortSignal): Promise<TaskEnd> {
    const end = this.#ended(await this.#final(signal));
    this.#parts.over();
    return end;
  }

  async result(signal?: AbortSignal): Promise<RunResult> {
    return resultOf(this.#parts.key, await this.end(signal));
  }

  async cancel(signal?: AbortSignal): Promise<void> {
    await this.#parts.access.cancel(this.#parts.key, signal);
  }

  async *logs(signal?: AbortSignal): AsyncGenerator<LogChunk, void, undefined> {
    const stop = new AbortController();
    const within = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    const over = this.#final(within).catch(() => new Promise<null>(() => undefined));
    try {
      for (let attempt = 1; !within.aborted; attempt += 1) {
        const reading = new ReadLog(within);
        const watching = this.#watch(attempt, over, reading);
        for await (const { sequence, bytes } of this.#parts.access.followLog(
          { ...this.#parts.key, attempt },
          0,
          reading.signal,
        )) {
          reading.isBusy = true;
          yield* decodePiece(bytes);
          reading.isBusy = false;
          reading.read(sequence);
        }
        reading.end();
        if ((await watching) <= attempt) return;
      }
    } finally {
      stop.abort();
    }
  }

  #lookMs(look: number): number {
    return Math.min(MAX_LOOK_MS, LOOK_MS * Math.max(LESS_OFTEN ** look, this.#parts.waiting() / MANY));
  }

  // A task that is nowhere was lost with a stream: it is queued again, which changes nothing where it was not.
  async #final(signal?: AbortSignal): Promise<TaskState> {
    const { key, access, repair, noticed } = this.#parts;
    const waitsFirst = this.#isNew;
    this.#isNew = false;
    using notices = await noticed(key.id);
    let repairAt = performance.now() + 2 * LOOK_MS;
    for (let look = 0; ; look += 1) {
      signal?.throwIfAborted();
      const next = notices.next();
      const state = look === 0 && waitsFirst ? null : await access.state(key, signal);
      if (state && isFinal(state)) return state;
      if (performance.now() >= repairAt) {
        await repair?.(signal);
        repairAt = performance.now() + 2 * this.#lookMs(look);
      }
      await racing(next, this.#lookMs(look), signal);
    }
  }

  // Ends the log of one attempt, and returns the attempt that the task has by then.
  async #watch(attempt: number, over: Promise<TaskState | null>, reading: ReadLog): Promise<number> {
    const { signal } = reading;
    const { access, key } = this.#parts;
    for (let look = 0; ; look += 1) {
      const state =
        (await Promise.race([over, paused(this.#lookMs(look), signal)])) ??
        (await access.state(key, signal).catch(() => null));
      if (signal.aborted) return state?.attempt ?? 0;
      if (!isEnded(state, attempt)) continue;
      // How much an attempt has that was lost, nobody knows; and a lost piece is not waited for.
      reading.upTo(state.attempt > attempt ? Infinity : piecesOf(state));
      await quiet(reading);
      reading.end();
      return state.attempt;
    }
  }

  #ended(state: TaskState): TaskEnd {
    const { key, access } = this.#parts;
    const outcome = state.outcome === undefined ? null : this.#outcome(state, state.outcome);
    const hash = outcome?.files;
    return {
      state: state.state,
      attempt: state.attempt,
      result: outcome?.result,
      error: outcome?.error,
      files: async () => {
        const bytes = hash === undefined ? null : await access.getBlob(key.tenant, hash);
        if (bytes && hashOf(bytes) !== hash) throw distrusted(key, 'its files are others than the worker signed');
        return bytes;
      },
    };
  }

  #outcome(state: TaskState, envelope: string): Outcome {
    const { key, workers } = this.#parts;
    const body = workers === undefined ? unverified(envelope) : verified('result', envelope, workers);
    if (body === null) throw distrusted(key, 'no known worker has signed it');
    const outcome = parseOutcome(body);
    // Signed for another claim, it would be a result of before.
    const isSame = outcome?.tenant === key.tenant && outcome.id === key.id && outcome.claim === state.claim;
    if (!isSame || outcome.attempt !== state.attempt) throw distrusted(key, 'it was signed for another task or claim');
    return outcome;
  }
}

/** How far a log was read, and how far it goes. */
class ReadLog {
  readonly signal: AbortSignal;
  readonly #ended = new AbortController();
  /** Whether its reader has a piece, and has not asked for the next one. */
  isBusy = false;
  #read = 0;
  #last = Infinity;

  constructor(within: AbortSignal) {
    this.signal = AbortSignal.any([within, this.#ended.signal]);
  }

  read(sequence: number): void {
    this.#read = sequence;
    this.upTo(this.#last);
  }

  get position(): number {
    return this.#read;
  }

  upTo(last: number): void {
    this.#last = last;
    if (this.#read >= last) this.end();
  }

  end(): void {
    this.#ended.abort();
  }
}

// A slow reader has all the time that it needs; a piece that is missing, a few seconds.
async function quiet(reading: ReadLog): Promise<void> {
  const { signal } = reading;
  for (let looks = 0, seen = reading.position; looks < QUIET_LOOKS && !signal.aborted; looks += 1) {
    await paused(LATE_MS, signal);
    if (reading.isBusy || reading.position !== seen) looks = -1;
    seen = reading.position;
  }
}

// Made once: an error for each wait would cost more than the wait.
const ENOUGH = new Error('not waited for any more');

/** Waits for a notice, or for a time. A timer that is not needed any more would keep the process for a second. */
export async function racing(next: Promise<void>, ms: number, signal?: AbortSignal): Promise<void> {
  const enough = new AbortController();
  await Promise.race([next, paused(ms, signal ? AbortSignal.any([signal, enough.signal]) : enough.signal)]);
  enough.abort(ENOUGH);
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
