// Host interface: the part of the library that the MCP server uses, so that tools can be tested without an engine.

import type { Readable } from 'node:stream';
import type {
  Command,
  Explanation,
  NetworkAccess,
  PolicyInput,
  Risk,
  RunRequest,
  RunResult,
  Status,
} from '@acode/sandbox';

/** What a persistent sandbox is asked to be. */
export interface OpenRequest {
  readonly policy?: PolicyInput;
  readonly env?: Record<string, string>;
  readonly risk?: Risk;
  readonly expiresInMs?: number;
  readonly signal?: AbortSignal;
}

/** What is said about one command in a persistent sandbox. */
export interface InsideRequest extends Pick<RunRequest, 'cwd' | 'env' | 'stdin' | 'signal' | 'onStdout' | 'onStderr'> {
  timeoutMs?: number;
}

/** A command that runs on while other tools are called. */
export interface InsideHandle {
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  write(data: string): Promise<void>;
  closeStdin(): Promise<void>;
  kill(signal?: string): Promise<void>;
  readonly result: Promise<RunResult>;
}

/** The commands of a persistent sandbox. */
export interface InsideCommands {
  run(command: Command, request?: InsideRequest & { background?: false }): Promise<RunResult>;
  run(command: Command, request: InsideRequest & { background: true }): Promise<InsideHandle>;
}

/** One entry of a directory inside. */
export interface InsideEntry {
  readonly name: string;
  readonly parentPath: string;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/** What a call on a file takes. */
interface FileCall {
  readonly signal?: AbortSignal;
}

/** The files of a persistent sandbox. */
export interface InsideFiles {
  createReadStream(path: string, options?: FileCall): Readable;
  writeFile(path: string, data: string | Uint8Array, options?: FileCall): Promise<void>;
  appendFile(path: string, data: string | Uint8Array, options?: FileCall): Promise<void>;
  stat(path: string, options?: FileCall): Promise<unknown>;
  mkdir(path: string, options?: { recursive?: boolean } & FileCall): Promise<void>;
  readdir(
    path: string,
    options: { withFileTypes: true; recursive?: boolean; maxBytes?: number } & FileCall,
  ): Promise<InsideEntry[]>;
}

/** A persistent sandbox. */
export interface InsideSandbox {
  readonly id: string;
  readonly expiresAt: Date;
  readonly commands: InsideCommands;
  readonly files: InsideFiles;
  readonly riskyChanges: readonly RunResult['riskyChanges'][number][];
  /** Settles when it has ended, for any reason. */
  readonly ended: Promise<unknown>;
  kill(): Promise<void>;
}

/** The host behind the tools. */
export interface ToolHost {
  run(command: Command, request?: RunRequest): Promise<RunResult>;
  create(request?: OpenRequest): Promise<InsideSandbox>;
  explain(command: Command, request?: RunRequest): Promise<Explanation>;
  status(): Promise<Status>;
  /** Asking a person for a host. To allow one is no part of it. */
  readonly network: Pick<NetworkAccess, 'request'>;
  /** What to say of the fork that a command wrote; absent where commands write the workspace itself. */
  forkNote?(result: RunResult): Promise<string | null>;
}
