// A container that stays: commands are started in it, each by a shell that waited there, until it is removed or left.

import { setMaxListeners } from 'node:events';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { PublishedPort } from '../../../contract/result.ts';
import type { TerminalSize } from '../../../contract/sandbox.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { CommandIo, OpenExecution, OpenSandbox } from '../../backend.ts';
import { handoverLine } from '../../handover/script.ts';
import type { Handover } from '../../handover/script.ts';
import { quietLine, terminalCommand } from '../../handover/open-script.ts';
import type { Inside } from '../../inside.ts';
import { inTime } from '../../waiting.ts';
import { watchSame, whyChanged } from '../../watch.ts';
import type { Engine } from '../engine/index.ts';
import { ExecEnds, failureIn } from './exec-ends.ts';
import { ExecExecution } from './exec-execution.ts';
import type { ExecSurroundings } from './exec-execution.ts';
import { ExecInside } from './exec-inside.ts';
import { Gone } from './gone.ts';
import type { OomWatch } from './oom-watch.ts';
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
