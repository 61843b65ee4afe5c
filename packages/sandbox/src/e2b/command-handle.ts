// A command under way, with the shape of E2B’s handle.

import type { RunResult } from '../contract/result.ts';
import type { CommandHandle as Inner } from '../contract/sandbox.ts';
import { limitError } from '../contract/errors.ts';
import { SandboxError, TimeoutError, translated } from './errors.ts';
import { REQUEST, checkKnown } from './options.ts';
import type { RequestOptions } from './options.ts';

/** How a command ended. */
export interface CommandResult {
  /** The exit status. */
  exitCode: number;
  /** Why it failed, where it did. */
  error?: string;
  /** What it printed to standard output. */
  stdout: string;
  /** What it printed to standard error. */
  stderr: string;
}

/** A command that ended with another status than 0; it is also its result. */
export class CommandExitError extends SandboxError implements CommandResult {
  /** The exit status, never 0. */
  readonly exitCode: number;
  readonly error: string;
  /** What it printed to standard output. */
  readonly stdout: string;
  /** What it printed to standard error. */
  readonly stderr: string;

  constructor({ exitCode, error = `exit status ${exitCode}`, stdout, stderr }: CommandResult) {
    super(error);
    this.exitCode = exitCode;
    this.error = error;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

/** Callbacks for output as it arrives. */
export interface Listeners {
  /** Called with each chunk of standard output. */
  onStdout?: (data: string) => void | Promise<void>;
  /** Called with each chunk of standard error. */
  onStderr?: (data: string) => void | Promise<void>;
  /** The output of a terminal, as it is. */
  onPty?: (data: Uint8Array) => void | Promise<void>;
}

type Stream = 'stdout' | 'stderr';

/** A command under way. */
export class CommandHandle {
  /** The first process of the command, as the sandbox counts them. */
  readonly pid: number;
  readonly #inner: Inner;
  readonly #text = { stdout: '', stderr: '' };
  readonly #over: Promise<CommandResult>;
  #result: CommandResult | undefined;
  #isConnected = true;

  /** Made by `commands.run`, `commands.connect` and `pty.create`. */
  constructor(inner: Inner, listeners: Listeners = {}) {
    this.#inner = inner;
    this.pid = inner.pid;
    this.#over = this.#follow(listeners);
    // Who never waits for it is not to be ended by it either.
    this.#over.catch(() => undefined);
  }

  /** What it printed so far. */
  get stdout(): string {
    return this.#text.stdout;
  }

  /** What it printed so far. */
  get stderr(): string {
    return this.#text.stderr;
  }

  /** Undefined while it runs. */
  get exitCode(): number | undefined {
    return this.#result?.exitCode;
  }

  /** Why it failed; undefined while it runs, and where it did not. */
  get error(): string | undefined {
    return this.#result?.error;
  }

  /** Waits for its end; throws `CommandExitError` where its status is not 0, and `TimeoutError` if it timed out. */
  async wait(): Promise<CommandResult> {
    const result = await this.#over;
    if (result.exitCode !== 0) throw new CommandExitError(result);
    return result;
  }

  /** Ends it, with everything it started; false where it had ended already. */
  async kill(): Promise<boolean> {
    if (this.#result) return false;
    try {
      await this.#inner.kill('SIGKILL');
      return true;
    } catch (error) {
      throw translated(error);
    }
  }

  /** Stops listening; the command keeps running. */
  async disconnect(): Promise<void> {
    this.#isConnected = false;
    await this.#inner.disconnect();
  }

  /** Writes to its standard input; it must have been started with `stdin: true`. */
  async sendStdin(data: string | Uint8Array, options?: RequestOptions): Promise<void> {
    checkKnown(options, REQUEST);
    try {
      await this.#inner.write(data);
    } catch (error) {
      throw translated(error);
    }
  }

  /** Ends its standard input. */
  async closeStdin(options?: RequestOptions): Promise<void> {
    checkKnown(options, REQUEST);
    try {
      await this.#inner.closeStdin();
    } catch (error) {
      throw translated(error);
    }
  }

  async #follow({ onStdout, onStderr, onPty }: Listeners): Promise<CommandResult> {
    try {
      await Promise.all([this.#read('stdout', onStdout, onPty), this.#read('stderr', onStderr)]);
      this.#result = resultOf(await this.#inner.result, this.#text);
      return this.#result;
    } catch (error) {
      throw translated(error);
    }
  }

  async #read(
    name: Stream,
    tell?: (data: string) => unknown,
    tellBytes?: (data: Uint8Array) => unknown,
  ): Promise<void> {
    const decoder = new TextDecoder();
    const take = async (text: string): Promise<void> => {
      this.#text[name] += text;
      if (text !== '' && this.#isConnected) await tell?.(text);
    };
    for await (const chunk of this.#inner[name]) {
      if (this.#isConnected) await tellBytes?.(chunk);
      await take(decoder.decode(chunk, { stream: true }));
    }
    await take(decoder.decode());
  }
}

function resultOf(inner: RunResult, { stdout, stderr }: Readonly<Record<Stream, string>>): CommandResult {
  const { exitCode, timedOut, oomKilled } = inner;
  if (timedOut)
    throw new TimeoutError(
      'The command was ended at its time limit: raise it with timeoutMs, or with 0 take it away.',
      { cause: limitError(inner) },
    );
  if (exitCode === null) throw new SandboxError('The command was ended before it had a status.');
  if (exitCode === 0) return { exitCode, stdout, stderr };
  const error = oomKilled ? `exit status ${exitCode}: out of memory` : `exit status ${exitCode}`;
  return { exitCode, error, stdout, stderr };
}
