// What the engine says about itself and its host.
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { path } from './path.ts';

const defaultDeadlineMs = 5000;
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
export type EngineVersion = z.infer<typeof versionReply>;

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
    ServerVersion: z.string(),
    OperatingSystem: z.string(),
    KernelVersion: z.string(),
    Architecture: z.string(),
  }),
);

/** The engine's host, under the engine's own names. */
export type EngineInfo = z.infer<typeof infoReply>;

/** The engine itself. */
export class System {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Resolves if the engine answers. */
  async ping(options: CallOptions): Promise<void> {
    return this.#connection.empty({ method: 'GET', path: path`/_ping`, ...termsOf(options, defaultDeadlineMs) });
  }

  /** Which engine it is. */
  async version(options: CallOptions): Promise<EngineVersion> {
    return this.#connection.json(
      { method: 'GET', path: path`/version`, ...termsOf(options, defaultDeadlineMs) },
      versionReply,
    );
  }

  /** What its host has. */
  async info(options: CallOptions): Promise<EngineInfo> {
    return this.#connection.json({ method: 'GET', path: path`/info`, ...termsOf(options, infoDeadlineMs) }, infoReply);
  }
}
