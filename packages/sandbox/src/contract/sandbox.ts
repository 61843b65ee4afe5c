// A sandbox that stays: what is asked of it, and the shapes of its commands, files and ports.

import type { Readable } from 'node:stream';
import type { Command, RunRequest } from './command.ts';
import type { RiskyChange, RunResult, RunningCommand } from './result.ts';

/** What a sandbox that stays is to be. Every field is optional. */
export interface CreateRequest extends Pick<RunRequest, 'policy' | 'env' | 'risk' | 'sessionId' | 'taskId' | 'signal'> {
  /** How long it may exist; an hour unless told otherwise, a day at most. */
  expiresInMs?: number;
  /** Whether it outlives this process, until it expires or is killed. */
  keep?: boolean;
}

/** Everything about one command in a sandbox that stays. */
export interface CommandRequest extends Pick<RunRequest, 'cwd' | 'env' | 'stdin' | 'signal' | 'onStdout' | 'onStderr'> {
  /**
   * How long it may take, in milliseconds; never longer than a limit that the policy of the sandbox sets. As long as the
   * sandbox stays by default: the built-in limit is for commands that have a sandbox of their own.
   */
  timeoutMs?: number;
}

/** The size of a terminal, in characters. */
export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

/** Everything about one command with a terminal. */
export interface TerminalRequest extends CommandRequest {
  /** The size of the terminal at first; 80 by 24 unless told otherwise. */
  size?: TerminalSize;
  /**
   * Whether the time limit of the sandbox’s policy holds, as for `run`. Without it, the command may go on for as long as the
   * sandbox exists.
   */
  limited?: boolean;
}

/** A command in a sandbox that stays, while it runs. */
export interface CommandHandle extends RunningCommand {
  /** The first process of the command, as the sandbox counts them. */
  readonly pid: number;
  /** The same as `result`. */
  wait(): Promise<RunResult>;
  /** Hangs up on a command of another process, which goes on; nothing where the command is this process’s own. */
  disconnect(): Promise<void>;
}

/** A command with a terminal of its own: everything it prints comes on `stdout`. */
export interface TerminalHandle extends CommandHandle {
  /** Tells the command that its terminal has another size. */
  resize(size: TerminalSize): Promise<void>;
}

/** A command that runs, as a list shows it. */
export interface CommandInfo {
  readonly pid: number;
  readonly command: Command;
  readonly cwd: string;
  readonly startedAt: string;
}

/** The commands of a sandbox that stays. */
export interface Commands {
  /**
   * Runs a command to its end, with the contract of `Acode.run`; with `background`, returns once it is under way.
   *
   * @example
   * const { exitCode, stdout } = await sandbox.commands.run(['npm', 'test']);
   * const server = await sandbox.commands.run('npm start', { background: true });
   */
  run(command: Command, request?: CommandRequest & { background?: false }): Promise<RunResult>;
  run(command: Command, request: CommandRequest & { background: true }): Promise<CommandHandle>;
  /** Starts a command and returns a handle on it, with the contract of `Acode.spawn` and the time limit of `run`. */
  spawn(command: Command, request?: CommandRequest): Promise<CommandHandle>;
  /** Starts a command with a terminal, whose reader has everything it prints, however much. */
  terminal(command: Command, request?: TerminalRequest): Promise<TerminalHandle>;
  /** The commands under way: those of this process and, in a sandbox that is kept, of every other one of this user. */
  list(): Promise<CommandInfo[]>;
  /**
   * One of them by its process, with its output from the first byte on; ACODE-SBX-017 where there is none. A command belongs to
   * the process that started it: who connects from another one reads, writes, kills and waits through that process, and hangs up by
   * `disconnect` or by disposing of the handle.
   */
  connect(pid: number): Promise<CommandHandle>;
}

/** What `stat` tells of a file: the names of `node:fs`. */
export interface FileStats {
  readonly size: number;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly nlink: number;
  readonly ino: number;
  readonly mtimeMs: number;
  readonly mtime: Date;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/** One entry of a directory: the names of `node:fs`. */
export interface DirectoryEntry {
  readonly name: string;
  /** The directory it is in. */
  readonly parentPath: string;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/** A change that was seen. */
export interface FileChange {
  readonly eventType: 'rename' | 'change';
  /** Relative to what is watched. */
  readonly filename: string;
}

/** What every call takes. What it does not know is refused (ACODE-SBX-017), and never ignored. */
export interface FileCall {
  readonly signal?: AbortSignal;
}

/** How content is read: as bytes, unless an encoding makes text of them. */
export interface ContentOptions extends FileCall {
  readonly encoding?: BufferEncoding | null;
  readonly flag?: 'r';
}

/** How a file is read bit by bit. */
export interface StreamOptions extends FileCall {
  readonly encoding?: BufferEncoding | null;
  readonly flags?: 'r';
}

/** From the beginning of a file, at its end, or only where there is none yet. */
export type WriteFlag = 'w' | 'a' | 'wx';

/** How a file is written. */
export interface WritingOptions extends FileCall {
  /** Of text; utf8 unless you say. */
  readonly encoding?: BufferEncoding | null;
  /** Of a file that was not there. */
  readonly mode?: number;
  readonly flag?: WriteFlag | 'ax';
}

/** How a directory is made. */
export interface DirectoryOptions extends FileCall {
  readonly recursive?: boolean;
  readonly mode?: number;
}

/** Bounds of what is taken out of a sandbox, whose content is whatever its commands made it. */
export interface TransferOptions extends FileCall {
  readonly maxBytes?: number;
  readonly maxEntries?: number;
}

/** How a directory is read. */
export interface ReadingOptions extends FileCall {
  readonly recursive?: boolean;
  /**
   * How large the listing may be: a command can make a directory as large as it likes. 256 MiB unless you say, and never more
   * than 2,000,000 entries.
   */
  readonly maxBytes?: number;
}

/** What was transferred. */
export interface TransferReport {
  readonly files: number;
  readonly directories: number;
  readonly bytes: number;
  /** What was left out, and why: links, devices and names that lead elsewhere. */
  readonly skipped: readonly { readonly path: string; readonly reason: string }[];
  /**
   * What came out of the sandbox and tools of this machine might execute or follow; paths are relative to the target. Absent
   * where there is none, and of an upload.
   */
  readonly riskyChanges?: readonly RiskyChange[];
}

/**
 * The files of a sandbox, with the shape and the errors of `node:fs/promises`. Paths are those inside; a relative one begins
 * in the workspace.
 */
export interface Files {
  readFile(path: string, options: BufferEncoding | (ContentOptions & { encoding: BufferEncoding })): Promise<string>;
  readFile(path: string, options?: (ContentOptions & { encoding?: null }) | null): Promise<Buffer>;
  writeFile(
    path: string,
    data: string | Uint8Array | Readable,
    options?: BufferEncoding | WritingOptions | null,
  ): Promise<void>;
  appendFile(path: string, data: string | Uint8Array, options?: BufferEncoding | WritingOptions | null): Promise<void>;
  /** The content as a stream, however large. */
  createReadStream(path: string, options?: BufferEncoding | StreamOptions): Readable;
  readdir(path: string, options?: { withFileTypes?: false } & ReadingOptions): Promise<string[]>;
  readdir(path: string, options: { withFileTypes: true } & ReadingOptions): Promise<DirectoryEntry[]>;
  mkdir(path: string, options?: number | DirectoryOptions | null): Promise<void>;
  rm(path: string, options?: { recursive?: boolean; force?: boolean } & FileCall): Promise<void>;
  rmdir(path: string, options?: FileCall): Promise<void>;
  unlink(path: string, options?: FileCall): Promise<void>;
  rename(from: string, to: string, options?: FileCall): Promise<void>;
  copyFile(from: string, to: string, options?: FileCall): Promise<void>;
  stat(path: string, options?: FileCall): Promise<FileStats>;
  lstat(path: string, options?: FileCall): Promise<FileStats>;
  access(path: string, mode?: number, options?: FileCall): Promise<void>;
  chmod(path: string, mode: number, options?: FileCall): Promise<void>;
  readlink(path: string, options?: FileCall): Promise<string>;
  symlink(target: string, path: string, options?: FileCall): Promise<void>;
  truncate(path: string, length?: number, options?: FileCall): Promise<void>;
  realpath(path: string, options?: FileCall): Promise<string>;
  /** Changes below a path, until the signal fires or the loop is left. */
  watch(path: string, options?: { recursive?: boolean } & FileCall): AsyncIterable<FileChange>;
  /** Brings a file or a tree of the host in. */
  upload(hostPath: string, path: string, options?: TransferOptions): Promise<TransferReport>;
  /** Brings a file or a tree out, checked as hostile: nothing is written outside `hostPath`, and no link, device or privilege comes along. */
  download(path: string, hostPath: string, options?: TransferOptions): Promise<TransferReport>;
}

/** A way from the host’s loopback to a server inside. */
export interface ForwardedPort extends AsyncDisposable {
  /** On 127.0.0.1. */
  readonly port: number;
  close(): Promise<void>;
}

/** Reaching servers inside, without a network of the sandbox’s own. */
export interface Ports {
  /**
   * Listens on a port of the host’s loopback, any free one unless told otherwise, and leads each connection inside.
   * `onUnanswered` is called for each connection that nothing inside took.
   */
  forward(
    containerPort: number,
    options?: { hostPort?: number; onUnanswered?: () => void; signal?: AbortSignal },
  ): Promise<ForwardedPort>;
}
