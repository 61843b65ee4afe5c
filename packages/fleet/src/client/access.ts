// Access of a client to the tasks of its tenant: straight to the engine, for programs that the operator trusts.

import type { FleetEngine, LogBatch, LogKey, SandboxLease } from '../engine/engine.ts';
import type { TaskKey } from '../engine/names.ts';
import type { TaskState } from '../tasks/state.ts';
import { FleetTasks } from '../tasks/tasks.ts';
import type { NewTask } from '../tasks/tasks.ts';

/** What a client does with the tasks of one tenant. Every call has a deadline, and can be repeated. */
export interface TaskAccess {
  /** Queues a task; `present` where it is in the queue already, or its result is kept. */
  submit(task: NewTask, signal?: AbortSignal): Promise<'queued' | 'present'>;
  /** Whether the queue has the task. */
  isQueued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<boolean>;
  /** The state of a task; null where none was written. */
  state(key: TaskKey, signal?: AbortSignal): Promise<TaskState | null>;
  /** Cancels a task. */
  cancel(key: TaskKey, signal?: AbortSignal): Promise<void>;
  /** The pieces of a log after a number: those that are there, then each as it comes, until `signal` aborts. */
  followLog(key: LogKey, after: number, signal: AbortSignal): AsyncIterable<LogBatch>;
  /** Stores bytes under their SHA-256. */
  putBlob(tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void>;
  /** The bytes; null where the tenant has none of that hash. */
  getBlob(tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null>;
  /** Calls `onNotice` with the id of each task of the tenant that changed. A notice may be lost. */
  listen(tenant: string, onNotice: (id: string) => void): Promise<AsyncDisposable>;
  /** The leases of the tenant’s sandboxes that hold. */
  sandboxes(tenant: string, signal?: AbortSignal): Promise<SandboxLease[]>;
  /** Sends a message straight to a sandbox; rejects with ACODE-FLT-050 where nobody answers. */
  ask(sandbox: TaskKey, message: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /** Disconnects. */
  close(): Promise<void>;
}

/** Straight to the engine. Whoever can do this can do everything on it: it is for programs that the operator trusts. */
export class DirectAccess implements TaskAccess {
  readonly #engine: FleetEngine;
  readonly #tasks: FleetTasks;

  constructor(engine: FleetEngine) {
    this.#engine = engine;
    this.#tasks = new FleetTasks(engine);
  }

  submit(task: NewTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    return this.#tasks.submit(task, signal);
  }

  async isQueued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<boolean> {
    return (await this.#engine.queued(key, pool, signal)) !== null;
  }

  state(key: TaskKey, signal?: AbortSignal): Promise<TaskState | null> {
    return this.#tasks.state(key, signal);
  }

  async cancel(key: TaskKey, signal?: AbortSignal): Promise<void> {
    await this.#tasks.cancel(key, signal);
  }

  followLog(key: LogKey, after: number, signal: AbortSignal): AsyncIterable<LogBatch> {
    return this.#engine.followLog(key, after, signal);
  }

  putBlob(tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    return this.#engine.putBlob(tenant, hash, bytes, signal);
  }

  getBlob(tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null> {
    return this.#engine.getBlob(tenant, hash, signal);
  }

  listen(tenant: string, onNotice: (id: string) => void): Promise<AsyncDisposable> {
    return this.#engine.listen({ tenant }, onNotice);
  }

  sandboxes(tenant: string, signal?: AbortSignal): Promise<SandboxLease[]> {
    return this.#engine.sandboxes(tenant, signal);
  }

  ask(sandbox: TaskKey, message: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    return this.#engine.ask(sandbox, message, signal);
  }

  close(): Promise<void> {
    return this.#engine.close();
  }
}
