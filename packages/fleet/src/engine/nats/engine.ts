// Engine on NATS JetStream: streams for tasks, logs and blobs, buckets for states and leases.

import { JetStreamApiError, JetStreamError, jetstream, jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import { errors, headers } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { FLEET_ERRORS } from '../../errors.ts';
import { HIDE_MS } from '../engine.ts';
import type {
  Delivery,
  FleetEngine,
  Lease,
  LogBatch,
  LogKey,
  MessageHandler,
  QueuedTask,
  Revised,
  SandboxLease,
  TakeRequest,
  Topic,
  WriteOptions,
} from '../engine.ts';
import { assertSize } from '../limits.ts';
import { checkedKey, checkedName, leaseName } from '../names.ts';
import type { TaskKey } from '../names.ts';
import { paused, reasonOf, retried } from '../retry.ts';
import { connected } from './connection.ts';
import type { NatsAccess } from './connection.ts';
import { askSandbox, execSubject, serveSandbox } from './exec.ts';
import { followLog } from './log.ts';
import { ConsumerAway } from './pull.ts';
import { NOT_STORED, NatsQueue } from './queue.ts';
import type { Call } from './queue.ts';
import { assertVersion, checkServers } from './server.ts';
import { STREAM_NOT_FOUND, ensureStream, namesOf, streamsOf } from './streams.ts';
import type { FleetNames, StreamSizes, WantedStream } from './streams.ts';

/** The server’s codes for a revision that is not the last one. */
const WRONG_REVISION = new Set([10_071, 10_164]);
// One answer of the server; a call is tried again until its own deadline.
const ANSWER_MS = 5000;
// How often streams are looked for, at most.
const REMAKE_MS = 1000;
const UNAVAILABLE = 503;
const PART_BYTES = 512 * 1024;
const PARTS = 'Acode-Parts';
const REPLICAS = 3;

/** Options of an engine on NATS. */
export interface NatsEngineOptions extends NatsAccess, StreamSizes {
  /**
   * Addresses of the servers’ monitoring ports, where acode checks that each writes to disk before it answers:
   * `http://one.example:8222`. Without them the fleet is refused, unless `unsynced` accepts that.
   */
  readonly monitors?: readonly string[];
  /** Whether servers may be used whose setting `sync_interval` acode cannot check. False by default. */
  readonly unsynced?: boolean;
  /** The fleet’s name; `acode` by default. */
  readonly fleet?: string;
  /** How many servers keep each task; 3 by default, 1 where the server is alone. */
  readonly replicas?: number;
  /** How long a delivery hides a task, in milliseconds; 30,000 by default. */
  readonly hideMs?: number;
}

/** A fleet engine on NATS JetStream. */
export class NatsEngine implements FleetEngine {
  readonly kind = 'nats';
  readonly hideMs: number;
  readonly #access: NatsAccess;
  readonly #connection: NatsConnection;
  readonly #client: JetStreamClient;
  readonly #manager: JetStreamManager;
  readonly #names: FleetNames;
  readonly #queue: NatsQueue;
  readonly #streams: readonly WantedStream[];
  #isRemaking = false;

  private constructor(
    access: NatsAccess,
    connection: NatsConnection,
    manager: JetStreamManager,
    { names, streams, hideMs }: { names: FleetNames; streams: readonly WantedStream[]; hideMs: number },
  ) {
    this.hideMs = hideMs;
    this.#access = access;
    this.#connection = connection;
    this.#client = jetstream(connection, { timeout: ANSWER_MS });
    this.#manager = manager;
    this.#names = names;
    this.#streams = streams;
    const call: Call = (operation, work, signal) => this.#call(operation, work, signal);
    this.#queue = new NatsQueue({ connection, client: this.#client, manager, names, hideMs, call });
  }

  /** Connects, checks the servers, and creates and checks the streams. */
  static async open(options: NatsEngineOptions, signal?: AbortSignal): Promise<NatsEngine> {
    const names = namesOf(checkedName('fleet', options.fleet ?? 'acode'));
    const engine = options.servers.join(', ');
    assertMonitored(options, engine);
    await checkServers(options.monitors ?? [], signal);
    const connection = await connected(options);
    try {
      assertVersion(engine, connection.info?.version ?? 'unknown');
      const manager = await jetstreamManager(connection, { timeout: ANSWER_MS });
      const streams = streamsOf(names, replicasOf(options, connection), options);
      for (const stream of streams) await called('create the streams', () => ensureStream(manager, stream), signal);
      return new NatsEngine(options, connection, manager, { names, streams, hideMs: options.hideMs ?? HIDE_MS });
    } catch (error) {
      await connection.close();
      throw error instanceof JetStreamApiError || error instanceof JetStreamError
        ? FLEET_ERRORS.create('ACODE-FLT-001', { engine, reason: reasonOf(error) }, { cause: error })
        : error;
    }
  }

  enqueue(task: QueuedTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    return this.#queue.enqueue(task, signal);
  }

  queued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<QueuedTask | null> {
    return this.#queue.queued(key, pool, signal);
  }

  take(request: TakeRequest, signal?: AbortSignal): Promise<Delivery[]> {
    return this.#queue.take(request, signal);
  }

  pick(key: TaskKey, pool: string, signal?: AbortSignal): Promise<Delivery | null> {
    return this.#queue.pick(key, pool, signal);
  }

  watchQueue(pool: string, signal: AbortSignal): AsyncIterable<Omit<QueuedTask, 'body'>> {
    return this.#queue.watch(checkedName('pool', pool), signal);
  }

  depth(pool: string, signal?: AbortSignal): Promise<number> {
    return this.#queue.depth(checkedName('pool', pool), signal);
  }

  unfinished(tenant: string, signal?: AbortSignal): Promise<number> {
    return this.#queue.unfinished(checkedName('tenant', tenant), signal);
  }

  async read(key: TaskKey, signal?: AbortSignal): Promise<Revised | null> {
    const found = await this.#get(this.#names.states, this.#state(key), signal);
    return found && { text: new TextDecoder().decode(found.data), revision: found.seq };
  }

  async write(
    key: TaskKey,
    revision: number,
    text: string,
    { keepMs }: WriteOptions = {},
    signal?: AbortSignal,
  ): Promise<number | null> {
    assertSize('The state of the task', text);
    const subject = this.#state(key);
    const ttl = keepMs === undefined ? {} : { ttl: `${Math.ceil(keepMs / 1000)}s` };
    return this.#call(
      'write',
      async () => {
        try {
          return (await this.#client.publish(subject, text, { ...ttl, expect: { lastSubjectSequence: revision } })).seq;
        } catch (error) {
          if (error instanceof JetStreamApiError && WRONG_REVISION.has(error.code)) return null;
          throw error;
        }
      },
      signal,
    );
  }

  async renew(lease: Lease | SandboxLease, ttlMs: number, signal?: AbortSignal): Promise<void> {
    const subject = this.#lease('worker' in lease ? lease.worker : lease);
    const ttl = `${Math.ceil(ttlMs / 1000)}s`;
    await this.#call('renew', () => this.#client.publish(subject, lease.body, { ttl }), signal, ttlMs);
  }

  async leases(signal?: AbortSignal): Promise<Lease[]> {
    const { lease } = this.#names.subject;
    return (await this.#leasesOf(`${lease}.*`, signal)).map(([name, body]) => ({ worker: name, body }));
  }

  async sandboxes(tenant: string, signal?: AbortSignal): Promise<SandboxLease[]> {
    const { lease } = this.#names.subject;
    const found = await this.#leasesOf(`${lease}.${checkedName('tenant', tenant)}.*`, signal);
    return found.map(([name, body]) => ({ tenant, id: name.slice(tenant.length + 1), body }));
  }

  // Asked of the stream’s leader: another server may not have seen the last renewal yet.
  async isLeased(worker: string, signal?: AbortSignal): Promise<boolean> {
    return (await this.#get(this.#names.leases, this.#lease(worker), signal)) !== null;
  }

  async endLease(holder: string | TaskKey, signal?: AbortSignal): Promise<void> {
    const filter = this.#lease(holder);
    await this.#call('end the lease', () => this.#manager.streams.purge(this.#names.leases, { filter }), signal);
  }

  // Over a connection of its own: a flood of messages to one sandbox holds up no lease and no other sandbox.
  serve(sandbox: TaskKey, handler: MessageHandler): Promise<AsyncDisposable> {
    return serveSandbox(this.#access, execSubject(this.#names, sandbox), handler);
  }

  ask(sandbox: TaskKey, message: Uint8Array, signal?: AbortSignal): Promise<Uint8Array> {
    return askSandbox(this.#connection, this.#names, { sandbox, message }, signal);
  }

  async appendLog(key: LogKey, { sequence, bytes }: LogBatch, signal?: AbortSignal): Promise<void> {
    assertSize('The piece of the log', bytes);
    const subject = this.#log(key);
    // The server remembers the ids of the last two minutes: longer than any call is repeated.
    const msgID = `${subject} ${sequence}`;
    const about = headers();
    about.set('Acode-Sequence', String(sequence));
    await this.#call('log', () => this.#client.publish(subject, bytes, { headers: about, msgID }), signal);
  }

  followLog(key: LogKey, after: number, signal: AbortSignal): AsyncIterable<LogBatch> {
    return followLog(this.#client, { stream: this.#names.logs, subject: this.#log(key), after }, signal);
  }

  async putBlob(tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    assertSize('The workspace', bytes);
    const subject = this.#blob(tenant, hash);
    const parts = Math.max(1, Math.ceil(bytes.length / PART_BYTES));
    const about = headers();
    about.set(PARTS, String(parts));
    // The first part comes last: where it is, the others are.
    for (let part = parts - 1; part >= 0; part -= 1) {
      const piece = bytes.subarray(part * PART_BYTES, (part + 1) * PART_BYTES);
      await this.#call('upload', () => this.#client.publish(`${subject}.${part}`, piece, { headers: about }), signal);
    }
  }

  async getBlob(tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null> {
    const subject = this.#blob(tenant, hash);
    const first = await this.#get(this.#names.blobs, `${subject}.0`, signal);
    if (!first) return null;
    const parts = [first.data];
    for (let part = 1; part < Number(first.header.get(PARTS)); part += 1) {
      const next = await this.#get(this.#names.blobs, `${subject}.${part}`, signal);
      if (!next) return null;
      parts.push(next.data);
    }
    return Buffer.concat(parts);
  }

  async notify(topic: Topic, text: string): Promise<void> {
    this.#connection.publish(this.#notice(topic), text);
    await Promise.resolve();
  }

  async listen(topic: Topic, onNotice: (text: string) => void): Promise<AsyncDisposable> {
    const subscription = this.#connection.subscribe(this.#notice(topic), {
      callback: (error, message) => {
        if (!error) onNotice(message.string());
      },
    });
    // The server has it when it answers; before that, a notice could be missed.
    await this.#connection.flush();
    return { [Symbol.asyncDispose]: async () => subscription.unsubscribe() };
  }

  async close(): Promise<void> {
    // What was published reaches the server first, but a server that is away is not waited for.
    const late = new Promise(resolve => void setTimeout(resolve, 1000).unref());
    await Promise.race([this.#connection.flush().catch(() => undefined), late]);
    await this.#connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #get(stream: string, subject: string, signal?: AbortSignal) {
    const message = await this.#call(
      'read',
      () => this.#manager.streams.getMessage(stream, { last_by_subj: subject }),
      signal,
    );
    // A time to live that has just ended leaves an empty marker in some versions.
    return message === null || message.header.has('Nats-Marker-Reason') ? null : message;
  }

  // A stream that is gone is made again: clients queue anew what was in it.
  #call<Value>(
    operation: string,
    work: () => Promise<Value>,
    signal?: AbortSignal,
    deadlineMs?: number,
  ): Promise<Value> {
    const remaking = async (): Promise<Value> => {
      try {
        return await work();
      } catch (error) {
        // Not waited for: mostly a leader is being elected, and the next try finds it.
        if (mayBeGone(error)) void this.#remake();
        throw error;
      }
    };
    return called(operation, remaking, signal, deadlineMs);
  }

  // Whether a stream is gone, the server says; while it does not answer, none is.
  async #remake(): Promise<void> {
    if (this.#isRemaking || this.#connection.isClosed()) return;
    this.#isRemaking = true;
    try {
      for (const stream of this.#streams) await ensureStream(this.#manager, stream);
    } catch {
      // At the next failure.
    }
    await paused(REMAKE_MS);
    this.#isRemaking = false;
  }

  #state(key: TaskKey): string {
    const { tenant, id } = checkedKey(key);
    return `${this.#names.subject.state}.${tenant}.${id}`;
  }

  #lease(holder: string | TaskKey): string {
    return `${this.#names.subject.lease}.${leaseName(holder)}`;
  }

  // Names and bodies of the leases that hold, below a subject.
  #leasesOf(filter: string, signal?: AbortSignal): Promise<(readonly [name: string, body: string])[]> {
    const { leases, subject } = this.#names;
    return this.#call(
      'leases',
      async () => {
        const { state } = await this.#manager.streams.info(leases, { subjects_filter: filter });
        const found = await Promise.all(Object.keys(state.subjects ?? {}).map(name => this.#get(leases, name)));
        return found.flatMap(one =>
          one ? [[one.subject.slice(subject.lease.length + 1), new TextDecoder().decode(one.data)] as const] : [],
        );
      },
      signal,
    );
  }

  #log(key: LogKey): string {
    const { tenant, id } = checkedKey(key);
    return `${this.#names.subject.log}.${tenant}.${id}.${key.attempt}`;
  }

  #blob(tenant: string, hash: string): string {
    return `${this.#names.subject.blob}.${checkedName('tenant', tenant)}.${checkedName('hash', hash)}`;
  }

  #notice(topic: Topic): string {
    const { notice, control } = this.#names.subject;
    if ('tenant' in topic) return `${notice}.tenant.${checkedName('tenant', topic.tenant)}`;
    if ('worker' in topic) return `${notice}.worker.${checkedName('worker', topic.worker)}`;
    if ('control' in topic) return `${control}.host.${checkedName('worker', topic.control)}`;
    return `${notice}.pool.${checkedName('pool', topic.pool)}`;
  }
}

function assertMonitored({ monitors = [], unsynced }: NatsEngineOptions, engine: string): void {
  if (monitors.length > 0 || unsynced === true) return;
  throw FLEET_ERRORS.create('ACODE-FLT-002', {
    engine,
    setting: 'sync_interval',
    found: 'unknown, because no monitoring port was named',
    needed: '`always`, or your word that it may differ (`unsynced`)',
  });
}

function replicasOf({ replicas }: NatsEngineOptions, { info }: NatsConnection): number {
  return replicas ?? (info?.cluster === undefined ? 1 : REPLICAS);
}

function called<Value>(
  operation: string,
  work: () => Promise<Value>,
  signal?: AbortSignal,
  deadlineMs?: number,
): Promise<Value> {
  return retried(work, { operation, isPassing, signal, ...(deadlineMs === undefined ? {} : { deadlineMs }) });
}

/** Whether a failure may mean that a stream is gone: nobody answers for it, or the server says so. */
function mayBeGone(error: unknown): boolean {
  if (error instanceof JetStreamApiError) return error.code === STREAM_NOT_FOUND;
  return isUnanswered(error) || error instanceof ConsumerAway;
}

// What the client says of a stream that nobody answers for, also while its leader is being elected. It exports no class for it.
function isUnanswered(error: unknown): boolean {
  return error instanceof Error && error.name === 'JetStreamNotEnabled';
}

/** Whether a failure may be over in a moment: a leader is elected, a server restarts, the connection is made again. */
function isPassing(error: unknown): boolean {
  if (error instanceof JetStreamApiError)
    return error.code === STREAM_NOT_FOUND || (error.status === UNAVAILABLE && error.code !== NOT_STORED);
  return (
    error instanceof errors.TimeoutError ||
    isUnanswered(error) ||
    error instanceof errors.RequestError ||
    error instanceof errors.ConnectionError ||
    error instanceof JetStreamError ||
    error instanceof ConsumerAway
  );
}
