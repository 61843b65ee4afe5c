// Call of one command: its streams, their style, its common options, and the one object that --json prints.

import { resolve } from 'node:path';
import type { Acode, AcodeOptions, Logger, Observer, ScanJob } from '@acode/sandbox';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { CommonOptions } from './arguments/common.ts';
import { UsageError } from './failure/usage.ts';
import type { Interruption } from './interruption.ts';
import type { Io } from './io.ts';
import type { Lender, RunCli } from './lender.ts';
import { logLevel, noticesOnly } from './log.ts';
import type { LogLevel } from './log.ts';
import type { OwnProgram } from './own-program.ts';
import type { Note } from './serve/conversation.ts';
import { enginePath, inheritedTraits } from './serve/identity.ts';
import { whereOf } from './serve/location-options.ts';
import { lookOf } from './terminal/look.ts';
import type { Look } from './terminal/look.ts';
import type { Output } from './terminal/output.ts';
import { Progress } from './terminal/progress.ts';
import { fitted } from './terminal/wrap.ts';
import { isMissing, isNoDirectory, placeOf } from './workspace.ts';
import type { Place } from './workspace.ts';

/** What a call is made of. */
export interface CallParts {
  readonly io: Io;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly interruption: Interruption;
  readonly options: CommonOptions;
  /** The arguments before any `--`, options too. */
  readonly before: readonly string[];
  /** The arguments after `--`; null where there was none. */
  readonly argv: readonly string[] | null;
  /** What the user called: `acode sandbox exec`. */
  readonly called: string;
  /** Who keeps a host open; without one, the call opens its own. */
  readonly lender?: Lender | undefined;
  /** Runs another command line in this process: how a server does the calls of its clients. */
  readonly runCli: RunCli;
  /** What is to be said about a server that did not do this call. */
  readonly note?: Note | null | undefined;
  /** Says what earlier background scans came to, before this call opens a host; absent where nobody reads it. */
  readonly sayPending?: ((call: Call) => Promise<void>) | undefined;
  /** The program of this process; absent where the process is not this call’s own. */
  readonly program?: OwnProgram | undefined;
  /** Whether a hook of an agent sent it. */
  readonly isHook?: boolean | undefined;
}

/** One call of one command. */
export class Call {
  readonly io: Io;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly interruption: Interruption;
  readonly options: CommonOptions;
  readonly before: readonly string[];
  readonly argv: readonly string[] | null;
  readonly called: string;
  readonly progress: Progress;
  readonly program: OwnProgram | undefined;
  readonly isHook: boolean;
  readonly runCli: RunCli;
  /** Directories besides the workspace that the command of this call could write. */
  readonly written: string[] = [];
  /** What is left to do when all output is with its reader. Never rejects. */
  afterwards: () => Promise<void> = () => Promise.resolve();
  readonly #lender: Lender | undefined;
  readonly #note: Note | null;
  #sayPending: ((call: Call) => Promise<void>) | undefined;
  #place: Promise<Place> | null = null;

  constructor(parts: CallParts) {
    this.io = parts.io;
    this.stdout = parts.stdout;
    this.stderr = parts.stderr;
    this.interruption = parts.interruption;
    this.options = parts.options;
    this.before = parts.before;
    this.argv = parts.argv;
    this.called = parts.called;
    this.program = parts.program;
    this.isHook = parts.isHook === true;
    this.runCli = parts.runCli;
    this.#lender = parts.lender;
    this.#note = parts.note ?? null;
    this.#sayPending = parts.sayPending;
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

  /** Whether a server does this call. */
  get hasLender(): boolean {
    return this.#lender !== undefined;
  }

  /** Has the server of this call keep the host open until something of it has ended. */
  hold(acode: Acode, until: Promise<unknown>): void {
    this.#lender?.hold(acode, until);
  }

  /** The workspace, and where in it the user stands. */
  place(): Promise<Place> {
    this.#place ??= this.#located();
    return this.#place;
  }

  /** Prints a result: the one JSON object, or text for a person. */
  async print(schema: string, value: object, text: (look: Look) => string): Promise<void> {
    if (this.options.json) await this.printJson(schema, value);
    else await this.stdout.write(text(this.look), this.interruption.signal);
  }

  /** Prints the one JSON object; `signal` cancels it. */
  async printJson(schema: string, value: object, signal = this.interruption.signal): Promise<void> {
    for (const piece of jsonPieces(schema, value)) if (!(await this.stdout.write(piece, signal))) return;
  }

  /** Says something on standard error, on a line of its own. Lines are wrapped at the width of a terminal. */
  async say(text: string): Promise<void> {
    const together = (this.stdout.isTerminal && this.stderr.isTerminal) || this.io.outputsAreOne;
    const shared = together && this.stdout.midLine;
    const shown = fitted(text, this.errorLook);
    await this.stderr.write(this.stderr.midLine || shared ? `\n${shown}` : shown);
  }

  /**
   * Opens the host to run something, and closes it when `use` is done: every sandbox is then gone. What `use` starts
   * must listen to the interruption itself: closing under a run in flight would not wait for its sandbox.
   */
  async withHost<Value>(use: (acode: Acode) => Promise<Value>): Promise<Value> {
    const options = await this.hostOptions();
    if (this.#note) options.logger?.[this.#note.level]({}, this.#note.message);
    const loan = await this.#lender?.borrow(options);
    if (loan) return loan.during(use);
    const { Acode } = await import('@acode/sandbox');
    const [acode, leave] = await Promise.all([Acode.open(options), this.#leaving()]);
    try {
      const value = await use(acode);
      this.afterwards = leave(acode);
      return value;
    } finally {
      await this.progress.during('Cleaning up…', acode.close());
    }
  }

  // Loaded before any command runs: where acode is installed in the workspace, the command may put something else in its place.
  async #leaving(): Promise<(acode: Acode) => () => Promise<void>> {
    const { program } = this;
    if (program === undefined || whereOf(this.before) === null) return () => this.afterwards;
    const { afterCommand } = await import('./serve/start.ts');
    return acode => {
      // Asked while the host is open, and waited for when it is closed.
      const asked = acode.serveSetting();
      asked.catch(() => undefined);
      return () => asked.then(setting => afterCommand(this, program, setting)).catch(() => undefined);
    };
  }

  /** Opens the host for reading only; works for root too. A signal cancels it. */
  async withObserver<Value>(use: (observer: Observer) => Promise<Value>): Promise<Value> {
    const { Acode } = await import('@acode/sandbox');
    const observer = await Acode.observe(await this.hostOptions());
    const { signal } = this.interruption;
    const stop = (): void => void observer.close();
    signal.addEventListener('abort', stop, { once: true });
    try {
      return await use(observer);
    } finally {
      signal.removeEventListener('abort', stop);
      await observer.close();
    }
  }

  /** Whether a server is there for calls in the same workspace, with the same configuration and engine. */
  async isServed(): Promise<boolean> {
    const uid = process.getuid?.();
    if (uid === undefined) return false;
    const { isServed } = await import('./serve/presence.ts');
    const { root } = await this.place();
    const { config, socket } = this.options;
    const where = { ...(config === undefined ? {} : { config }), ...(socket === undefined ? {} : { socket }) };
    return isServed({ ...where, root, cwd: this.#cwd(), env: this.io.env, uid, inherited: inheritedTraits() });
  }

  async #located(): Promise<Place> {
    const { workspace } = this.options;
    const place = placeOf(this.#cwd(), workspace);
    if (workspace === undefined) return place;
    // Reported here: otherwise a path below it would be blamed.
    if (await isMissing(place.root)) {
      const { AcodeError } = await import('@acode/sandbox');
      const remedy = 'Check the path after --workspace, or make the directory first.';
      throw new AcodeError('ACODE-SBX-003', {
        path: place.root,
        violation: 'Missing',
        reason: 'it does not exist',
        remedy,
      });
    }
    if (!(await isNoDirectory(place.root))) return place;
    const { AcodeError } = await import('@acode/sandbox');
    const reason = 'it is not a directory';
    throw new AcodeError('ACODE-SBX-003', { path: place.root, violation: 'NotADirectory', reason });
  }

  async #logger(level: LogLevel | null): Promise<Logger> {
    if (level === null) return noticesOnly(this.stderr, this.errorLook);
    const { structuredLog } = await import('./structured-log.ts');
    return structuredLog(level, this.stderr, this.errorLook);
  }

  // Loaded before any command runs: where acode is installed in the workspace, the command may put something else in its place.
  async #continuing(): Promise<(job: ScanJob) => boolean> {
    const lender = this.#lender;
    const pid = this.stderr.isTerminal ? (this.io.pid ?? null) : null;
    if (lender) return job => lender.scan(job, pid);
    const { inOwnProcess } = await import('./scans/hand-over.ts');
    return inOwnProcess(this.program, pid);
  }

  #cwd(): string {
    try {
      return this.io.cwd();
    } catch {
      throw new UsageError(
        'The current directory does not exist any more.',
        'Change into one that does, and try again.',
      );
    }
  }

  /** How a host of a process that serves many commands is opened. */
  async serverOptions(): Promise<AcodeOptions> {
    return { ...(await this.hostOptions()), sweepEveryMs: SWEEP_MS };
  }

  /** How this call opens a host: its workspace, configuration, engine and log. */
  async hostOptions(): Promise<AcodeOptions> {
    // Once, and not by calls that a mistake in their arguments ends or that touch no workspace.
    const sayPending = this.#sayPending;
    this.#sayPending = undefined;
    await sayPending?.(this);
    const { verbose, config, socket } = this.options;
    const level = logLevel(verbose, this.io.env['ACODE_LOG_LEVEL']);
    return {
      workspace: (await this.place()).root,
      // People and agents build and test whole projects; a program that uses the library decides for itself.
      profile: 'dev',
      logger: await this.#logger(level),
      continueScan: await this.#continuing(),
      ...(config === undefined ? {} : { configFile: resolve(this.#cwd(), config) }),
      ...(socket === undefined ? {} : { engine: { socket: enginePath(this.#cwd(), socket) } }),
    };
  }
}

/** Carries a command out and notes the exit status it gives. */
export type Perform = (command: CommandUnknownOpts, work: (call: Call) => Promise<number>) => Promise<void>;

// What a dead session left on the engine is removed within this time, even if no further command comes.
const SWEEP_MS = 10 * 60 * 1000;

// Longer strings are written in parts: escaped as a whole, the output of a command could exceed the longest string there is.
const PART = 1024 ** 2;

/** The text of `{ "schema": …, …value }`, in pieces. Bytes become base64. */
export function* jsonPieces(schema: string, value: object): Generator<string, void, undefined> {
  yield* pieces({ schema, ...value });
  yield '\n';
}

function* pieces(value: unknown): Generator<string, void, undefined> {
  if (typeof value === 'string') yield* stringPieces(value);
  else if (value instanceof Uint8Array) yield* stringPieces(Buffer.from(value).toString('base64'));
  else if (Array.isArray(value)) yield* listPieces(value);
  else if (typeof value === 'object' && value !== null) yield* objectPieces(value);
  else yield JSON.stringify(value) ?? 'null';
}

function* objectPieces(value: object): Generator<string, void, undefined> {
  let before = '{';
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    yield `${before}${JSON.stringify(key)}:`;
    yield* pieces(item);
    before = ',';
  }
  yield before === '{' ? '{}' : '}';
}

function* listPieces(items: readonly unknown[]): Generator<string, void, undefined> {
  yield '[';
  for (const [index, item] of items.entries()) {
    if (index > 0) yield ',';
    yield* pieces(item);
  }
  yield ']';
}

// A pair of surrogates that falls on both sides of a cut is escaped as two halves, which JSON reads as one character.
function* stringPieces(text: string): Generator<string, void, undefined> {
  if (text.length <= PART) {
    yield JSON.stringify(text);
    return;
  }
  yield '"';
  for (let at = 0; at < text.length; at += PART) yield JSON.stringify(text.slice(at, at + PART)).slice(1, -1);
  yield '"';
}
