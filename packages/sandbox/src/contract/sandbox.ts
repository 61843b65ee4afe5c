// Persistent sandboxes: the request for one, and the shapes of its commands, files and ports.

import type { Readable } from 'node:stream';
import type { Command, RunRequest } from './command.ts';
import type { AllowedHosts, NamedNetwork, PolicyInput } from './policy.ts';
import type { RiskyChange, RunResult, RunningCommand } from './result.ts';

/** Every field of a request for a persistent sandbox. {@link CreateRequest} is this type without what is always refused. */
export interface CreateFields extends Pick<RunRequest, 'policy' | 'env' | 'risk' | 'sessionId' | 'taskId' | 'signal'> {
  /** How long it may exist, in milliseconds; an hour by default, a day at most. */
  expiresInMs?: number;
  /** Whether it outlives this process, until it expires or is killed; false by default. */
  keep?: boolean;
  /**
   * Whether your other processes can use it while this one lives; false by default. It ends with this process, so that it may have
   * what belongs to one: an allow-list, caches, the network `bridge`. With `keep` it is of no effect.
   */
  shared?: boolean;
  /**
   * A name of your own, for `connect` and `kill`; needs `keep` or `shared`. It is 4 to 40 lowercase letters, digits and hyphens, and no other
   * persistent sandbox of yours on this engine may have it: `name: 'web-server'`. None by default.
   */
  name?: string;
}

/**
 * A request for a persistent sandbox. Every field is optional. `keep: true` does not compile with `policy.caches` or with the
 * network `bridge`, which end with this process; JavaScript callers get ACODE-SBX-016 at run time.
 *
 * @example
 * const request: CreateRequest = { policy: { image: 'node:20-alpine' }, expiresInMs: 600_000, keep: true };
 */
export type CreateRequest = CreateFields & (EndsWithSession | OutlivesSession);

/** A request for a persistent sandbox that was put together at run time; as `policyFrom`, it checks nothing. */
export function createRequestFrom(fields: CreateFields): CreateRequest {
  // oxlint-disable-next-line no-unsafe-type-assertion -- every field is checked where a request is used
  return fields as CreateRequest;
}

/** A sandbox that ends with this process: every policy is allowed. */
interface EndsWithSession {
  /** False, which is the default. */
  keep?: false;
}

/** A sandbox that may outlive this process: nothing in its policy belongs to the session. */
interface OutlivesSession {
  /** A policy without caches and without the network `bridge`. */
  policy?: PolicyInput & {
    /** None: caches belong to the session. */
    caches?: false | never[] | undefined;
    /** Not `bridge`, which belongs to the session. */
    network?: 'none' | NamedNetwork | AllowedHosts | undefined;
  };
}

/** What every {@link CommandRunner} takes with a command. Every field is optional. */
export type RunnerRequest = Pick<RunRequest, 'cwd' | 'env' | 'stdin' | 'signal' | 'onStdout' | 'onStderr'>;

/**
 * A place where commands run: a host, which gives each a fresh sandbox, or one persistent sandbox. Write what runs commands against
 * this interface, and it works with both.
 *
 * @example
 * const passes = async (runner: CommandRunner) => (await runner.run(['npm', 'test'])).exitCode === 0;
 * await passes(acode);
 * await passes(sandbox);
 */
export interface CommandRunner {
  /**
   * Runs a command to its end. Resolves once it has started, whatever its exit status, time limit or lack of memory; rejects if it
   * never started, and with ACODE-SBX-014 if `signal` cancelled it.
   */
  run(command: Command, request?: RunnerRequest): Promise<RunResult>;
  /** Starts a command and returns a handle on it, with its streams. */
  spawn(command: Command, request?: RunnerRequest): Promise<RunningCommand>;
}

/** Everything about one command in a persistent sandbox. */
export interface CommandRequest extends RunnerRequest {
  /**
   * How long it may take, in milliseconds; never longer than a limit that the policy of the sandbox sets. By default as long as the
   * sandbox exists: the built-in limit is for commands that have a sandbox of their own.
   */
  timeoutMs?: number;
}

/** The size of a terminal, in characters. */
export interface TerminalSize {
  /** Characters in a line. */
  readonly columns: number;
  /** Lines. */
  readonly rows: number;
}

/** Everything about one command with a terminal. */
export interface TerminalRequest extends CommandRequest {
  /** The size of the terminal at first; 80 by 24 by default. */
  size?: TerminalSize;
  /**
   * Whether the time limit of the sandbox’s policy holds, as for `run`. Without it, the command may go on for as long as the
   * sandbox exists.
   */
  limited?: boolean;
}

/** A command in a persistent sandbox, while it runs. */
export interface CommandHandle extends RunningCommand {
  /** The first process of the command, as the sandbox counts them. */
  readonly pid: number;
  /** The same as `result`. */
  wait(): Promise<RunResult>;
  /** Disconnects from a command of another process, which keeps running. No effect on a command of this process. */
  disconnect(): Promise<void>;
}

/** A command with a terminal of its own: everything it prints comes on `stdout`. */
export interface TerminalHandle extends CommandHandle {
  /** Tells the command that its terminal has another size. */
  resize(size: TerminalSize): Promise<void>;
}

/** A command that runs, as a list shows it. */
export interface CommandInfo {
  /** The first process of the command, as the sandbox counts them. */
  readonly pid: number;
  /** The command as it was asked for. */
  readonly command: Command;
  /** Its working directory, relative to the workspace. */
  readonly cwd: string;
  /** When it was started, in ISO 8601. */
  readonly startedAt: string;
}

/** The commands of a persistent sandbox. */
export interface Commands {
  /**
   * Runs a command to its end, with the contract of `Acode.run`; with `background`, returns once it is under way.
   *
   * @example
   * const { exitCode, stdout } = await sandbox.commands.run(['npm', 'test']);
   * const server = await sandbox.commands.run('npm start', { background: true });
   */
  run(
    command: Command,
    request?: CommandRequest & {
      /** Whether to return once the command has started. */
      background?: false;
    },
  ): Promise<RunResult>;
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
  /** Size in bytes. */
  readonly size: number;
  /** Type and permissions, as in `node:fs`. */
  readonly mode: number;
  /** The owner’s user id, as inside the sandbox. */
  readonly uid: number;
  /** The group id, as inside the sandbox. */
  readonly gid: number;
  /** How many hard links it has. */
  readonly nlink: number;
  /** The inode number. */
  readonly ino: number;
  /** When its content changed last, in milliseconds since the epoch. */
  readonly mtimeMs: number;
  /** The same as a date. */
  readonly mtime: Date;
  /** Whether it is a regular file. */
  isFile(): boolean;
  /** Whether it is a directory. */
  isDirectory(): boolean;
  /** Whether it is a symbolic link. */
  isSymbolicLink(): boolean;
}

/** One entry of a directory: the names of `node:fs`. */
export interface DirectoryEntry {
  /** The name, without its directory. */
  readonly name: string;
  /** The directory it is in. */
  readonly parentPath: string;
  /** Whether it is a regular file. */
  isFile(): boolean;
  /** Whether it is a directory. */
  isDirectory(): boolean;
  /** Whether it is a symbolic link. */
  isSymbolicLink(): boolean;
}

/** A change that was seen. */
export interface FileChange {
  /** `rename` if a name appeared or disappeared, `change` if content changed. */
  readonly eventType: 'rename' | 'change';
  /** Relative to what is watched. */
  readonly filename: string;
}

/** What every call takes. What it does not know is refused (ACODE-SBX-017), and never ignored. */
export interface FileCall {
  /** Cancels the call. */
  readonly signal?: AbortSignal;
}

/** How content is read: as bytes, unless an encoding makes text of them. */
export interface ContentOptions extends FileCall {
  /** The encoding of the text; without it, the content is bytes. */
  readonly encoding?: BufferEncoding | null;
  /** Reading is the only mode. */
  readonly flag?: 'r';
}

/** How a file is read bit by bit. */
export interface StreamOptions extends FileCall {
  /** The encoding of the text; without it, the stream is of bytes. */
  readonly encoding?: BufferEncoding | null;
  /** Reading is the only mode. */
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
  /** How the file is opened; `w` by default. */
  readonly flag?: WriteFlag | 'ax';
}

/** How a directory is made. */
export interface DirectoryOptions extends FileCall {
  /** Whether to make missing parents too, and accept a directory that exists; false by default. */
  readonly recursive?: boolean;
  /** The permissions of the directory; `0o777` less the umask by default. */
  readonly mode?: number;
}

/** Bounds of what is taken out of a sandbox, whose content is whatever its commands made it. */
export interface TransferOptions extends FileCall {
  /** The most bytes; beyond that the transfer is refused. 4 GiB by default. */
  readonly maxBytes?: number;
  /** The most files and directories; beyond that the transfer is refused. 100,000 by default. */
  readonly maxEntries?: number;
}

/** How a directory is read. */
export interface ReadingOptions extends FileCall {
  /** Whether to read directories below it too; false by default. */
  readonly recursive?: boolean;
  /**
   * How large the listing may be: a command can make a directory as large as it likes. 256 MiB unless you say, and never more
   * than 2,000,000 entries.
   */
  readonly maxBytes?: number;
}

/** What was transferred. */
export interface TransferReport {
  /** How many files. */
  readonly files: number;
  /** How many directories. */
  readonly directories: number;
  /** The size of the files, in bytes. */
  readonly bytes: number;
  /** What was left out, and why: links, devices and names that lead elsewhere. */
  readonly skipped: readonly {
    /** The path, relative to what was transferred. */
    readonly path: string;
    /** Why it was left out. */
    readonly reason: string;
  }[];
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
  /** Reads a whole file: as a `Buffer`, or as text if an encoding is given. */
  readFile(
    path: string,
    options:
      | BufferEncoding
      | (ContentOptions & {
          /** The encoding of the text. */
          encoding: BufferEncoding;
        }),
  ): Promise<string>;
  readFile(path: string, options?: (ContentOptions & { encoding?: null }) | null): Promise<Buffer>;
  /** Writes a whole file, and creates it if it is missing. */
  writeFile(
    path: string,
    data: string | Uint8Array | Readable,
    options?: BufferEncoding | WritingOptions | null,
  ): Promise<void>;
  /** Writes at the end of a file, and creates it if it is missing. */
  appendFile(path: string, data: string | Uint8Array, options?: BufferEncoding | WritingOptions | null): Promise<void>;
  /** The content as a stream, however large. */
  createReadStream(path: string, options?: BufferEncoding | StreamOptions): Readable;
  /** The names in a directory, or its entries with `withFileTypes`. */
  readdir(
    path: string,
    options?: {
      /** Whether to return entries with their types instead of names. */
      withFileTypes?: false;
    } & ReadingOptions,
  ): Promise<string[]>;
  readdir(path: string, options: { withFileTypes: true } & ReadingOptions): Promise<DirectoryEntry[]>;
  /** Makes a directory. */
  mkdir(path: string, options?: number | DirectoryOptions | null): Promise<void>;
  /** Removes a file, or with `recursive` a directory and everything in it. */
  rm(
    path: string,
    options?: {
      /** Whether to remove directories with everything in them; false by default. */
      recursive?: boolean;
      /** Whether to accept a path that does not exist; false by default. */
      force?: boolean;
    } & FileCall,
  ): Promise<void>;
  /** Removes an empty directory. */
  rmdir(path: string, options?: FileCall): Promise<void>;
  /** Removes a file or a link. */
  unlink(path: string, options?: FileCall): Promise<void>;
  /** Renames a file or directory. What is at the new path is replaced. */
  rename(from: string, to: string, options?: FileCall): Promise<void>;
  /** Copies a file. What is at the new path is replaced. */
  copyFile(from: string, to: string, options?: FileCall): Promise<void>;
  /** The metadata of a file; of a link, those of its target. */
  stat(path: string, options?: FileCall): Promise<FileStats>;
  /** The metadata of a file; of a link, those of the link itself. */
  lstat(path: string, options?: FileCall): Promise<FileStats>;
  /** Rejects if the user inside may not access the file: `constants` of `node:fs` as the mode, existence by default. */
  access(path: string, mode?: number, options?: FileCall): Promise<void>;
  /** Changes the permissions of a file. */
  chmod(path: string, mode: number, options?: FileCall): Promise<void>;
  /** The target of a symbolic link. */
  readlink(path: string, options?: FileCall): Promise<string>;
  /** Makes a symbolic link at `path`. */
  symlink(target: string, path: string, options?: FileCall): Promise<void>;
  /** Cuts or extends a file to a length in bytes, 0 by default. */
  truncate(path: string, length?: number, options?: FileCall): Promise<void>;
  /** The absolute path without links. */
  realpath(path: string, options?: FileCall): Promise<string>;
  /** Changes below a path, until the signal fires or the loop is left. */
  watch(
    path: string,
    options?: {
      /** Whether to watch directories below it too; false by default. */
      recursive?: boolean;
    } & FileCall,
  ): AsyncIterable<FileChange>;
  /** Brings a file or a tree of the host in. */
  upload(hostPath: string, path: string, options?: TransferOptions): Promise<TransferReport>;
  /** Brings a file or a tree out, checked as hostile: nothing is written outside `hostPath`, and no link, device or privilege comes along. */
  download(path: string, hostPath: string, options?: TransferOptions): Promise<TransferReport>;
}

/** A way from the host’s loopback to a server inside. */
export interface ForwardedPort extends AsyncDisposable {
  /** On 127.0.0.1. */
  readonly port: number;
  /** Stops listening and ends its connections. */
  close(): Promise<void>;
}

/** Reaching servers inside, without a network of the sandbox’s own. */
export interface Ports {
  /**
   * Listens on a port of the host’s loopback, any free one by default, and leads each connection inside.
   * `onUnanswered` is called for each connection that nothing inside took.
   */
  forward(
    containerPort: number,
    options?: {
      /** The port on 127.0.0.1; any free one by default. */
      hostPort?: number;
      /** Called for each connection that no server inside accepted. */
      onUnanswered?: () => void;
      /** Cancels the call; ends nothing that was forwarded before. */
      signal?: AbortSignal;
    },
  ): Promise<ForwardedPort>;
}
