// The commands and terminals of a sandbox, with the shape of E2B’s.

import type {
  CommandHandle as Running,
  CommandRequest,
  Commands as Inner,
  TerminalHandle,
} from '../contract/sandbox.ts';
import { CommandHandle } from './command-handle.ts';
import type { CommandResult, Listeners } from './command-handle.ts';
import { codeOf } from '../contract/system-error.ts';
import { NotFoundError, translating } from './errors.ts';
import { AS_USER, REQUEST, checkKnown, checkUser, limitOf } from './options.ts';
import type { RequestOptions, UserOption } from './options.ts';

/** Everything about one command. */
export interface CommandStartOpts extends RequestOptions, UserOption, Omit<Listeners, 'onPty'> {
  /** Whether to return once the command has started; false by default. */
  background?: boolean;
  /** In the workspace: relative to it, or below /home/user. */
  cwd?: string;
  /** Variables of the command. */
  envs?: Record<string, string>;
  /** Keeps standard input open for `sendStdin`. */
  stdin?: boolean;
  /** A minute by default; 0 for no limit but the sandbox’s own. */
  timeoutMs?: number;
}

/** A command that runs. */
export interface ProcessInfo {
  /** The first process of the command, as the sandbox counts them. */
  pid: number;
  /** The program. */
  cmd: string;
  /** Its arguments. */
  args: string[];
  /** Always empty: arguments may be secret, so acode does not report them. */
  envs: Record<string, string>;
  /** Its working directory. */
  cwd?: string;
}

const LISTENING = ['onStdout', 'onStderr'];
const STARTING = [...AS_USER, ...LISTENING, 'background', 'cwd', 'envs', 'stdin', 'timeoutMs'];
const OPENING = [...AS_USER, 'cols', 'rows', 'onData', 'timeoutMs', 'envs', 'cwd'];

/** The commands of a sandbox. */
export class Commands {
  readonly #inner: () => Inner;

  constructor(inner: () => Inner) {
    this.#inner = inner;
  }

  /**
   * Runs a line of shell. Throws `CommandExitError` where its status is not 0; with `background`, gives a handle at once.
   *
   * @example
   * const { stdout } = await sandbox.commands.run('ls -l');
   * const server = await sandbox.commands.run('node server.js', { background: true });
   */
  run(
    command: string,
    options?: CommandStartOpts & {
      /** Whether to return once the command has started. */
      background?: false;
    },
  ): Promise<CommandResult>;
  run(command: string, options: CommandStartOpts & { background: true }): Promise<CommandHandle>;
  run(command: string, options?: CommandStartOpts): Promise<CommandHandle | CommandResult>;
  async run(command: string, options: CommandStartOpts = {}): Promise<CommandHandle | CommandResult> {
    checkKnown(options, STARTING);
    checkUser(options);
    const started = await translating(async () => this.#inner().run(command, requestOf(options)));
    const handle = new CommandHandle(started, listenersOf(options));
    return options.background === true ? handle : handle.wait();
  }

  /** The commands under way, whichever process of this user started them. */
  async list(options?: RequestOptions): Promise<ProcessInfo[]> {
    checkKnown(options, REQUEST);
    const commands = await translating(() => this.#inner().list());
    return commands.map(({ pid, command, cwd }) => {
      const [cmd = '', ...args] = typeof command === 'string' ? ['/bin/sh', '-c', command] : command;
      return { pid, cmd, args, envs: {}, cwd };
    });
  }

  /** A command by its pid, from its first output on. */
  async connect(pid: number, options: RequestOptions & Omit<Listeners, 'onPty'> = {}): Promise<CommandHandle> {
    checkKnown(options, [...REQUEST, ...LISTENING]);
    const inner = await this.#find(pid);
    return new CommandHandle(inner, listenersOf(options));
  }

  /** Ends a command; false where there is none. */
  async kill(pid: number, options?: RequestOptions): Promise<boolean> {
    checkKnown(options, REQUEST);
    return this.#within(pid, one => one.kill('SIGKILL')).then(
      () => true,
      (error: unknown) => {
        if (error instanceof NotFoundError) return false;
        throw error;
      },
    );
  }

  /** Writes to the standard input of a command. */
  async sendStdin(pid: number, data: string | Uint8Array, options?: RequestOptions): Promise<void> {
    checkKnown(options, REQUEST);
    await this.#within(pid, one => one.write(data));
  }

  /** Ends the standard input of a command. */
  async closeStdin(pid: number, options?: RequestOptions): Promise<void> {
    checkKnown(options, REQUEST);
    await this.#within(pid, one => one.closeStdin());
  }

  // One of another process is let go of again.
  async #within(pid: number, use: (command: Running) => Promise<void>): Promise<void> {
    const command = await this.#find(pid);
    try {
      await translating(() => use(command));
    } finally {
      await command.disconnect();
    }
  }

  async #find(pid: number): Promise<Running> {
    return translating(async () => {
      try {
        return await this.#inner().connect(pid);
      } catch (error) {
        throw codeOf(error) === 'ACODE-SBX-017' ? new NotFoundError(`No command runs as ${pid}.`) : error;
      }
    });
  }
}

function requestOf({ cwd, envs, stdin, timeoutMs, signal }: CommandStartOpts): CommandRequest & { background: true } {
  return {
    background: true,
    ...limitOf(timeoutMs),
    ...(cwd === undefined ? {} : { cwd }),
    ...(envs ? { env: envs } : {}),
    ...(stdin === true ? {} : { stdin: '' }),
    ...(signal ? { signal } : {}),
  };
}

function listenersOf({ onStdout, onStderr }: Listeners): Listeners {
  return { ...(onStdout ? { onStdout } : {}), ...(onStderr ? { onStderr } : {}) };
}

/** A terminal to be made. */
export interface PtyCreateOpts extends RequestOptions, UserOption {
  /** Characters in a line. */
  cols: number;
  /** Lines. */
  rows: number;
  /** Called with everything the terminal prints. */
  onData: (data: Uint8Array) => void | Promise<void>;
  /** A minute by default; 0 for no limit but the sandbox’s own. */
  timeoutMs?: number;
  /** Variables of the shell. */
  envs?: Record<string, string>;
  /** The working directory; the workspace by default. */
  cwd?: string;
}

// The shell that people expect, where the image has it.
const SHELL = 'if command -v bash >/dev/null; then exec bash -i -l; fi; exec /bin/sh -i';

/** The terminals of a sandbox. */
export class Pty {
  readonly #inner: () => Inner;
  readonly #open = new Map<number, TerminalHandle>();

  constructor(inner: () => Inner) {
    this.#inner = inner;
  }

  /** Opens a shell with a terminal. */
  async create(options: PtyCreateOpts): Promise<CommandHandle> {
    checkKnown(options, OPENING);
    checkUser(options);
    const { cols, rows, onData, timeoutMs, envs, cwd } = options;
    const request = {
      size: { columns: cols, rows },
      ...limitOf(timeoutMs),
      ...(envs ? { env: envs } : {}),
      ...(cwd === undefined ? {} : { cwd }),
      ...(options.signal ? { signal: options.signal } : {}),
    };
    const terminal = await translating(async () => this.#inner().terminal(SHELL, request));
    this.#open.set(terminal.pid, terminal);
    const forget = (): void => void this.#open.delete(terminal.pid);
    terminal.result.then(forget, forget);
    return new CommandHandle(terminal, { onPty: onData });
  }

  /** Types into a terminal. */
  async sendInput(pid: number, data: Uint8Array, options?: RequestOptions): Promise<void> {
    checkKnown(options, REQUEST);
    await translating(() => this.#find(pid).write(data));
  }

  /** Gives a terminal another size. */
  async resize(
    pid: number,
    size: {
      /** Characters in a line. */
      cols: number;
      /** Lines. */
      rows: number;
    },
    options?: RequestOptions,
  ): Promise<void> {
    checkKnown(options, REQUEST);
    checkKnown(size, ['cols', 'rows'], 'size.');
    const { cols, rows } = size;
    await translating(() => this.#find(pid).resize({ columns: cols, rows }));
  }

  /** Ends a terminal; false where there is none. */
  async kill(pid: number, options?: RequestOptions): Promise<boolean> {
    checkKnown(options, REQUEST);
    const terminal = this.#open.get(pid);
    if (!terminal) return false;
    await translating(() => terminal.kill('SIGKILL'));
    return true;
  }

  #find(pid: number): TerminalHandle {
    const terminal = this.#open.get(pid);
    if (!terminal) throw new NotFoundError(`No terminal of this process runs as ${pid}.`);
    return terminal;
  }
}
