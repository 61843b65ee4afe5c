// The container endpoints of the Engine API.

import * as z from 'zod';
import { type CallOptions, type EngineConnection, path, termsOf } from './connection.ts';
import { EngineError, isNotFound } from './protocol.ts';
import type { HijackedStream } from './streams.ts';

const defaultDeadlineMs = 30_000;
const watchDeadlineMs = 10_000;

/** An exit that the engine has promised to report: what happens from now on cannot be missed. */
export interface PendingExit {
  /** Safe to leave unawaited. Rejects as `disconnected` when the connection drops, and as `timeout` at the deadline. */
  readonly exit: Promise<ContainerExit>;
}

/** `next-exit` also counts for a container that has not been started; `not-running` is true at once for such a one. */
export type WaitCondition = 'next-exit' | 'not-running' | 'removed';

/** Which streams of a container to attach to. */
export interface AttachOptions {
  readonly stdin?: boolean;
  readonly stdout?: boolean;
  readonly stderr?: boolean;
  /** Replay what was printed before. Needs a log driver that keeps it. */
  readonly logs?: boolean;
}

/** Containers. Every method takes the signal that ends it, and has a deadline. */
export class Containers {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Creates a container from a body that was built field by field: the engine ignores keys it does not know without a word. */
  async create(
    body: object,
    { name, ...options }: CallOptions & { readonly name?: string },
  ): Promise<{ readonly id: string; readonly warnings: readonly string[] }> {
    const reply = await this.#connection.json(
      {
        method: 'POST',
        path: path`/containers/create`,
        query: { name },
        body,
        expect: [201],
        ...termsOf(options, defaultDeadlineMs),
      },
      createdReply,
    );
    return { id: reply.Id, warnings: reply.Warnings ?? [] };
  }

  /** Everything the engine says about a container. */
  async inspect(id: string, options: CallOptions): Promise<ContainerDetails> {
    return this.#connection.json(
      { method: 'GET', path: path`/containers/${id}/json`, ...termsOf(options, defaultDeadlineMs) },
      detailsReply,
    );
  }

  /** Starts it. One that runs already is a success, so a start whose answer was lost may be repeated. */
  async start(id: string, options: CallOptions): Promise<void> {
    return this.#connection.empty({
      method: 'POST',
      path: path`/containers/${id}/start`,
      expect: [204, 304],
      ...termsOf(options, defaultDeadlineMs),
    });
  }

  /** Resolves when it has ended. Give a deadline that fits what runs in it. */
  async wait(
    id: string,
    condition: WaitCondition,
    options: CallOptions & { readonly deadlineMs: number },
  ): Promise<ContainerExit> {
    const pending = await this.expectExit(id, condition, options);
    return pending.exit;
  }

  /**
   * Resolves when the engine has begun to watch, so that a `start` after it cannot end unseen. Podman answers a
   * moment before it watches; there an exit within that moment is only seen by its event.
   */
  async expectExit(
    id: string,
    condition: WaitCondition,
    { signal, deadlineMs }: CallOptions & { readonly deadlineMs: number },
  ): Promise<PendingExit> {
    const { reply } = await this.#connection.pending(
      {
        method: 'POST',
        path: path`/containers/${id}/wait`,
        query: { condition },
        signal,
        // An exit may be far away; that it is waited for the engine says at once.
        deadlineMs: Math.min(deadlineMs, watchDeadlineMs),
      },
      exitReply,
      deadlineMs,
    );
    const exit = reply.then(exitOf);
    exit.catch(() => undefined);
    return { exit };
  }

  /** Freezes every process of the container, or lets them go on. */
  async freeze(id: string, action: 'pause' | 'unpause', options: CallOptions): Promise<void> {
    return this.#connection.empty({
      method: 'POST',
      path: action === 'pause' ? path`/containers/${id}/pause` : path`/containers/${id}/unpause`,
      ...termsOf(options, defaultDeadlineMs),
    });
  }

  /** Sends a signal to its first process. Rejects with status 409 when it does not run. */
  async kill(id: string, signalName: string, options: CallOptions): Promise<void> {
    return this.#connection.empty({
      method: 'POST',
      path: path`/containers/${id}/kill`,
      query: { signal: signalName },
      ...termsOf(options, defaultDeadlineMs),
    });
  }

  /** Asks it to end, and kills it after `graceSeconds`. One that does not run is a success. */
  async stop(id: string, graceSeconds: number, options: CallOptions): Promise<void> {
    return this.#connection.empty({
      method: 'POST',
      path: path`/containers/${id}/stop`,
      query: { t: graceSeconds },
      expect: [204, 304],
      ...termsOf(options, defaultDeadlineMs + graceSeconds * 1000),
    });
  }

  /** Removes it. One that is gone, or that is being removed by somebody else, is a success. */
  async remove(
    id: string,
    { force, volumes, ...options }: CallOptions & { readonly force?: boolean; readonly volumes?: boolean },
  ): Promise<void> {
    const call = {
      method: 'DELETE',
      path: path`/containers/${id}`,
      query: { force, v: volumes },
      ...termsOf(options, defaultDeadlineMs),
    } as const;
    try {
      await this.#connection.empty(call);
    } catch (error) {
      if (isNotFound(error)) return;
      if (!isGoing(error)) throw error;
      await this.#untilGone(id, termsOf(options, defaultDeadlineMs));
    }
  }

  // Somebody else removes it already, perhaps ourselves a moment ago; gone is only what the engine says is gone.
  async #untilGone(id: string, terms: { readonly signal: AbortSignal; readonly deadlineMs: number }): Promise<void> {
    try {
      await this.wait(id, 'removed', terms);
    } catch (error) {
      if (!isNotFound(error)) throw error;
    }
  }

  /** The containers that carry all of `labels` (`key` or `key=value`); with `all`, also those that do not run. */
  async list({
    labels,
    all,
    ...options
  }: CallOptions & { readonly labels: readonly string[]; readonly all?: boolean }): Promise<ContainerSummary[]> {
    const filters = JSON.stringify({ label: labels });
    const replies = await this.#connection.json(
      { method: 'GET', path: path`/containers/json`, query: { all, filters }, ...termsOf(options, defaultDeadlineMs) },
      z.array(summaryReply),
    );
    return replies.map(summaryOf);
  }

  /** Connects to its streams; attach before `start`, or the first output is lost. */
  async attach(
    id: string,
    { stdin, stdout, stderr, logs, ...options }: CallOptions & AttachOptions,
  ): Promise<HijackedStream> {
    return this.#connection.hijack({
      method: 'POST',
      path: path`/containers/${id}/attach`,
      query: { stream: true, stdin, stdout, stderr, logs },
      ...termsOf(options, defaultDeadlineMs),
    });
  }

  /** One sample, without the engine's second of waiting for a second one. */
  async stats(id: string, options: CallOptions): Promise<ContainerStats> {
    return this.#connection.json(
      {
        method: 'GET',
        path: path`/containers/${id}/stats`,
        query: { stream: false, 'one-shot': true },
        ...termsOf(options, defaultDeadlineMs),
      },
      statsReply,
    );
  }
}

function isGoing(error: unknown): boolean {
  return (
    error instanceof EngineError &&
    error.status === 409 &&
    /removal .* already in progress/i.test(error.engineMessage ?? '')
  );
}

// What the engine answers about containers: its shape is checked here, and nowhere else.

// Schemas are built at their first use: built at import, they would cost every start of the command 10 ms.
const strings = () => z.array(z.string()).nullish();
const record = () => z.record(z.string(), z.unknown());

/** The answer to a create. */
export const createdReply = z.lazy(() => z.looseObject({ Id: z.string().min(1), Warnings: strings() }));

/** What the engine says about a container, under the engine's own names. Keys that are not named here are kept too. */
export const detailsReply = z.lazy(() =>
  z.looseObject({
    Id: z.string(),
    Name: z.string(),
    Image: z.string(),
    Created: z.string(),
    State: z.looseObject({
      Status: z.string(),
      Running: z.boolean(),
      Pid: z.number(),
      ExitCode: z.number(),
      OOMKilled: z.boolean(),
      Dead: z.boolean(),
      Error: z.string().optional(),
      StartedAt: z.string(),
      FinishedAt: z.string(),
    }),
    Config: z.looseObject({
      Image: z.string(),
      User: z.string().optional(),
      Hostname: z.string().optional(),
      WorkingDir: z.string().optional(),
      StopSignal: z.string().optional(),
      Env: strings(),
      Cmd: strings(),
      Entrypoint: strings(),
      Labels: z.record(z.string(), z.string()).nullish(),
      Volumes: record().nullish(),
      Healthcheck: record().nullish(),
      Tty: z.boolean().optional(),
      OpenStdin: z.boolean().optional(),
      StdinOnce: z.boolean().optional(),
    }),
    HostConfig: record(),
    Mounts: z.array(
      z.looseObject({
        Type: z.string(),
        Name: z.string().optional(),
        Source: z.string().optional(),
        Destination: z.string(),
        RW: z.boolean(),
        Propagation: z.string().optional(),
      }),
    ),
    NetworkSettings: z.looseObject({
      Networks: z.record(z.string(), record()).nullish(),
      Ports: z
        .record(z.string(), z.array(z.looseObject({ HostIp: z.string(), HostPort: z.string() })).nullish())
        .nullish(),
    }),
  }),
);

/** See {@link detailsReply}. */
export type ContainerDetails = z.infer<typeof detailsReply>;

/** One entry of the answer to a list. */
export const summaryReply = z.lazy(() =>
  z.looseObject({
    Id: z.string(),
    Names: strings(),
    Image: z.string(),
    ImageID: z.string(),
    Created: z.number(),
    State: z.string(),
    Status: z.string(),
    Labels: z.record(z.string(), z.string()).nullish(),
    Mounts: z
      .array(
        z.looseObject({
          Type: z.string(),
          Source: z.string().optional(),
          Destination: z.string().optional(),
          RW: z.boolean().optional(),
        }),
      )
      .nullish(),
  }),
);

/** A container as `list` shows it. */
export interface ContainerSummary {
  readonly id: string;
  /** Without the leading slash the engine writes. */
  readonly names: readonly string[];
  readonly image: string;
  readonly imageId: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly state: string;
  readonly status: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Directories of the host that it can write. */
  readonly writableSources: readonly string[];
  /** Files and directories of the host that it has and cannot write. */
  readonly readOnlySources: readonly string[];
  /** What of the host is mounted in it, by the path inside. */
  readonly sourceAt: Readonly<Record<string, string>>;
}

/** The answer to a wait. */
export const exitReply = z.lazy(() =>
  z.looseObject({
    StatusCode: z.number(),
    Error: z.looseObject({ Message: z.string().optional() }).nullish(),
  }),
);

/** How a container ended. */
export interface ContainerExit {
  readonly statusCode: number;
  /** Set when the engine could not wait properly. */
  readonly error?: string;
}

/** The answer to stats. */
const statsReply = z.lazy(() =>
  z.looseObject({
    read: z.string().optional(),
    memory_stats: record().nullish(),
    cpu_stats: record().nullish(),
    pids_stats: record().nullish(),
    networks: z.record(z.string(), record()).nullish(),
  }),
);

/** One sample of a container's use of resources, under the engine's own names. */
export type ContainerStats = z.infer<typeof statsReply>;

/** A {@link ContainerExit} from the answer to a wait. */
export function exitOf({ StatusCode, Error: error }: z.infer<typeof exitReply>): ContainerExit {
  return error?.Message ? { statusCode: StatusCode, error: error.Message } : { statusCode: StatusCode };
}

/** A {@link ContainerSummary} from an entry of a list. */
export function summaryOf(reply: z.infer<typeof summaryReply>): ContainerSummary {
  return {
    id: reply.Id,
    names: (reply.Names ?? []).map(name => name.replace(/^\//, '')),
    image: reply.Image,
    imageId: reply.ImageID,
    created: reply.Created,
    state: reply.State,
    status: reply.Status,
    labels: reply.Labels ?? {},
    writableSources: sources(reply, true),
    readOnlySources: sources(reply, false),
    sourceAt: sourcesByTarget(reply),
  };
}

function sourcesByTarget({ Mounts }: z.infer<typeof summaryReply>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    (Mounts ?? []).flatMap(({ Type, Source, Destination }) =>
      Type === 'bind' && Source && Destination ? [[Destination, Source]] : [],
    ),
  );
}

// What the engine leaves open counts as writable.
function sources({ Mounts }: z.infer<typeof summaryReply>, writable: boolean): string[] {
  return (Mounts ?? []).flatMap(({ Type, Source, RW }) =>
    Type === 'bind' && (RW ?? true) === writable && Source ? [Source] : [],
  );
}
