// Queue of tasks in a stream: what is in it is the unfinished work. Consumers only hand it out, and may be lost at any time.

import { AckPolicy, DeliverPolicy, JetStreamApiError } from '@nats-io/jetstream';
import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
import { FLEET_ERRORS } from '../../errors.ts';
import { MAX_WAIT_MS } from '../engine.ts';
import type { Delivery, QueuedTask, TakeRequest } from '../engine.ts';
import { assertSize } from '../limits.ts';
import { PRIORITIES, checkedKey, checkedName } from '../names.ts';
import type { Priority, TaskKey } from '../names.ts';
import { follow } from './log.ts';
import { ConsumerAway, deliveryOf, pull } from './pull.ts';
import type { FleetNames } from './streams.ts';

const NANOSECONDS = 1_000_000;
const MAX_UNFINISHED = 100_000;
/** The server’s code for a message that it did not store: the subject has one, or the stream is full. */
export const NOT_STORED = 10_077;
/** The server’s code for a consumer of that name with other settings. */
const OTHER_CONSUMER = 10_148;
/** The server’s codes for a message that is not there (any more). */
const NO_MESSAGE = new Set([10_037, 10_043, 10_057]);
/** The server’s code for a consumer that is not there. */
const NO_CONSUMER = 10_014;
/** A queue that was empty for so long has no backlog of which the most urgent would have to come first. */
const EMPTY_MS = 5;
// Shorter waits are refused by the server.
const MIN_WAIT_MS = 100;

/** Calls the server, and again while its failure may pass. */
export type Call = <Value>(operation: string, work: () => Promise<Value>, signal?: AbortSignal) => Promise<Value>;

/** What the queue is made of. */
export interface QueueParts {
  readonly connection: NatsConnection;
  readonly client: JetStreamClient;
  readonly manager: JetStreamManager;
  readonly names: FleetNames;
  readonly hideMs: number;
  readonly call: Call;
}

/** The queue of a fleet on NATS. */
export class NatsQueue {
  readonly #parts: QueueParts;
  readonly #ready = new Map<string, Promise<string>>();
  /** Pools whose queue was empty at the last take. */
  readonly #empty = new Set<string>();

  constructor(parts: QueueParts) {
    this.#parts = parts;
  }

  async enqueue(task: QueuedTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    const { client, call } = this.#parts;
    assertSize('The task', task.body);
    const subject = this.#subject(task);
    return call(
      'submit',
      async () => {
        try {
          await client.publish(subject, task.body);
          return 'queued';
        } catch (error) {
          if (!(error instanceof JetStreamApiError) || error.code !== NOT_STORED) throw error;
          if (await this.#last(subject)) return 'present';
          const reason = 'its stream has as many tasks as it may have';
          throw FLEET_ERRORS.create('ACODE-FLT-005', { pool: task.pool, reason }, { cause: error });
        }
      },
      signal,
    );
  }

  async queued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<QueuedTask | null> {
    const found = await this.#parts.call(
      'read',
      () => Promise.all(PRIORITIES.map(priority => this.#last(this.#subject({ ...key, pool, priority })))),
      signal,
    );
    const message = found.find(one => one !== null);
    return message ? this.#task(message.subject, message.string()) : null;
  }

  async pick(key: TaskKey, pool: string, signal?: AbortSignal): Promise<Delivery | null> {
    const { call } = this.#parts;
    const found = await call(
      'read',
      () => Promise.all(PRIORITIES.map(priority => this.#last(this.#subject({ ...key, pool, priority })))),
      signal,
    );
    const message = found.find(one => one !== null);
    if (!message) return null;
    return {
      task: this.#task(message.subject, message.string()),
      deliveries: 1,
      prolong: async () => undefined,
      release: async () => undefined,
      done: () => call('remove', () => this.#remove(message.seq, message.subject)),
    };
  }

  async *watch(pool: string, signal: AbortSignal): AsyncGenerator<Omit<QueuedTask, 'body'>, void, undefined> {
    const { client, names } = this.#parts;
    const filter = `${names.subject.task}.${pool}.>`;
    for await (const { subject } of follow(
      client,
      { stream: names.tasks, subject: filter, headersOnly: true },
      signal,
    )) {
      const { body: _, ...task } = this.#task(subject, '');
      yield task;
    }
  }

  async depth(pool: string, signal?: AbortSignal): Promise<number> {
    const { manager, names, call } = this.#parts;
    const consumers = await call(
      'depth',
      () =>
        Promise.all(
          PRIORITIES.map(async priority =>
            manager.consumers
              .info(names.tasks, await this.#consumer(pool, priority))
              .catch((error: unknown) => this.#unlessAway(pool, priority, error)),
          ),
        ),
      signal,
    );
    return consumers.reduce((sum, { num_pending, num_ack_pending }) => sum + num_pending + num_ack_pending, 0);
  }

  async unfinished(tenant: string, signal?: AbortSignal): Promise<number> {
    const { manager, names, call } = this.#parts;
    const filter = { subjects_filter: `${names.subject.task}.*.*.${tenant}.*` };
    const { state } = await call('unfinished', () => manager.streams.info(names.tasks, filter), signal);
    return Object.keys(state.subjects ?? {}).length;
  }

  /**
   * The most urgent first: each consumer is asked at once, and only if all of them have nothing, all are waited for. Where nothing was
   * there a moment ago, they are not asked.
   */
  async take({ pool, max, waitMs }: TakeRequest, signal?: AbortSignal): Promise<Delivery[]> {
    checkedName('pool', pool);
    signal?.throwIfAborted();
    const taken: Delivery[] = [];
    const isEmpty = this.#empty.delete(pool) && waitMs >= MIN_WAIT_MS;
    for (const priority of isEmpty ? [] : PRIORITIES) {
      if (taken.length >= max) return taken;
      const batch = max - taken.length;
      await this.#pull({ pool, priority, batch, expiresMs: 0 }, message => taken.push(this.#delivery(message)));
    }
    if (taken.length > 0 || waitMs < MIN_WAIT_MS) return taken;
    const began = performance.now();
    const first = await this.#firstOf(pool, Math.min(waitMs, MAX_WAIT_MS), max, signal);
    if (performance.now() - began > EMPTY_MS) this.#empty.add(pool);
    return first;
  }

  // One message of each priority at most. What comes beyond `max`, or when nobody waits any more, goes back at once.
  #firstOf(pool: string, expiresMs: number, max: number, signal?: AbortSignal): Promise<Delivery[]> {
    return new Promise((resolve, reject) => {
      const taken: Delivery[] = [];
      let open = true;
      const end = (): void => {
        if (!open) return;
        open = false;
        signal?.removeEventListener('abort', end);
        resolve(taken);
      };
      const onMessage = (message: Msg): void => {
        const delivery = this.#delivery(message);
        if (!open || taken.length >= max) return void delivery.release(0).catch(() => undefined);
        taken.push(delivery);
        // What arrived with it is taken too.
        return void setImmediate(end);
      };
      signal?.addEventListener('abort', end, { once: true });
      Promise.all(PRIORITIES.map(priority => this.#pull({ pool, priority, batch: 1, expiresMs }, onMessage))).then(
        end,
        (error: unknown) => {
          if (open && taken.length === 0) reject(error instanceof Error ? error : new Error(String(error)));
          else end();
        },
      );
    });
  }

  async #pull(
    request: { pool: string; priority: Priority; batch: number; expiresMs: number },
    onMessage: (message: Msg) => void,
  ): Promise<void> {
    const { connection, names } = this.#parts;
    const { pool, priority, batch, expiresMs } = request;
    const consumer = await this.#consumer(pool, priority);
    try {
      await pull(connection, { stream: names.tasks, consumer, batch, expiresMs }, onMessage);
    } catch (error) {
      // Made anew at the next try: it hands out everything that is unfinished, and claims keep that from being done twice.
      if (error instanceof ConsumerAway) this.#ready.delete(`${pool}_${priority}`);
      throw error;
    }
  }

  #delivery(message: Msg): Delivery {
    const { connection, hideMs, call } = this.#parts;
    const { sequence, deliveries } = deliveryOf(message);
    const answer = async (text: string): Promise<void> => {
      connection.publish(message.reply ?? '', text);
      await Promise.resolve();
    };
    return {
      task: this.#task(message.subject, message.string()),
      deliveries,
      prolong: () => answer('+WPI'),
      release: delayMs =>
        answer(delayMs > 0 ? `-NAK ${JSON.stringify({ delay: Math.min(delayMs, hideMs) * NANOSECONDS })}` : '-NAK'),
      done: async () => {
        await call('remove', () => this.#remove(sequence, message.subject));
        await answer('+ACK');
      },
    };
  }

  // In a stream that was made anew, its number is that of another task. A purge by its name would be one call, but a server whose
  // consumers change their leader then forgets what it had handed out.
  async #remove(sequence: number, subject: string): Promise<void> {
    const { manager, names } = this.#parts;
    const found = await manager.streams.getMessage(names.tasks, { seq: sequence });
    if (found?.subject === subject) await manager.streams.deleteMessage(names.tasks, sequence, false).catch(unlessGone);
  }

  // It went with its servers, which kept it in memory: it is made anew at the next try.
  #unlessAway(pool: string, priority: Priority, error: unknown): never {
    if (!(error instanceof JetStreamApiError) || error.code !== NO_CONSUMER) throw error;
    this.#ready.delete(`${pool}_${priority}`);
    throw new ConsumerAway(error.code, error.message);
  }

  // Each worker asks for it at its first pull, and again after it was lost.
  #consumer(pool: string, priority: Priority): Promise<string> {
    const name = `${pool}_${priority}`;
    const known = this.#ready.get(name) ?? this.#made(pool, priority);
    this.#ready.set(name, known);
    known.catch(() => this.#ready.delete(name));
    return known;
  }

  async #made(pool: string, priority: Priority): Promise<string> {
    const { manager, names, hideMs } = this.#parts;
    const name = `${pool}_${priority}`;
    const config = {
      durable_name: name,
      ack_policy: AckPolicy.Explicit,
      deliver_policy: DeliverPolicy.All,
      filter_subject: `${names.subject.task}.${pool}.${priority}.>`,
      ack_wait: hideMs * NANOSECONDS,
      max_ack_pending: MAX_UNFINISHED,
      max_deliver: -1,
      // The stream is the truth. What a consumer knows is not worth a write to disk.
      mem_storage: true,
    };
    await manager.consumers.add(names.tasks, config).catch((error: unknown) => {
      if (!(error instanceof JetStreamApiError) || error.code !== OTHER_CONSUMER) throw error;
      const needed = `the settings of this version (hidden for ${hideMs} ms)`;
      throw FLEET_ERRORS.create(
        'ACODE-FLT-003',
        { name: `The consumer ${name}`, setting: 'its settings', found: 'other ones', needed },
        { cause: error },
      );
    });
    return name;
  }

  async #last(subject: string): Promise<{ readonly subject: string; readonly seq: number; string(): string } | null> {
    return this.#parts.manager.streams.getMessage(this.#parts.names.tasks, { last_by_subj: subject });
  }

  #subject({ tenant, id, pool, priority }: Omit<QueuedTask, 'body'>): string {
    checkedKey({ tenant, id });
    return `${this.#parts.names.subject.task}.${checkedName('pool', pool)}.${priority}.${tenant}.${id}`;
  }

  #task(subject: string, body: string): QueuedTask {
    const [pool = '', priority = '', tenant = '', id = ''] = subject
      .slice(this.#parts.names.subject.task.length + 1)
      .split('.');
    const known = PRIORITIES.find(one => one === priority) ?? 'normal';
    return { pool: checkedName('pool', pool), priority: known, ...checkedKey({ tenant, id }), body };
  }
}

function unlessGone(error: unknown): boolean {
  if (error instanceof JetStreamApiError && NO_MESSAGE.has(error.code)) return false;
  throw error;
}
