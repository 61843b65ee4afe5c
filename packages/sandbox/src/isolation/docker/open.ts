// A container that stays: commands are started in it, each by a shell that waited there, until it is removed or left.

import { randomBytes } from 'node:crypto';
import { setMaxListeners } from 'node:events';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { PublishedPort } from '../../contract/result.ts';
import type { TerminalSize } from '../../contract/sandbox.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { CommandIo, OpenExecution, OpenSandbox } from '../backend.ts';
import { handoverLine } from '../handover/script.ts';
import type { Handover } from '../handover/script.ts';
import { answerLine, quietLine, signalLine, terminalCommand } from '../handover/open-script.ts';
import type { Inside } from '../inside.ts';
import { inTime } from '../waiting.ts';
import { isNotFound } from './engine/error.ts';
import type { ExecState } from './engine/exec.ts';
import type { Engine } from './engine/index.ts';
import { ENDED_MS, ExecExecution } from './exec-execution.ts';
import type { ExecSurroundings } from './exec-execution.ts';
import { ExecInside } from './exec-inside.ts';
import { engineFailure } from './failure.ts';
import { Gone } from './gone.ts';
import { ReadyExec } from './ready-exec.ts';
import { ReadyExecs } from './ready-execs.ts';
import { DockerTerminal } from './terminal-execution.ts';

/** What a container that stays is made of. */
export interface OpenParts {
  readonly id: string;
  readonly spec: SandboxSpec;
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ports: readonly PublishedPort[];
  /** Settles when it has ended. */
  readonly exit: Promise<unknown>;
  readonly sawOom: () => boolean;
  /** How many shells wait in it. */
  readonly ready: number;
  /** `none`, or the id of its network. */
  readonly network: string;
  /** Variables of the container that commands must not see. */
  readonly unset: readonly string[];
  /** Throws where what it has mounted is not what it was verified with. */
  readonly same: () => void;
  /** Whether its control group is one that this host’s kernel keeps. */
  readonly hostKernel: boolean;
  readonly remove: () => Promise<void>;
  /** Ends what was only for its use, when it is left or removed. */
  readonly over?: () => void;
}

const CALL_MS = 10_000;
const SIGNAL_MS = 5000;
const EXIT_MS = 10_000;
const MOST_HEARD = 4096;
const COULD_NOT = 'a command in it could not be ended';
const SLOWEST_LOOK_MS = 50;
// What a shell says of a command that SIGKILL ended, and how long the end of the whole sandbox may take to be heard of where
// nobody inside answers any more.
const KILLED = 137;
const GONE_MS = 5000;
// How often it is looked at whether a mount has been taken away: whoever saves a file may do that at any moment.
const LOOK_MS = 1000;
const SIGNAL = /^SIG[A-Z0-9]{2,10}$/;

/** A container that stays. */
export class OpenContainer implements OpenSandbox {
  readonly id: string;
  readonly gone: Promise<string>;
  readonly inside: Inside;
  readonly #parts: OpenParts;
  readonly #ready: ReadyExecs;
  readonly #around: ExecSurroundings;
  readonly #life = new AbortController();
  readonly #end: Gone;
  /** The signals on their way inside. */
  readonly #signals = new Set<Promise<void>>();
  #prepared: Promise<string | null> | null = null;
  #settleOver: (value: unknown) => void = () => undefined;
  #stopLooking: () => void = () => undefined;

  constructor(parts: OpenParts) {
    this.id = parts.id;
    this.#parts = parts;
    // As many listen as there are shells and commands; Node would take more than ten for a mistake and say so.
    setMaxListeners(0, this.#life.signal);
    const gone = new Gone(parts.spec.identity.sandboxId);
    this.#end = gone;
    this.gone = new Promise(resolve => void gone.listen(resolve));
    parts.exit.then(
      () => gone.tell('it has ended'),
      () => gone.tell('its engine does not answer for it any more'),
    );
    this.#ready = new ReadyExecs({ start: () => this.#start(), count: parts.ready, clock: parts.clock });
    this.#around = {
      signal: (pid, name) => this.#signal(pid, name),
      exitOf: (execId, signal, withinMs) => this.#exitOf(execId, signal, withinMs),
      sawOom: parts.sawOom,
      disconnect: () => this.#disconnect(),
      end: (pid, execId) => this.#endGroup(pid, execId),
      gone,
      over: new Promise(resolve => {
        this.#settleOver = resolve;
        parts.exit.then(resolve, resolve);
      }),
    };
    this.inside = new ExecInside({
      take: signal => this.#takeSame(signal),
      around: this.#around,
      workdir: parts.spec.workdir,
      image: parts.spec.image.reference,
      over: () => this.#over(),
      unset: parts.unset,
    });
    void this.gone.then(() => this.#ready.close());
    void this.gone.then(() => this.#stopLooking());
    this.#ready.refill();
    this.#look();
  }

  get ports(): readonly PublishedPort[] {
    return this.#parts.ports;
  }

  expect(): void {
    this.#ready.expect();
  }

  async start(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<OpenExecution> {
    const exec = await this.#takeSame(signal);
    const { unset, hostKernel } = this.#parts;
    const line = handoverLine({ ...handover, unset, counted: { group: hostKernel, traffic: false, shared: true } });
    const execution = new ExecExecution(exec, { nonce: handover.nonce, line }, io, this.#around, signal);
    const over = (): void => this.#over();
    execution.ended.then(over, over);
    return execution;
  }

  // A terminal repeats what it is sent, and takes lines of four kilobytes: so the command and its variables come with the
  // request. An engine never tells anybody the variables of a process.
  async startTerminal(
    handover: Handover,
    size: TerminalSize,
    io: CommandIo,
    signal: AbortSignal,
  ): Promise<OpenExecution> {
    this.#assertSame();
    const { engine, id, clock } = this.#parts;
    const terms = { signal: this.#within(signal), deadlineMs: CALL_MS };
    // From its start on it is ended by whoever knows its process: an engine that is hung up on lets it be.
    const whole = { signal: this.#life.signal, deadlineMs: CALL_MS, terminal: true };
    const { command, cwd, env } = handover;
    const argv = typeof command === 'string' ? ['/bin/sh', '-c', command] : command;
    const variables = Object.entries({ TERM: 'xterm-256color', ...env }).map(([name, value]) => `${name}=${value}`);
    const spec = { argv: terminalCommand(cwd, argv), env: variables, stdin: true, terminal: true };
    try {
      const execId = await engine.exec.create(id, spec, terms);
      signal.throwIfAborted();
      const stream = await engine.exec.start(execId, whole);
      const terminal = new DockerTerminal(engine, { execId, stream, size }, io, this.#around, signal);
      const late = (): Error => new Error('the terminal does not begin');
      await inTime(clock, CALL_MS, terminal.begun, late).catch((error: unknown) => {
        stream.destroy();
        throw error;
      });
      return terminal;
    } catch (error) {
      throw this.#failure(error, signal);
    }
  }

  async quiet(signal: AbortSignal): Promise<void> {
    await this.#ready.keepNone();
    await this.#tell(quietLine, 'stopping what is left', signal);
  }

  async leave(): Promise<void> {
    // What was given up in this moment is still ended inside, by a way that is closed here.
    await new Promise<void>(resolve => void setImmediate(resolve));
    await Promise.allSettled(this.#signals);
    this.#end.tell('this process has let go of it');
    this.#settleOver(null);
    this.#ready.close();
    this.#life.abort(new AcodeError('ACODE-SBX-014', {}));
    this.#parts.over?.();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.remove('it was removed');
  }

  async remove(reason: string): Promise<void> {
    this.#end.tell(reason);
    this.#ready.close();
    this.#life.abort(new AcodeError('ACODE-SBX-014', {}));
    this.#parts.over?.();
    await this.#parts.remove();
  }

  #within(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([this.#life.signal, signal]);
  }

  // Somebody on the host who replaces a directory or file that lies under a mount takes that mount away, and what it protected
  // could be written from inside. That is the end of the sandbox.
  #assertSame(): void {
    try {
      this.#parts.same();
    } catch (error) {
      // That it has ended is told by its end.
      if (!(error instanceof AcodeError && error.is('ACODE-SBX-010'))) return;
      this.#end.tell(`something it has mounted was replaced on the host: ${error.context.detail}`);
      throw error;
    }
  }

  #look(): void {
    this.#stopLooking = this.#parts.clock.after(LOOK_MS, () => {
      try {
        this.#assertSame();
        this.#look();
      } catch {
        // It is over, and whoever waits for something of it hears why.
      }
    });
  }

  async #takeSame(signal: AbortSignal): Promise<ReadyExec> {
    this.#assertSame();
    return this.#take(signal);
  }

  async #take(signal: AbortSignal): Promise<ReadyExec> {
    signal.throwIfAborted();
    try {
      return await this.#end.unless(this.#ready.take(signal));
    } catch (error) {
      throw this.#failure(error, signal);
    }
  }

  // The engine makes ready for the next one while nobody waits: then it needs to be asked once, not twice.
  async #start(): Promise<ReadyExec> {
    const { engine } = this.#parts;
    const prepared = this.#prepared;
    this.#prepared = null;
    const execId = (await prepared) ?? (await ReadyExec.prepare(engine, this.id, this.#life.signal));
    return ReadyExec.start(engine, execId, this.#life.signal);
  }

  #over(): void {
    this.#ready.refill();
    if (this.#life.signal.aborted) return;
    this.#prepared ??= ReadyExec.prepare(this.#parts.engine, this.id, this.#life.signal).catch(() => null);
  }

  // By a shell that waits inside, since it needs no further process to do it; an engine has no way to signal an exec.
  async #signal(pid: number, name: string): Promise<void> {
    if (!SIGNAL.test(name)) throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: `${name} is no signal` });
    const { clock } = this.#parts;
    const late = (): Error =>
      new AcodeError('ACODE-SBX-018', { operation: `sending ${name}`, reason: 'no shell inside could send it' });
    const line = (word: string): string => signalLine(pid, name, word);
    const sent = inTime(clock, SIGNAL_MS, this.#tell(line, `sending ${name}`, this.#life.signal), late);
    this.#signals.add(sent);
    try {
      await sent;
    } catch (error) {
      // Whoever ends every shell that could end it ends the sandbox: no command outlives its time because of what it does inside.
      if (name === 'SIGKILL') this.#end.tell(COULD_NOT);
      throw error;
    } finally {
      this.#signals.delete(sent);
    }
  }

  async #tell(lineWith: (word: string) => string, operation: string, signal: AbortSignal): Promise<void> {
    const exec = await this.#take(signal);
    const nothing = (): void => undefined;
    const word = randomBytes(16).toString('hex');
    let told = nothing;
    let heard = '';
    const sent = new Promise<void>(resolve => (told = resolve));
    const hear = (data: Buffer): void => {
      heard = (heard + data.toString('latin1')).slice(-MOST_HEARD);
      if (heard.includes(word)) told();
    };
    await exec.handOver(lineWith(word), { stdout: hear, stderr: nothing });
    const over = exec.drained.then(nothing, nothing).then(() => 'over' as const);
    const outcome = await Promise.race([sent, over]);
    this.#ready.refill();
    // One that was ended before it said so may have been ended by the command it was to end.
    if (outcome === 'over') throw new AcodeError('ACODE-SBX-018', { operation, reason: 'the shell inside was ended' });
  }

  // Whoever says inside that it was done may be another: the engine has the last word.
  async #endGroup(pid: number, execId: string): Promise<void> {
    await this.#signal(pid, 'SIGKILL');
    await this.#exitOf(execId, this.#life.signal, ENDED_MS);
  }

  async #exitOf(execId: string, signal: AbortSignal, withinMs = EXIT_MS): Promise<number> {
    const { clock } = this.#parts;
    const deadline = clock.monotonic() + withinMs;
    for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, SLOWEST_LOOK_MS)) {
      const state = await this.#stateOf(execId, signal);
      if (!state.running && state.exitCode !== null) return state.exitCode;
      if (clock.monotonic() > deadline) {
        // It said that it was over, or was told to be: what goes on all the same goes with the sandbox.
        this.#end.tell(COULD_NOT);
        throw this.#end.failure(COULD_NOT);
      }
      await new Promise<void>(resolve => void clock.after(pauseMs, resolve));
      signal.throwIfAborted();
    }
  }

  // A command that was killed may have been killed with everything else, and what an engine cannot tell of may be going with
  // its sandbox: it may say so much later.
  async #stateOf(execId: string, signal: AbortSignal): Promise<ExecState> {
    try {
      const state = await this.#parts.engine.exec.inspect(execId, { signal, deadlineMs: CALL_MS });
      if (state.exitCode === KILLED) await this.#unlessGone();
      return state;
    } catch (error) {
      if (error instanceof AcodeError) throw error;
      if (!signal.aborted && !isNotFound(error)) await this.#unlessGone();
      throw this.#failure(error, signal);
    }
  }

  // Whoever answers inside says that the sandbox goes on.
  async #unlessGone(): Promise<void> {
    const late = new Promise<void>(resolve => void this.#parts.clock.after(GONE_MS, resolve));
    const answered = this.#tell(answerLine, 'asking who is left', this.#life.signal).catch(() => late);
    await this.#end.unless(Promise.race([answered, late]));
  }

  async #disconnect(): Promise<void> {
    const { network, engine, id } = this.#parts;
    if (network === 'none') return;
    const terms = { signal: this.#life.signal, deadlineMs: CALL_MS };
    await this.#asked(() => engine.networks.disconnect(network, id, terms), this.#life.signal);
  }

  async #asked<Value>(call: () => Promise<Value>, signal: AbortSignal): Promise<Value> {
    try {
      return await call();
    } catch (error) {
      throw this.#failure(error, signal);
    }
  }

  #failure(error: unknown, signal: AbortSignal): unknown {
    if (signal.aborted) return signal.reason;
    if (!isNotFound(error)) return engineFailure(error, signal);
    return this.#end.failure('the engine has no such sandbox');
  }
}
