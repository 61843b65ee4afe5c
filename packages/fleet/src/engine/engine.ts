// Fleet engine: the few durable operations that everything else of the fleet is made of.

import type { Priority, TaskKey } from './names.ts';

/** A task as it is queued. */
export interface QueuedTask extends TaskKey {
  /** The pool of workers that it is for. */
  readonly pool: string;
  /** How urgent it is. */
  readonly priority: Priority;
  /** What is to be done. The engine does not read it. */
  readonly body: string;
}

/** A task that was handed to a worker. It is a hint and no permission: only a claim in the task’s state is one. */
export interface Delivery {
  /** The task. */
  readonly task: QueuedTask;
  /** How often it was handed out, this time included. */
  readonly deliveries: number;
  /** Keeps the task from being handed out again, for the time of `hideMs` from now on. */
  prolong(): Promise<void>;
  /** Hands the task out again after a delay, to any worker. */
  release(delayMs: number): Promise<void>;
  /** Removes the task from the queue: it has reached a state that is final. */
  done(): Promise<void>;
}

/** Which tasks a worker takes. */
export interface TakeRequest {
  /** The pool. */
  readonly pool: string;
  /** The most tasks. */
  readonly max: number;
  /** How long to wait for the first one, in milliseconds; at most 5,000. */
  readonly waitMs: number;
}

/** A value with the revision that `write` compares. */
export interface Revised {
  /** The value. */
  readonly text: string;
  /** Its revision: a positive number. */
  readonly revision: number;
}

/** What a write says besides the value. */
export interface WriteOptions {
  /** After how many milliseconds the value may be forgotten; absent means never. */
  readonly keepMs?: number;
}

/** The lease of a worker. */
export interface Lease {
  /** The worker, a name that is used for one process only. */
  readonly worker: string;
  /** What it says of itself. The engine does not read it. */
  readonly body: string;
}

/** The lease of a persistent sandbox. */
export interface SandboxLease extends TaskKey {
  /** What its worker says of it. The engine does not read it. */
  readonly body: string;
}

/** Answers one message to a sandbox. Null: it gets no answer. */
export type MessageHandler = (message: Uint8Array) => Promise<Uint8Array | null>;

/** A piece of a log, numbered by its writer from 1. */
export interface LogBatch {
  /** Its number. */
  readonly sequence: number;
  /** Its bytes. */
  readonly bytes: Uint8Array;
}

/** Which log: that of one attempt at a task. */
export interface LogKey extends TaskKey {
  /** The attempt, from 1. */
  readonly attempt: number;
}

/**
 * Durable queue, state, leases, logs and blobs of a fleet. Every call has a deadline, takes a signal and can be repeated. A call that
 * rejects may have taken effect all the same: callers read again before they decide.
 *
 * What an engine promises: a task that was enqueued is handed out until it is done or gone. Of all writers that name the same
 * revision, one succeeds. A lease that is not renewed is gone after its time, and not before.
 */
export interface FleetEngine extends AsyncDisposable {
  /** Which implementation it is. */
  readonly kind: 'memory' | 'nats' | 'postgres';
  /** How long a delivery hides a task from other workers, in milliseconds. */
  readonly hideMs: number;

  /** Queues a task; `present` where a task of that key is in the queue already, whatever its body is. */
  enqueue(task: QueuedTask, signal?: AbortSignal): Promise<'queued' | 'present'>;
  /** The task as it was queued; null where the queue does not have it (any more). */
  queued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<QueuedTask | null>;
  /** Takes tasks from the queue, the most urgent ones first; waits for the first one. */
  take(request: TakeRequest, signal?: AbortSignal): Promise<Delivery[]>;
  /**
   * One task of the queue, for a worker that was told to begin it; null where the queue does not have it (any more). It is hidden from
   * nobody: `prolong` and `release` do nothing.
   */
  pick(key: TaskKey, pool: string, signal?: AbortSignal): Promise<Delivery | null>;
  /**
   * Every task of a pool’s queue, in the order in which they came, those in progress included; then each as it comes, until `signal`
   * aborts. One may come more than once.
   */
  watchQueue(pool: string, signal: AbortSignal): AsyncIterable<Omit<QueuedTask, 'body'>>;
  /** How many tasks a pool’s queue has, those in progress included. */
  depth(pool: string, signal?: AbortSignal): Promise<number>;
  /** How many tasks of a tenant the queues of all pools have, those in progress included. */
  unfinished(tenant: string, signal?: AbortSignal): Promise<number>;

  /** The state of a task; null where it has none. */
  read(key: TaskKey, signal?: AbortSignal): Promise<Revised | null>;
  /** Writes the state of a task if its revision is still the one that is named (0: there is none); null where it is not. */
  write(
    key: TaskKey,
    revision: number,
    text: string,
    options?: WriteOptions,
    signal?: AbortSignal,
  ): Promise<number | null>;

  /** Makes or renews the lease of a worker or a sandbox: it holds for `ttlMs` from now on. */
  renew(lease: Lease | SandboxLease, ttlMs: number, signal?: AbortSignal): Promise<void>;
  /** Every lease of a worker that holds. */
  leases(signal?: AbortSignal): Promise<Lease[]>;
  /** Every lease of a tenant’s sandboxes that holds. */
  sandboxes(tenant: string, signal?: AbortSignal): Promise<SandboxLease[]>;
  /** Whether the lease of a worker holds. */
  isLeased(worker: string, signal?: AbortSignal): Promise<boolean>;
  /** Ends the lease of a worker or a sandbox at once. */
  endLease(holder: string | TaskKey, signal?: AbortSignal): Promise<void>;

  /** Answers the messages to a sandbox until it is disposed. They take no queue, and nothing of them is kept. */
  serve(sandbox: TaskKey, handler: MessageHandler): Promise<AsyncDisposable>;
  /** Sends a message to the one who serves a sandbox. Rejects with ACODE-FLT-050 where nobody answers: it may have arrived all the same. */
  ask(sandbox: TaskKey, message: Uint8Array, signal?: AbortSignal): Promise<Uint8Array>;

  /** Adds a piece to a log. One with a number that is there already changes nothing. */
  appendLog(key: LogKey, batch: LogBatch, signal?: AbortSignal): Promise<void>;
  /**
   * The pieces of a log after a number, in order: those that are there, then each as it comes, until `signal` aborts or the reader
   * stops. Old pieces may be missing.
   */
  followLog(key: LogKey, after: number, signal: AbortSignal): AsyncIterable<LogBatch>;

  /** Stores bytes under their SHA-256, for one tenant, for about a day from now. */
  putBlob(tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void>;
  /** The bytes; null where the tenant has none of that hash. The reader verifies the hash. */
  getBlob(tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null>;

  /** Wakes those who listen to a topic. Nothing durable: who must not miss something reads it again now and then. */
  notify(topic: Topic, text: string): Promise<void>;
  /** Calls `onNotice` for each notice of a topic, until it is disposed. */
  listen(topic: Topic, onNotice: (text: string) => void): Promise<AsyncDisposable>;

  /** Disconnects. Deliveries that were not released are handed out again later. */
  close(): Promise<void>;
}

/** What notices are about: the tasks of a tenant, one worker, what the operator asks of a worker, or the workers of a pool. */
export type Topic =
  | {
      /** Tasks of this tenant. */
      readonly tenant: string;
    }
  | {
      /** This worker. */
      readonly worker: string;
    }
  | {
      /** This worker, by its operator. */
      readonly control: string;
    }
  | {
      /** What the workers of this pool offer. */
      readonly pool: string;
    };

/** The largest body of a task and the largest state, in bytes. */
export const MAX_TEXT_BYTES = 512 * 1024;
/** The largest blob, in bytes. */
export const MAX_BLOB_BYTES = 8 * 1024 ** 2;
/** The largest piece of a log, in bytes. */
export const MAX_LOG_BATCH_BYTES = 256 * 1024;
/** How long the engine keeps logs, in milliseconds. */
export const LOG_KEEP_MS = 3_600_000;
/** How long the engine keeps blobs, in milliseconds. */
export const BLOB_KEEP_MS = 24 * 3_600_000;
/** How long a delivery hides a task, where nothing else is said. */
export const HIDE_MS = 30_000;
/** The most tasks that a fleet’s queue has, where nothing else is said. */
export const MAX_QUEUED = 1_000_000;
/** The largest message to a sandbox and its largest answer, in bytes: as much as a gate passes on. */
export const MAX_MESSAGE_BYTES = 512 * 1024;
/** How long the answer of a sandbox may take. */
export const ANSWER_MS = 10_000;
/** How long one call of an engine may take, retries included. */
export const CALL_MS = 30_000;
/** The longest wait of one `take`. */
export const MAX_WAIT_MS = 5000;
