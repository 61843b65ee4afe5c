// A container that stays: commands are started in it, each by a shell that waited there, until it is removed or left.

import { setMaxListeners } from 'node:events';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { TerminalSize } from '../../../contract/sandbox.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { CommandIo, Ending, Inside, OpenExecution, OpenSandbox } from '../../backend.ts';
import {
  type Handover,
  handoverLine,
  quietLine,
  readBegun,
  readFirstLine,
  terminalCommand,
} from '../../handover/script.ts';
import { inTime, unlessCancelled } from '../../../lifecycle/clock.ts';
import { watchSame, whyChanged } from '../../supervise.ts';
import type { Engine } from '../engine/index.ts';
import type { HijackedStream } from '../engine/streams.ts';
import { ENDED_MS, ExecEnds, ExecExecution, type ExecSurroundings, failureIn, Gone } from './exec-execution.ts';
import { ExecInside } from './exec-inside.ts';
import type { OomWatch } from './execution.ts';
import { ReadyExec, ReadyExecs } from './ready-execs.ts';

/** What a container that stays is made of. */
export interface OpenParts {
  readonly id: string;
  readonly spec: SandboxSpec;
  readonly engine: Engine;
  readonly clock: Clock;
  readonly ports: readonly PublishedPort[];
  /** Settles when it has ended. */
  readonly exit: Promise<unknown>;
  /** Listens to the engine’s out-of-memory events; of one that another process has made it hears none. */
  readonly oomWatch: OomWatch;
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
  readonly #ends: ExecEnds;
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
    this.#ends = new ExecEnds({
      engine: parts.engine,
      clock: parts.clock,
      gone,
      life: this.#life.signal,
      take: signal => this.#take(signal),
      taken: () => this.#ready.refill(),
    });
    this.#around = {
      signal: (pid, name) => this.#ends.signal(pid, name),
      exitOf: (execId, signal, withinMs) => this.#ends.exitOf(execId, signal, withinMs),
      ooms: () => parts.oomWatch.count(parts.id),
      hearOom: act => parts.oomWatch.hear(parts.id, act),
      sawOomSince: ooms => parts.oomWatch.sawSince(parts.id, ooms, parts.clock),
      disconnect: () => this.#disconnect(),
      end: (pid, execId) => this.#ends.end(pid, execId),
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
    this.#stopLooking = watchSame(parts.same, parts.clock, why => gone.tell(why));
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
    const { command, cwd, env, defaults } = handover;
    const argv = typeof command === 'string' ? ['/bin/sh', '-c', command] : command;
    const variables = { TERM: 'xterm-256color', ...defaults, ...env };
    const pairs = Object.entries(variables).map(pair => pair.join('='));
    const spec = { argv: terminalCommand(cwd, argv), env: pairs, stdin: true, terminal: true };
    try {
      const execId = await engine.exec.create(id, spec, terms);
      signal.throwIfAborted();
      this.#assertSame();
      const stream = await engine.exec.start(execId, whole);
      const terminal = new DockerTerminal(engine, { execId, stream, size }, io, this.#around, signal);
      const late = (): Error => new Error('the terminal does not begin');
      await inTime(clock, CALL_MS, terminal.begun, late).catch((error: unknown) => {
        stream.destroy();
        throw error;
      });
      return terminal;
    } catch (error) {
      throw failureIn(error, this.#end, signal);
    }
  }

  async quiet(signal: AbortSignal): Promise<void> {
    await this.#ready.keepNone();
    await this.#ends.tell(quietLine, 'stopping what is left', signal);
  }

  async leave(): Promise<void> {
    // What was given up in this moment is still ended inside, by a way that is closed here.
    await new Promise<void>(resolve => void setImmediate(resolve));
    await this.#ends.sent();
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

  #assertSame(): void {
    try {
      this.#parts.same();
    } catch (error) {
      const why = whyChanged(error);
      if (why !== null) this.#end.tell(why);
      // That it has ended is told by its end.
      else if (error instanceof AcodeError && error.is('ACODE-SBX-006')) return;
      throw error;
    }
  }

  // Before, since a shell is made where none is ready; and after, since that takes its time.
  async #takeSame(signal: AbortSignal): Promise<ReadyExec> {
    this.#assertSame();
    const exec = await this.#take(signal);
    try {
      this.#assertSame();
      return exec;
    } catch (error) {
      exec.stream.destroy();
      throw error;
    }
  }

  async #take(signal: AbortSignal): Promise<ReadyExec> {
    signal.throwIfAborted();
    try {
      return await this.#end.unless(this.#ready.take(signal));
    } catch (error) {
      throw failureIn(error, this.#end, signal);
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

  async #disconnect(): Promise<void> {
    const { network, engine, id } = this.#parts;
    if (network === 'none') return;
    const terms = { signal: this.#life.signal, deadlineMs: CALL_MS };
    try {
      await engine.networks.disconnect(network, id, terms);
    } catch (error) {
      throw failureIn(error, this.#end, this.#life.signal);
    }
  }
}

// A command with a terminal in a container that stays. Its stream is raw: what a terminal would show.

const MAX_BEFORE = 64 * 1024;
// What the small program before the command ends with where it cannot enter the directory.
const CWD = 125;

/** What was started. */
interface StartedTerminal {
  readonly execId: string;
  readonly size: TerminalSize;
  readonly stream: HijackedStream;
}

/** A command with a terminal. */
class DockerTerminal implements OpenExecution {
  readonly ended: Promise<Ending>;
  readonly dead: Promise<unknown>;
  readonly over: Promise<unknown>;
  /** Settles when the command was started, or will never be. */
  readonly begun: Promise<void>;
  readonly #started: StartedTerminal;
  readonly #engine: Engine;
  readonly #around: ExecSurroundings;
  readonly #signal: AbortSignal;
  /** Settles when it is known who it is, or will never be. */
  readonly #known: Promise<void>;
  #knows: () => void = () => undefined;
  #pid = 0;
  #patience: number | undefined;

  constructor(engine: Engine, started: StartedTerminal, io: CommandIo, around: ExecSurroundings, signal: AbortSignal) {
    this.#engine = engine;
    this.#started = started;
    this.#around = around;
    this.#signal = signal;
    let begin = (): void => undefined;
    this.#known = new Promise(resolve => (this.#knows = resolve));
    this.begun = new Promise(resolve => (begin = resolve));
    this.ended = this.#run(io, begin);
    this.ended.catch(() => undefined);
    this.dead = this.ended;
    this.over = around.over;
  }

  get pid(): number {
    return this.#pid;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#started.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#started.stream.closeWrite();
  }

  async kill(name: string): Promise<void> {
    if (this.#pid > 0) await this.#around.signal(this.#pid, name);
    // With the other end of its terminal gone, whatever still has it is told to hang up.
    if (name !== 'SIGKILL') return;
    this.#patience = ENDED_MS;
    this.#started.stream.destroy();
  }

  disconnect(): Promise<void> {
    return this.#around.disconnect();
  }

  async resize(size: TerminalSize): Promise<void> {
    await this.#engine.exec.resize(this.#started.execId, size, { signal: this.#signal, deadlineMs: CALL_MS });
  }

  async #run(io: CommandIo, begin: () => void): Promise<Ending> {
    const { stream, execId } = this.#started;
    let givenUp = Promise.resolve();
    const leave = (): void => {
      const end = (): void => stream.destroy();
      givenUp = this.#known.then(() => this.#endInside()).then(end, end);
    };
    if (this.#signal.aborted) leave();
    else this.#signal.addEventListener('abort', leave, { once: true });
    const stopListening = this.#around.gone.listen(() => stream.destroy());
    try {
      await this.#pump(stream, io, begin).catch(() => undefined);
      this.#knows();
      begin();
      // Told of only when it is so: whoever hears of it may end this process, and with it the way inside.
      await givenUp;
      this.#signal.throwIfAborted();
      const exitCode = await this.#around.gone.unless(this.#around.exitOf(execId, this.#signal, this.#patience));
      const neverStarted = this.#pid === 0 && exitCode === CWD ? { neverStarted: 'cwd' as const } : {};
      return { exitCode, ...neverStarted, oomKilled: false, pidsRefused: false };
    } finally {
      stopListening();
      this.#signal.removeEventListener('abort', leave);
    }
  }

  async #endInside(): Promise<void> {
    if (this.#pid > 0) await this.#around.end(this.#pid, this.#started.execId);
  }

  async #pump(stream: HijackedStream, io: CommandIo, begin: () => void): Promise<void> {
    let held: Buffer | null = Buffer.alloc(0);
    for await (const chunk of stream) {
      if (held === null) {
        io.stdout(chunk);
        await this.#room(io);
        continue;
      }
      held = Buffer.concat([held, chunk]);
      if (this.#pid === 0) await this.#introduce(held);
      const output = readBegun(held);
      if (output === null && held.length > MAX_BEFORE) throw new Error('the terminal does not begin');
      if (output === null) continue;
      held = null;
      begin();
      if (output.length > 0) io.stdout(output);
    }
  }

  // What a terminal does not show yet waits inside: a reader that is gone for good ends with the signal.
  async #room(io: CommandIo): Promise<void> {
    if (io.room) await unlessCancelled(io.room(), this.#signal);
  }

  async #introduce(held: Buffer): Promise<void> {
    const first = readFirstLine(held);
    if (!first) return;
    this.#pid = first.pid;
    this.#knows();
    // Given up before it began: it is ended where it waits for its line.
    if (this.#signal.aborted) return;
    // A terminal that cannot be sized is still a terminal.
    await this.resize(this.#started.size).catch(() => undefined);
    await this.#started.stream.write('\n');
  }
}
