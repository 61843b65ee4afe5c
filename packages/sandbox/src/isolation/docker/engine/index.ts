// The engine client as one object: a connection and the narrow clients on it.

import * as z from 'zod';
import { type CallOptions, type ConnectionOptions, EngineConnection, path, termsOf } from './connection.ts';
import { Containers } from './containers.ts';
import { Archive, Exec } from './exec.ts';
import { Images } from './images.ts';
import { EngineError, isNotFound, jsonLines } from './protocol.ts';
import type { EngineReadable } from './streams.ts';

/**
 * One engine.
 *
 * @example
 * using engine = await Engine.open({ socketPath: '/var/run/docker.sock', signal });
 * const { id } = await engine.containers.create({ Image: imageId, Cmd: ['true'] }, { signal });
 */
export class Engine implements Disposable {
  readonly connection: EngineConnection;
  readonly containers: Containers;
  readonly images: Images;
  readonly networks: Networks;
  readonly volumes: Volumes;
  readonly exec: Exec;
  readonly archive: Archive;
  readonly events: Events;
  readonly system: System;

  private constructor(connection: EngineConnection) {
    this.connection = connection;
    this.containers = new Containers(connection);
    this.images = new Images(connection);
    this.networks = new Networks(connection);
    this.volumes = new Volumes(connection);
    this.exec = new Exec(connection);
    this.archive = new Archive(connection);
    this.events = new Events(connection);
    this.system = new System(connection);
  }

  /** Contacts the engine and agrees on a version. */
  static async open(options: ConnectionOptions): Promise<Engine> {
    return new Engine(await EngineConnection.open(options));
  }

  /** Gives up everything that is still under way. */
  close(): void {
    this.connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

// What the engine says about itself and its host.

const systemDeadlineMs = 5000;
// Some engines measure their disks for this answer.
const infoDeadlineMs = 15_000;

const versionReply = z.lazy(() =>
  z.looseObject({
    Version: z.string(),
    ApiVersion: z.string(),
    MinAPIVersion: z.string().optional(),
    Os: z.string().optional(),
    Arch: z.string().optional(),
    KernelVersion: z.string().optional(),
    Components: z.array(z.looseObject({ Name: z.string(), Version: z.string() })).nullish(),
  }),
);

/** The engine's version, under its own names. */
type EngineVersion = z.infer<typeof versionReply>;

const infoReply = z.lazy(() =>
  z.looseObject({
    ID: z.string(),
    NCPU: z.number(),
    MemTotal: z.number(),
    Runtimes: z.record(z.string(), z.unknown()).nullish(),
    DefaultRuntime: z.string().optional(),
    SecurityOptions: z.array(z.string()).nullish(),
    CgroupVersion: z.string().optional(),
    CgroupDriver: z.string().optional(),
    Warnings: z.array(z.string()).nullish(),
    ServerVersion: z.string(),
    OperatingSystem: z.string(),
    KernelVersion: z.string(),
    Architecture: z.string(),
  }),
);

/** The engine's host, under the engine's own names. */
export type EngineInfo = z.infer<typeof infoReply>;

/** The engine itself. */
class System {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Resolves if the engine answers. */
  async ping(options: CallOptions): Promise<void> {
    return this.#connection.empty({ method: 'GET', path: path`/_ping`, ...termsOf(options, systemDeadlineMs) });
  }

  /** Which engine it is. */
  async version(options: CallOptions): Promise<EngineVersion> {
    return this.#connection.json(
      { method: 'GET', path: path`/version`, ...termsOf(options, systemDeadlineMs) },
      versionReply,
    );
  }

  /** What its host has. */
  async info(options: CallOptions): Promise<EngineInfo> {
    return this.#connection.json({ method: 'GET', path: path`/info`, ...termsOf(options, infoDeadlineMs) }, infoReply);
  }
}

// The volume endpoints of the Engine API. A volume has no id: its name is unique on an engine.

const defaultDeadlineMs = 30_000;

const volumeReply = z.lazy(() =>
  z.looseObject({
    Name: z.string().min(1),
    Driver: z.string(),
    Labels: z.record(z.string(), z.string()).nullish(),
    /** Where the engine’s host has it. */
    Mountpoint: z.string().optional(),
    Options: z.record(z.string(), z.string()).nullish(),
  }),
);

const listReply = z.lazy(() => z.looseObject({ Volumes: z.array(volumeReply).nullish() }));

/** A volume, under the engine's own names. */
export type VolumeDetails = z.infer<typeof volumeReply>;

/** Volumes. Every method takes the signal that ends it, and has a deadline. */
class Volumes {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Creates a volume from a body that was built field by field. One of the same name is the same volume. */
  async create(body: object, options: CallOptions): Promise<VolumeDetails> {
    return this.#connection.json(
      {
        method: 'POST',
        path: path`/volumes/create`,
        body,
        expect: [201],
        ...termsOf(options, defaultDeadlineMs),
      },
      volumeReply,
    );
  }

  /** Everything the engine says about a volume. */
  async inspect(name: string, options: CallOptions): Promise<VolumeDetails> {
    return this.#connection.json(
      { method: 'GET', path: path`/volumes/${name}`, ...termsOf(options, defaultDeadlineMs) },
      volumeReply,
    );
  }

  /** The volumes that carry all of `labels`. */
  async list({ labels, ...options }: CallOptions & { readonly labels: readonly string[] }): Promise<VolumeDetails[]> {
    const reply = await this.#connection.json(
      {
        method: 'GET',
        path: path`/volumes`,
        query: { filters: JSON.stringify({ label: labels }) },
        ...termsOf(options, defaultDeadlineMs),
      },
      listReply,
    );
    return reply.Volumes ?? [];
  }

  /** Removes it. One that is gone is a success; one that a container uses is refused with status 409. */
  async remove(name: string, options: CallOptions): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'DELETE',
        path: path`/volumes/${name}`,
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }
}

// The network endpoints of the Engine API.

const createdReply = z.lazy(() => z.looseObject({ Id: z.string().min(1) }));

const texts = () => z.record(z.string(), z.string()).nullish();

const networkReply = z.lazy(() =>
  z.looseObject({
    Id: z.string().min(1),
    Name: z.string(),
    Driver: z.string(),
    Scope: z.string(),
    Internal: z.boolean(),
    Attachable: z.boolean(),
    Ingress: z.boolean().optional(),
    ConfigOnly: z.boolean().optional(),
    EnableIPv6: z.boolean(),
    Options: texts(),
    Labels: texts(),
    Containers: z.record(z.string(), z.unknown()).nullish(),
  }),
);

/** A network, under the engine's own names. A list leaves `Containers` empty; only `inspect` fills it. */
export type NetworkDetails = z.infer<typeof networkReply>;

/** Networks. Every method takes the signal that ends it, and has a deadline. */
class Networks {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Creates a network from a body that was built field by field, and gives its id. Names are not unique. */
  async create(body: object, options: CallOptions): Promise<string> {
    const reply = await this.#connection.json(
      {
        method: 'POST',
        path: path`/networks/create`,
        body,
        expect: [201],
        ...termsOf(options, defaultDeadlineMs),
      },
      createdReply,
    );
    return reply.Id;
  }

  /** Everything the engine says about a network. Give a whole id: the engine also takes names and the beginnings of ids. */
  async inspect(id: string, options: CallOptions): Promise<NetworkDetails> {
    return this.#connection.json(
      { method: 'GET', path: path`/networks/${id}`, ...termsOf(options, defaultDeadlineMs) },
      networkReply,
    );
  }

  /** The networks that carry all of `labels`, or whose name contains `name`: the engine compares parts of names. */
  async list({
    labels,
    name,
    ...options
  }: CallOptions & { readonly labels?: readonly string[]; readonly name?: string }): Promise<NetworkDetails[]> {
    const filters = JSON.stringify({ ...(labels ? { label: labels } : {}), ...(name ? { name: [name] } : {}) });
    return this.#connection.json(
      { method: 'GET', path: path`/networks`, query: { filters }, ...termsOf(options, defaultDeadlineMs) },
      z.array(networkReply),
    );
  }

  /** Removes it. One that is gone is a success; one that a container is connected to is refused with status 403. */
  async remove(id: string, options: CallOptions): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'DELETE',
        path: path`/networks/${id}`,
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  /** Takes a container off it, also while it runs. One that is not connected, or gone, is a success. */
  async disconnect(id: string, containerId: string, options: CallOptions): Promise<void> {
    try {
      await this.#connection.empty({
        method: 'POST',
        path: path`/networks/${id}/disconnect`,
        body: { Container: containerId, Force: true },
        ...termsOf(options, defaultDeadlineMs),
      });
    } catch (error) {
      if (!isNotFound(error) && !isNotConnected(error)) throw error;
    }
  }
}

// Engines say this with status 500.
function isNotConnected(error: unknown): boolean {
  return error instanceof EngineError && /is not connected to (?:the )?network/i.test(error.engineMessage ?? '');
}

// What the engine says happened, as it happens.

const subscribeDeadlineMs = 10_000;
const operation = 'GET /events';

/** One event of the engine. */
export interface EngineEvent {
  /** `container`, `image`, `network`… */
  readonly type: string;
  /** `create`, `start`, `oom`, `die`, `destroy`…; for exec and health events followed by a colon and details. */
  readonly action: string;
  /** Of the thing it happened to. */
  readonly id: string;
  /** Labels, and what belongs to the action, such as `exitCode`. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Nanoseconds since 1970, exactly. */
  readonly timeNano: bigint;
}

/** Which events to see: all that match one value of every key that is given. */
export interface EventFilters {
  readonly container?: readonly string[];
  /** `key` or `key=value`. */
  readonly label?: readonly string[];
  readonly event?: readonly string[];
  readonly type?: readonly string[];
}

/** What to subscribe to. */
interface SubscribeOptions extends CallOptions {
  readonly filters: EventFilters;
  /** From which moment on, in nanoseconds since 1970; without it from the call on. */
  readonly since?: bigint;
}

const eventReply = z.lazy(() =>
  z.looseObject({
    Type: z.string(),
    Action: z.string(),
    Actor: z.looseObject({ ID: z.string(), Attributes: z.record(z.string(), z.string()).nullish() }),
  }),
);

/** Events that the engine is sending already. Iterate it once; leaving the loop ends the subscription. */
export class EventSubscription implements AsyncIterable<EngineEvent>, Disposable {
  readonly #body: EngineReadable;

  constructor(body: EngineReadable) {
    this.#body = body;
  }

  /** Never ends by itself: a lost engine is an EngineError, since a quiet end would look like "nothing happened". */
  async *[Symbol.asyncIterator](): AsyncGenerator<EngineEvent, void, undefined> {
    for await (const { value, text } of jsonLines(this.#body, eventReply, operation)) {
      yield {
        type: value.Type,
        action: value.Action,
        id: value.Actor.ID,
        attributes: value.Actor.Attributes ?? {},
        timeNano: timeNanoOf(text),
      };
    }
    throw new EngineError({ kind: 'disconnected', operation, detail: 'the engine ended the stream of events' });
  }

  /** Ends the subscription; a loop that is waiting gets an `aborted` error. */
  close(): void {
    this.#body.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** The engine's events. */
class Events {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /**
   * Resolves when the engine sends: whatever is done after it will be seen.
   *
   * Read steadily: an engine drops events for a subscriber that lags far behind.
   */
  async subscribe({ filters, since, ...options }: SubscribeOptions): Promise<EventSubscription> {
    const { body } = await this.#connection.stream({
      method: 'GET',
      path: path`/events`,
      // The engine sends the headers a moment before it listens; events of that moment are replayed from its memory.
      query: { filters: JSON.stringify(filters), since: timestamp(since ?? BigInt(Date.now()) * 1_000_000n) },
      ...termsOf(options, subscribeDeadlineMs),
    });
    return new EventSubscription(body);
  }
}

function timestamp(nanoseconds: bigint): string {
  return `${nanoseconds / 1_000_000_000n}.${String(nanoseconds % 1_000_000_000n).padStart(9, '0')}`;
}

/** Taken from the text: as a JSON number it loses its last digits, and a subscription resumed from it would repeat or miss events. */
function timeNanoOf(text: string): bigint {
  const digits = /"timeNano":\s*(\d+)/.exec(text)?.[1];
  if (digits === undefined) throw new EngineError({ kind: 'protocol', operation, detail: 'an event has no time' });
  return BigInt(digits);
}
