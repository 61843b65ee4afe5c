// Client of a fleet: submits tasks and keeps each until it has read how it ended. It runs commands as `Acode` does.

import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { AcodeError } from '@acode/sandbox';
import type { Command, CommandRunner, RunResult, RunnerRequest, RunningCommand } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { FleetEngine } from '../engine/engine.ts';
import type { GateLink } from '../engine/link.ts';
import { checkedKey } from '../engine/names.ts';
import type { TaskKey } from '../engine/names.ts';
import { openEngine } from '../connect/open-engine.ts';
import type { EngineAddress } from '../connect/open-engine.ts';
import { openGate } from '../connect/open-gate.ts';
import type { GateAddress } from '../connect/open-gate.ts';
import { hashOf, signed } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { MAX_STDIN, parseSpec } from '../tasks/spec.ts';
import type { FleetCreateRequest, SandboxSpec, TaskRequest, TaskSpec } from '../tasks/spec.ts';
import { isFinal } from '../tasks/state.ts';
import type { NewTask } from '../tasks/tasks.ts';
import { DirectAccess } from './access.ts';
import type { TaskAccess } from './access.ts';
import { readFleetFile } from './file.ts';
import { GateAccess } from './gate-access.ts';
import { Outbox } from './outbox.ts';
import type { OutboxEntry } from './outbox.ts';
import { FleetRunning } from './running.ts';
import { FleetSandbox, sandboxInfo } from './sandbox.ts';
import type { FleetSandboxInfo, SandboxParts } from './sandbox.ts';
import { SubmittedTask, racing } from './task.ts';
import type { FleetTask, Noticed, TaskEnd } from './task.ts';

const EXPIRES_MS = 3_600_000;
const IDLE_MS = 600_000;
const CANCEL_MS = 30_000;
// A notice comes at once. This is for one that was lost.
const LOOK_MS = 2000;
// Notices that are kept for tasks that nobody waits for yet.
const MAX_MISSED = 1000;

/** A task as it is sent, with its workspace. */
interface SignedTask {
  readonly task: NewTask;
  readonly workspace: Uint8Array | null;
}

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
  /** Tasks that changed while nobody waited for them, the latest ones. */
  readonly #missed = new Set<string>();
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
    const signedTask = this.#entry(command, request);
    const { task, workspace } = signedTask;
    const entry: OutboxEntry = { ...task, workspace: workspace && hashOf(workspace) };
    // Before it is sent: a process that dies now has submitted it all the same.
    this.#outbox?.add(entry, workspace);
    const isNew = request.id === undefined;
    const hears = isNew && (await this.#listens());
    await this.#send({ ...signedTask, task: { ...task, isNew } }, signal);
    return this.#task({ tenant: entry.tenant, id: entry.id }, entry, workspace, hears);
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

  /**
   * Creates a persistent sandbox on a worker of the pool, and waits until it is there. It has a slot of that worker for as long as it
   * exists. `await using` ends it.
   *
   * @example
   * import { Fleet, packWorkspace } from '@acode/fleet';
   *
   * await using fleet = await Fleet.open('fleet.yml');
   * await using sandbox = await fleet.create({ workspace: await packWorkspace('.') });
   * await sandbox.run('npm ci');
   * const { exitCode } = await sandbox.run('npm test', { onStdout: chunk => process.stdout.write(chunk) });
   */
  async create(request: FleetCreateRequest = {}): Promise<FleetSandbox> {
    const { signal, expiresInMs = EXPIRES_MS, idleMs = IDLE_MS, ...rest } = request;
    const asked = this.#signedTask({ ...rest, sandbox: { expiresInMs, idleMs } });
    const { tenant, id } = asked.task;
    let isOwn = true;
    try {
      // The same id again is the same sandbox, and another caller’s to end.
      isOwn = (await this.#send(asked, signal)) === 'queued' || request.id === undefined;
      return new FleetSandbox(this.#sandboxParts({ tenant, id }), await this.#created(asked, signal), 'kill');
    } catch (error) {
      const late = AbortSignal.timeout(CANCEL_MS);
      if (isOwn) await this.#access.cancel({ tenant, id }, late).catch(() => undefined);
      throw signal?.aborted === true ? new AcodeError('ACODE-SBX-014', {}, { cause: error }) : error;
    }
  }

  /** A sandbox that was created before, perhaps by another process; ACODE-FLT-051 where there is none. `await using` leaves it. */
  async connect(id: string, signal?: AbortSignal): Promise<FleetSandbox> {
    const key = checkedKey({ tenant: this.#options.tenant, id });
    const found = (await this.#access.sandboxes(key.tenant, signal)).find(one => one.id === id);
    if (!found) throw FLEET_ERRORS.create('ACODE-FLT-051', { sandbox: id });
    return new FleetSandbox(this.#sandboxParts(key), sandboxInfo(found), 'leave');
  }

  /** The tenant’s sandboxes that exist, those of other processes too, the newest first. */
  async sandboxes(signal?: AbortSignal): Promise<FleetSandboxInfo[]> {
    const found = await this.#access.sandboxes(this.#options.tenant, signal);
    return found.map(sandboxInfo).sort((one, other) => other.since.localeCompare(one.since));
  }

  /** Disconnects. Tasks go on, and so do sandboxes. */
  async close(): Promise<void> {
    await (await this.#listening?.catch(() => null))?.[Symbol.asyncDispose]();
    await this.#access.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #entry(command: Command, request: TaskRequest): SignedTask {
    const shown = typeof command === 'string' ? command : [...command];
    return this.#signedTask({ ...request, command: shown });
  }

  #signedTask(asked: TaskRequest & (Pick<TaskSpec, 'command'> | Pick<SandboxSpec, 'sandbox'>)): SignedTask {
    const { tenant, keys, pool: usual = 'default' } = this.#options;
    const { id = randomUUID(), pool = usual, priority = 'normal', workspace = null, ...rest } = asked;
    const hash = workspace && hashOf(workspace);
    const named = { tenant, id, pool, priority };
    const packed = workspace ? { workspace: { hash, bytes: workspace.length } } : {};
    const about = { schema: 'acode.fleet.task/1', submittedAt: new Date().toISOString() };
    const body = JSON.stringify({ ...rest, ...named, ...packed, ...about });
    // What a worker would refuse is refused here already.
    parseSpec(body);
    return { task: { ...named, body: signed('task', body, keys) }, workspace };
  }

  async #send({ task, workspace }: SignedTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    if (workspace) await this.#access.putBlob(task.tenant, hashOf(workspace), workspace, signal);
    return this.#access.submit(task, signal);
  }

  // Waits until a sandbox has its lease, or its task has ended without.
  async #created({ task }: SignedTask, signal?: AbortSignal): Promise<FleetSandboxInfo> {
    using notices = await this.#noticed(task.id);
    for (;;) {
      signal?.throwIfAborted();
      const next = notices.next();
      const found = (await this.#access.sandboxes(task.tenant, signal)).find(one => one.id === task.id);
      if (found) return sandboxInfo(found);
      const state = await this.#access.state(task, signal);
      if (state && isFinal(state)) throw notCreated(task.id, await this.task(task.id).end(signal));
      await racing(next, LOOK_MS, signal);
    }
  }

  #sandboxParts(key: TaskKey): SandboxParts {
    const { keys, workers } = this.#options;
    return { access: this.#access, key, keys, workers };
  }

  #task(key: TaskKey, entry: OutboxEntry | null, workspace: Uint8Array | null, isNew = false): FleetTask {
    // A task that the queue has is not lost, whatever its state says.
    const repair = async (kept: OutboxEntry, signal?: AbortSignal): Promise<void> => {
      if (await this.#access.isQueued(key, kept.pool, signal)) return;
      const { workspace: _, ...again } = kept;
      await this.#send({ task: again, workspace: workspace ?? (await this.#outbox?.workspace(kept)) ?? null }, signal);
    };
    return new SubmittedTask({
      access: this.#access,
      key,
      workers: this.#options.workers,
      isNew,
      repair: entry && (signal => repair(entry, signal)),
      noticed: id => this.#noticed(id),
      waiting: () => this.#wakers.size,
      over: () => this.#outbox?.remove(key.id),
    });
  }

  // One subscription for all tasks; false where there is none.
  async #listens(): Promise<boolean> {
    this.#listening ??= this.#access.listen(this.#options.tenant, changed => this.#changed(changed));
    return (await this.#listening.catch(() => (this.#listening = null))) !== null;
  }

  #changed(id: string): void {
    const wakers = this.#wakers.get(id);
    for (const wake of wakers ?? []) wake();
    if (wakers) return;
    this.#missed.add(id);
    const [oldest = ''] = this.#missed;
    if (this.#missed.size > MAX_MISSED) this.#missed.delete(oldest);
  }

  async #noticed(id: string): Promise<Noticed> {
    await this.#listens();
    let isMissed = this.#missed.delete(id);
    let wake: () => void = () => undefined;
    const wakers = this.#wakers.get(id) ?? new Set();
    const noticed = (): void => wake();
    this.#wakers.set(id, wakers.add(noticed));
    return {
      next: () =>
        new Promise<void>(resolve => {
          wake = resolve;
          if (isMissed) resolve();
          isMissed = false;
        }),
      [Symbol.dispose]: () => {
        wakers.delete(noticed);
        if (wakers.size === 0) this.#wakers.delete(id);
      },
    };
  }
}

function notCreated(sandbox: string, { state, error, attempt, result }: TaskEnd): Error {
  if (result) return FLEET_ERRORS.create('ACODE-FLT-054', { sandbox });
  if (state === 'cancelled') return new AcodeError('ACODE-SBX-025', { sandbox, reason: 'it was killed' });
  if (!error) return FLEET_ERRORS.create('ACODE-FLT-015', { task: sandbox, attempts: attempt });
  const { code, message, hint } = error;
  return FLEET_ERRORS.create('ACODE-FLT-055', { sandbox, code, message, hint });
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
