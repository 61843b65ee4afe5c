// One call of one command: its streams, how they look, what was asked for in common options.

import { resolve } from 'node:path';
import type { Acode, AcodeOptions, Observer } from '@acode/sandbox';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { CommonOptions } from './arguments/common.ts';
import type { Interruption } from './interruption.ts';
import type { Io } from './io.ts';
import { jsonPieces } from './json.ts';
import { logLevel, noticesOnly, openLogger } from './log.ts';
import { lookOf } from './terminal/look.ts';
import type { Look } from './terminal/look.ts';
import type { Output } from './terminal/output.ts';
import { Progress } from './terminal/progress.ts';
import { placeOf } from './workspace.ts';
import type { Place } from './workspace.ts';

/** What a call is made of. */
export interface CallParts {
  readonly io: Io;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly interruption: Interruption;
  readonly options: CommonOptions;
  /** The words after `--`; null where there was none. */
  readonly words: readonly string[] | null;
  /** What the user called: `acode sandbox exec`. */
  readonly called: string;
}

/** One call of one command. */
export class Call {
  readonly io: Io;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly interruption: Interruption;
  readonly options: CommonOptions;
  readonly words: readonly string[] | null;
  readonly called: string;
  readonly progress: Progress;
  #place: Promise<Place> | null = null;

  constructor(parts: CallParts) {
    this.io = parts.io;
    this.stdout = parts.stdout;
    this.stderr = parts.stderr;
    this.interruption = parts.interruption;
    this.options = parts.options;
    this.words = parts.words;
    this.called = parts.called;
    // Log lines and a line that redraws itself do not mix.
    this.progress = new Progress(this.stderr, this.errorLook, !this.options.verbose);
  }

  /** How standard output looks. */
  get look(): Look {
    return lookOf(this.stdout, this.io, this.options.color);
  }

  /** How standard error looks. */
  get errorLook(): Look {
    return lookOf(this.stderr, this.io, this.options.color);
  }

  /** The workspace, and where in it the user stands. */
  place(): Promise<Place> {
    this.#place ??= placeOf(this.io.cwd(), this.options.workspace);
    return this.#place;
  }

  /** Prints a result: the one JSON object, or text for a person. */
  async print(schema: string, value: object, text: (look: Look) => string): Promise<void> {
    if (this.options.json) await this.printJson(schema, value);
    else await this.stdout.write(text(this.look), this.interruption.signal);
  }

  /** Prints the one JSON object. */
  async printJson(schema: string, value: object): Promise<void> {
    for (const piece of jsonPieces(schema, value))
      if (!(await this.stdout.write(piece, this.interruption.signal))) return;
  }

  /** Says something on standard error, on a line of its own. */
  async say(text: string): Promise<void> {
    const shared = this.stdout.isTerminal && this.stderr.isTerminal && this.stdout.midLine;
    await this.stderr.write(this.stderr.midLine || shared ? `\n${text}` : text);
  }

  /** Opens the host to run something, and closes it when `use` is done: every sandbox is then gone. */
  async withHost<Value>(use: (acode: Acode) => Promise<Value>): Promise<Value> {
    const { Acode } = await import('@acode/sandbox');
    return this.#closing(await Acode.open(await this.#hostOptions()), use);
  }

  /** Opens the host to look at it; works for root too. */
  async withObserver<Value>(use: (observer: Observer) => Promise<Value>): Promise<Value> {
    const { Acode } = await import('@acode/sandbox');
    return this.#closing(await Acode.observe(await this.#hostOptions()), use);
  }

  async #closing<Host extends { close(): Promise<void> }, Value>(
    host: Host,
    use: (host: Host) => Promise<Value>,
  ): Promise<Value> {
    const { signal } = this.interruption;
    // Closing is what cancels a wait for an engine that does not answer.
    const stop = (): void => void host.close();
    signal.addEventListener('abort', stop, { once: true });
    try {
      if (signal.aborted) stop();
      return await use(host);
    } finally {
      signal.removeEventListener('abort', stop);
      await this.progress.during('Removing the sandbox…', host.close());
    }
  }

  #socketPath(socket: string): string {
    return socket.includes('://') ? socket : resolve(this.io.cwd(), socket);
  }

  async #hostOptions(): Promise<AcodeOptions> {
    const { verbose, config, socket } = this.options;
    const level = logLevel(verbose, this.io.env['ACODE_LOG_LEVEL']);
    const look = this.errorLook;
    return {
      workspace: (await this.place()).root,
      logger: level === null ? noticesOnly(this.stderr, look) : await openLogger(level, this.stderr, look),
      ...(config === undefined ? {} : { configFile: config }),
      ...(socket === undefined ? {} : { engine: { socket: this.#socketPath(socket) } }),
    };
  }
}

/** Carries a command out and notes the exit status it gives. */
export type Perform = (command: CommandUnknownOpts, work: (call: Call) => Promise<number>) => Promise<void>;
