// Further processes in a container that runs.
import * as z from 'zod';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import type { HijackedStream } from './hijack.ts';
import { path } from './path.ts';

const defaultDeadlineMs = 30_000;

/** What to run. Privileges cannot be asked for. */
export interface ExecSpec {
  readonly argv: readonly string[];
  /** `KEY=value`, on top of the container's. */
  readonly env?: readonly string[];
  readonly user?: string;
  readonly workingDirectory?: string;
  /** Whether we will write to its stdin. */
  readonly stdin?: boolean;
  readonly terminal?: boolean;
}

const createdReply = z.lazy(() => z.looseObject({ Id: z.string().min(1) }));
const inspectReply = z.lazy(() =>
  z.looseObject({ Running: z.boolean(), ExitCode: z.number().nullish(), Pid: z.number().nullish() }),
);

/** How a process is doing. */
export interface ExecState {
  readonly running: boolean;
  /** Null while it runs. */
  readonly exitCode: number | null;
  /** As the engine's host sees it; 0 when there is none. */
  readonly pid: number;
}

/** Processes in containers. */
export class Exec {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /** Prepares a process and gives its id; nothing runs yet. */
  async create(containerId: string, spec: ExecSpec, options: CallOptions): Promise<string> {
    const body = {
      AttachStdin: spec.stdin ?? false,
      AttachStdout: true,
      AttachStderr: true,
      Tty: spec.terminal ?? false,
      Privileged: false,
      Cmd: spec.argv,
      Env: spec.env ?? [],
      User: spec.user ?? '',
      WorkingDir: spec.workingDirectory ?? '',
    };
    const reply = await this.#connection.json(
      { method: 'POST', path: path`/containers/${containerId}/exec`, body, ...termsOf(options, defaultDeadlineMs) },
      createdReply,
    );
    return reply.Id;
  }

  /** Starts it and connects to its streams; framed as for `attach`, raw for a terminal. */
  async start(
    execId: string,
    { terminal = false, ...options }: CallOptions & { readonly terminal?: boolean },
  ): Promise<HijackedStream> {
    const body = { Detach: false, Tty: terminal };
    return this.#connection.hijack({
      method: 'POST',
      path: path`/exec/${execId}/start`,
      body,
      ...termsOf(options, defaultDeadlineMs),
    });
  }

  /** Gives its terminal another size. */
  async resize(
    execId: string,
    { columns, rows }: { readonly columns: number; readonly rows: number },
    options: CallOptions,
  ): Promise<void> {
    return this.#connection.empty({
      method: 'POST',
      path: path`/exec/${execId}/resize`,
      query: { h: rows, w: columns },
      // The answer is 200 by what engines do, and 201 by what they document.
      expect: [200, 201],
      ...termsOf(options, defaultDeadlineMs),
    });
  }

  /** Whether it runs, and how it ended. */
  async inspect(execId: string, options: CallOptions): Promise<ExecState> {
    const reply = await this.#connection.json(
      { method: 'GET', path: path`/exec/${execId}/json`, ...termsOf(options, defaultDeadlineMs) },
      inspectReply,
    );
    return { running: reply.Running, exitCode: reply.ExitCode ?? null, pid: reply.Pid ?? 0 };
  }
}
