// Client of a fleet: submits tasks and keeps each until it has read how it ended. It runs commands as `Acode` does.

import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { Command, CommandRunner, RunResult, RunnerRequest, RunningCommand } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { FleetEngine, QueuedTask } from '../engine/engine.ts';
import type { GateLink } from '../engine/link.ts';
import type { TaskKey } from '../engine/names.ts';
import { openEngine } from '../connect/open-engine.ts';
import type { EngineAddress } from '../connect/open-engine.ts';
import { openGate } from '../connect/open-gate.ts';
import type { GateAddress } from '../connect/open-gate.ts';
import { hashOf, signed } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { MAX_STDIN, parseSpec } from '../tasks/spec.ts';
import type { TaskRequest } from '../tasks/spec.ts';
import { DirectAccess } from './access.ts';
import type { TaskAccess } from './access.ts';
import { readFleetFile } from './file.ts';
import { GateAccess } from './gate-access.ts';
import { Outbox } from './outbox.ts';
import type { OutboxEntry } from './outbox.ts';
import { FleetRunning } from './running.ts';
import { SubmittedTask } from './task.ts';
import type { FleetTask, Noticed } from './task.ts';

/** Who submits, and where: straight to the engine, or through a gate. */
export type FleetOptions = FleetSubmitter &
  (
    | {
        /** The engine: one that is open, or its address as a file has it. {@link Fleet.close} closes it. */
        readonly engine: FleetEngine | EngineAddress;
        /** None. */
        readonly gate?: undefined;
      }
    | {
        /** The gates of the fleet, or a link to them: what a tenant has, whom the operator lets do no more than submit. */
        readonly gate: GateAddress | GateLink;
        /** None. */
        readonly engine?: undefined;
      }
  );

/** Who submits. */
export interface FleetSubmitter {
  /** The fleet’s name, where an address is given; `acode` by default. */
  readonly fleet?: string | undefined;
  /** The tenant. */
  readonly tenant: string;
  /** The tenant’s keys; the public one is registered with the workers. */
  readonly keys: KeyPair;
  /** The pool of tasks that name none; `default` by default. */
  readonly pool?: string | undefined;
  /** Public keys of workers. With them, a result of any other is refused; without, anyone who can write the state is believed. */
  readonly workers?: readonly string[] | undefined;
  /**
   * A directory where tasks are kept until their end was read, so that also another process can submit them again if the servers lose
   * them. Without it, this process keeps them.
   */
  readonly outbox?: string | undefined;
}

/** What {@link Fleet.run} takes with a command: what every runner takes, and what a task may say. */
export type FleetRunRequest = RunnerRequest & Omit<TaskRequest, 'stdin' | 'cwd' | 'env'>;

/**
 * The fleet, for one tenant. It is a `CommandRunner`, as `Acode` is: what runs commands with the one works with the other.
 *
 * @example
 * import { Fleet, packWorkspace } from '@acode/fleet';
 *
 * await using fleet = await Fleet.open('fleet.yml');
 * const task = await fleet.submit(['npm', 'test'], { workspace: await packWorkspace('.') });
 * for await (const { bytes } of task.logs()) process.stdout.write(bytes);
 * const { exitCode } = await task.result();
 */
export class Fleet implements CommandRunner, AsyncDisposable {
  readonly #access: TaskAccess;
  readonly #options: FleetSubmitter;
  readonly #outbox: Outbox | null;
  readonly #wakers = new Map<string, Set<() => void>>();
  #listening: Promise<AsyncDisposable> | null = null;

  private constructor(access: TaskAccess, options: FleetSubmitter) {
    this.#access = access;
    this.#options = options;
    this.#outbox = options.outbox === undefined ? null : new Outbox(options.outbox, options.tenant);
  }

  /** Connects: with these options, or with those of a file. */
  static async open(options: FleetOptions | string, signal?: AbortSignal): Promise<Fleet> {
    if (typeof options === 'string') return Fleet.open(await readFleetFile(options), signal);
    const { engine, gate, fleet = 'acode', ...rest } = options;
    if (gate) {
      const link = 'call' in gate ? gate : await openGate(gate, fleet, options.tenant);
      return new Fleet(new GateAccess(link), rest);
    }
    const opened = 'enqueue' in engine ? engine : await openEngine({ engine, fleet }, signal);
    return new Fleet(new DirectAccess(opened), rest);
  }

  /** Submits a task. The same id again is the same task, whatever its command. */
  async submit(command: Command, request: TaskRequest = {}, signal?: AbortSignal): Promise<FleetTask> {
    const workspace = request.workspace ?? null;
    const entry = this.#entry(command, request, workspace);
    // Before it is sent: a process that dies now has submitted it all the same.
    this.#outbox?.add(entry, workspace);
    await this.#send(entry, workspace, signal);
    return this.#task({ tenant: entry.tenant, id: entry.id }, entry, workspace);
  }

  /** A task that was submitted before, perhaps by another process. */
  task(id: string): FleetTask {
    return this.#task({ tenant: this.#options.tenant, id }, this.#outbox?.find(id) ?? null, null);
  }

  /** The tasks whose end was not read yet, of every process with the same outbox. Each is submitted again if it was lost. */
  pending(): FleetTask[] {
    return (this.#outbox?.ids() ?? []).map(id => this.task(id));
  }

  /** Runs a command to its end. `signal` cancels it, and it rejects with ACODE-SBX-014 then. */
  async run(command: Command, request: FleetRunRequest = {}): Promise<RunResult> {
    return (await this.spawn(command, request)).result;
  }

  /** Starts a command and returns a handle on it, with its streams. Its input is what `stdin` has when it is submitted. */
  async spawn(command: Command, request: FleetRunRequest = {}): Promise<RunningCommand> {
    const { signal, onStdout, onStderr, stdin, ...rest } = request;
    signal?.throwIfAborted();
    const text = stdin === undefined ? {} : { stdin: await textOf(stdin) };
    const task = await this.submit(command, { ...rest, ...text }, signal);
    return new FleetRunning(task, { onStdout, onStderr }, signal);
  }

  /** Disconnects. Tasks go on. */
  async close(): Promise<void> {
    await (await this.#listening?.catch(() => null))?.[Symbol.asyncDispose]();
    await this.#access.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #entry(command: Command, request: TaskRequest, workspace: Uint8Array | null): OutboxEntry {
    const { tenant, keys, pool: usual = 'default' } = this.#options;
    const { id = randomUUID(), pool = usual, priority = 'normal', workspace: _, ...rest } = request;
    const hash = workspace && hashOf(workspace);
    const named = { tenant, id, pool, priority };
    const packed = workspace ? { workspace: { hash, bytes: workspace.length } } : {};
    const body = bodyOf(command, { ...rest, ...named, ...packed });
    // What a worker would refuse is refused here already.
    parseSpec(body);
    return { ...named, body: signed('task', body, keys), workspace: hash };
  }

  async #send(entry: OutboxEntry, workspace: Uint8Array | null, signal?: AbortSignal): Promise<void> {
    const { workspace: hash, ...task } = entry;
    if (workspace && hash !== null) await this.#access.putBlob(entry.tenant, hash, workspace, signal);
    await this.#access.submit(task satisfies QueuedTask, signal);
  }

  #task(key: TaskKey, entry: OutboxEntry | null, workspace: Uint8Array | null): FleetTask {
    // A task that the queue has is not lost, whatever its state says.
    const repair = async (kept: OutboxEntry, signal?: AbortSignal): Promise<void> => {
      if (await this.#access.isQueued(key, kept.pool, signal)) return;
      await this.#send(kept, workspace ?? (await this.#outbox?.workspace(kept)) ?? null, signal);
    };
    return new SubmittedTask({
      access: this.#access,
      key,
      workers: this.#options.workers,
      repair: entry && (signal => repair(entry, signal)),
      noticed: id => this.#noticed(id),
      waiting: () => this.#wakers.size,
      over: () => this.#outbox?.remove(key.id),
    });
  }

  // One subscription for all tasks.
  async #noticed(id: string): Promise<Noticed> {
    this.#listening ??= this.#access.listen(this.#options.tenant, changed => {
      for (const wake of this.#wakers.get(changed) ?? []) wake();
    });
    await this.#listening.catch(() => (this.#listening = null));
    let wake: () => void = () => undefined;
    const wakers = this.#wakers.get(id) ?? new Set();
    const noticed = (): void => wake();
    this.#wakers.set(id, wakers.add(noticed));
    return {
      next: () => new Promise<void>(resolve => (wake = resolve)),
      [Symbol.dispose]: () => {
        wakers.delete(noticed);
        if (wakers.size === 0) this.#wakers.delete(id);
      },
    };
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

// A task is JSON: its input is text.
async function textOf(stdin: string | Uint8Array | Readable): Promise<string> {
  if (typeof stdin === 'string') return stdin;
  const bytes = stdin instanceof Uint8Array ? stdin : await read(stdin);
  const text = Buffer.from(bytes).toString('utf8');
  if (Buffer.from(text).equals(bytes)) return text;
  throw FLEET_ERRORS.create('ACODE-FLT-008', { field: 'stdin', reason: 'is not text in UTF-8' });
}

async function read(stream: Readable): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  const chunks: AsyncIterable<unknown> = stream;
  for await (const chunk of chunks) {
    const next = chunk instanceof Uint8Array ? Buffer.from(chunk) : Buffer.from(String(chunk));
    bytes += next.length;
    if (bytes > MAX_STDIN)
      throw FLEET_ERRORS.create('ACODE-FLT-007', { what: 'The standard input', bytes, maxBytes: MAX_STDIN });
    pieces.push(next);
  }
  return Buffer.concat(pieces);
}
