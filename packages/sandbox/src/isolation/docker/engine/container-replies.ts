// What the engine answers about containers: its shape is checked here, and nowhere else.
import * as z from 'zod';

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
      .array(z.looseObject({ Type: z.string(), Source: z.string().optional(), RW: z.boolean().optional() }))
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
export const statsReply = z.lazy(() =>
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
  };
}

// What the engine leaves open counts as writable.
function sources({ Mounts }: z.infer<typeof summaryReply>, writable: boolean): string[] {
  return (Mounts ?? []).flatMap(({ Type, Source, RW }) =>
    Type === 'bind' && (RW ?? true) === writable && Source ? [Source] : [],
  );
}
