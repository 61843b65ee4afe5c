// Further processes in a container that runs.

import type { Readable } from 'node:stream';
import * as z from 'zod';
import { type CallOptions, type EngineConnection, path, termsOf } from './connection.ts';
import { isNotFound } from './protocol.ts';
import type { HijackedStream } from './streams.ts';

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

// Files in and out of a container, as tar streams.

const uploadDeadlineMs = 300_000;
const silenceMs = 60_000;

/** Tar streams from and to containers. */
export class Archive {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /**
   * What is at a path, as tar. The engine sends no faster than it is read. The bytes were made by whoever
   * wrote in the container: extract them with a policy.
   */
  async get(containerId: string, containerPath: string, options: CallOptions): Promise<Readable> {
    const { body } = await this.#connection.stream({
      method: 'GET',
      path: path`/containers/${containerId}/archive`,
      query: { path: containerPath },
      idleMs: silenceMs,
      ...termsOf(options, defaultDeadlineMs),
    });
    return body;
  }

  /** Whether there is anything at a path; works before the container was ever started. */
  async exists(containerId: string, containerPath: string, options: CallOptions): Promise<boolean> {
    try {
      await this.#connection.empty({
        method: 'HEAD',
        path: path`/containers/${containerId}/archive`,
        query: { path: containerPath },
        ...termsOf(options, defaultDeadlineMs),
      });
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  /** What is at a path, where a link at its end is not followed; works before the container was ever started. */
  async kindAt(containerId: string, containerPath: string, options: CallOptions): Promise<PathKind> {
    const { status, headers, body } = await this.#connection.stream({
      method: 'HEAD',
      path: path`/containers/${containerId}/archive`,
      query: { path: containerPath },
      expect: [200, 404],
      ...termsOf(options, defaultDeadlineMs),
    });
    body.destroy();
    return pathKind(status, headers[PATH_STAT]);
  }

  /** Unpacks a tar into a directory that exists. A stream is always used up or destroyed. */
  async put(
    containerId: string,
    containerPath: string,
    tar: Readable | Uint8Array,
    options: CallOptions,
  ): Promise<void> {
    return this.#connection.empty({
      method: 'PUT',
      path: path`/containers/${containerId}/archive`,
      // A tar never turns a directory of the container into a file, or a file into a directory.
      query: { path: containerPath, noOverwriteDirNonDir: true },
      body: tar,
      ...termsOf(options, uploadDeadlineMs),
    });
  }
}

// What an engine says is at a path of a container, without following a link at its end.

/** What is at a path; `other` also where the engine does not say. */
type PathKind = 'absent' | 'directory' | 'file' | 'symbolic link' | 'other';

/** The header that describes a path, in base64. Podman sends it with status 404 for a link that leads nowhere. */
const PATH_STAT = 'x-docker-container-path-stat';

// The bits of a file mode as Go has them.
const TYPES = 0x8f280000;
const DIRECTORY = 0x80000000;
const LINK = 0x08000000;

const statSchema = z.object({ mode: z.int().min(0).max(0xffffffff) });

/** Reads an answer about a path. */
export function pathKind(status: number, header: string | readonly string[] | undefined): PathKind {
  if (header === undefined) return status === 404 ? 'absent' : 'other';
  const mode = modeIn(String(header));
  if (mode === null) return 'other';
  const type = (mode & TYPES) >>> 0;
  if (type === LINK) return 'symbolic link';
  if (status === 404) return 'other';
  if (type === DIRECTORY) return 'directory';
  return type === 0 ? 'file' : 'other';
}

function modeIn(header: string): number | null {
  try {
    return statSchema.parse(JSON.parse(Buffer.from(header, 'base64').toString('utf8'))).mode;
  } catch {
    return null;
  }
}
