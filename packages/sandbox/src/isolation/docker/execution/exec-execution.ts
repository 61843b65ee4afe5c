// A command in a container that stays: handed to a shell that waited there, from its first byte to its end.

import { randomBytes } from 'node:crypto';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import type { CommandIo, Ending, OpenExecution } from '../../backend.ts';
import { answerLine, signalLine } from '../../handover/script.ts';
import { type ExitClaim, HandedStreams } from '../../handover/status.ts';
import { inTime } from '../../../lifecycle/clock.ts';
import type { ExecState } from '../engine/exec.ts';
import type { Engine } from '../engine/index.ts';
import { isNotFound } from '../engine/protocol.ts';
import { engineFailure } from '../failure.ts';
import type { ReadyExec } from './ready-execs.ts';

/** What a command needs of the container it runs in. */
export interface ExecSurroundings {
  /** Sends a signal to a process group inside. */
  signal(pid: number, name: string): Promise<void>;
  /** The exit status of a process, by the engine; waits until it has one, for so long at most. Where it has none then, the sandbox goes. */
  exitOf(execId: string, signal: AbortSignal, withinMs?: number): Promise<number>;
  /** Ends a process group and makes sure by the engine that its first process is gone; where it is not, the sandbox goes. */
  end(pid: number, execId: string): Promise<void>;
  /** How often the engine has told that a process was killed for want of memory. */
  ooms(): number;
  /** Whether it has told so more than that often; null where its events may have been missed. Waits a moment for a late one. */
  sawOomSince(ooms: number): Promise<boolean | null>;
  /** Takes the network of the whole sandbox away. */
  disconnect(): Promise<void>;
  /** Calls `act` at each out-of-memory event of the sandbox; returns what ends that. */
  hearOom(act: () => void): () => void;
  /** The end of the sandbox. */
  readonly gone: Gone;
  /** Settles when nothing in it goes on any more, or this process has let go of it. */
  readonly over: Promise<unknown>;
}

/** How long a process that was killed may take to be gone. */
export const ENDED_MS = 3000;

// A shell’s status of a command that was ended by a signal is this and the signal’s number.
const BY_SIGNAL = 128;

/** A command handed to a shell that waited. */
export class ExecExecution implements OpenExecution {
  readonly ended: Promise<Ending>;
  readonly dead: Promise<unknown>;
  readonly over: Promise<unknown>;
  readonly #exec: ReadyExec;
  readonly #around: ExecSurroundings;
  readonly #signal: AbortSignal;
  readonly #streams: HandedStreams;
  readonly #oomsBefore: number;
  #wasKilled = false;
  #outOfMemory = false;
  #patience: number | undefined;
  #killed: () => void = () => undefined;

  constructor(
    exec: ReadyExec,
    { nonce, line }: { readonly nonce: string; readonly line: string },
    io: CommandIo,
    around: ExecSurroundings,
    signal: AbortSignal,
  ) {
    this.#exec = exec;
    this.#around = around;
    this.#signal = signal;
    this.#oomsBefore = around.ooms();
    this.#streams = new HandedStreams(nonce, io);
    this.ended = this.#run(line);
    // Whoever asks for the ending gets its error; a caller that was cancelled may never ask.
    this.ended.catch(() => undefined);
    this.dead = this.ended;
    this.over = around.over;
  }

  get pid(): number {
    return this.#exec.pid;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#exec.stream.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#exec.stream.closeWrite();
  }

  async kill(name: string): Promise<void> {
    await this.#streams.readyFor(name);
    await this.#around.signal(this.pid, name);
    // The shell that would tell of the end goes with the rest: then the engine is asked.
    if (name !== 'SIGKILL') return;
    this.#wasKilled = true;
    this.#patience = ENDED_MS;
    this.#killed();
  }

  // Commands of one sandbox share its memory: the engine does not say which of them a killed process belonged to.
  onOutOfMemory(act: () => void): () => void {
    return this.#around.hearOom(() => {
      this.#outOfMemory = true;
      act();
    });
  }

  disconnect(): Promise<void> {
    return this.#around.disconnect();
  }

  async #run(line: string): Promise<Ending> {
    const killed = new Promise<void>(resolve => (this.#killed = resolve));
    const drained = this.#exec.drained.catch(() => undefined);
    const abandoned = this.#whenAbandoned();
    try {
      await this.#exec.handOver(line, this.#streams);
      await Promise.race([this.#streams.claimed, drained, killed, abandoned.promise]);
      if (this.#signal.aborted) return await abandoned.promise;
      return await Promise.race([this.#streams.ending(claim => this.#exited(claim)), abandoned.promise]);
    } finally {
      abandoned.stop();
      this.#streams.end();
    }
  }

  // The command was given up, or the sandbox is gone: nothing of it goes on, and nobody waits for it.
  #whenAbandoned(): { readonly promise: Promise<never>; stop(): void } {
    let stop = (): void => undefined;
    const promise = new Promise<never>((_, reject) => {
      const leave = (): void => {
        // Told of only when it is so: whoever hears of it may end this process, and with it the way inside.
        const over = (): void => {
          this.#exec.stream.destroy();
          reject(this.#signal.reason);
        };
        this.#around.end(this.pid, this.#exec.execId).then(over, over);
      };
      if (this.#signal.aborted) leave();
      else this.#signal.addEventListener('abort', leave, { once: true });
      const { gone } = this.#around;
      const stopListening = gone.listen(reason => reject(gone.failure(reason)));
      stop = () => {
        this.#signal.removeEventListener('abort', leave);
        stopListening();
      };
    });
    promise.catch(() => undefined);
    return { promise, stop };
  }

  async #exited(claim: ExitClaim | null): Promise<Ending> {
    if (claim) return this.#claimed(claim);
    const exitCode = await this.#around.exitOf(this.#exec.execId, this.#signal, this.#patience);
    const bySignal = exitCode > BY_SIGNAL && !this.#wasKilled && this.#around.ooms() > this.#oomsBefore;
    const oomKilled = this.#outOfMemory || bySignal;
    // A shell that ends by itself and says nothing could not start the command: there was no room for its process.
    return { exitCode, oomKilled, pidsRefused: exitCode > 0 && exitCode <= BY_SIGNAL };
  }

  // A status that a signal leaves may be another one by the engine’s own account. The command can forge the counters, so the
  // engine’s events have the last word on memory; where it has none, the claim stands.
  async #claimed({ exitCode, counters }: ExitClaim): Promise<Ending> {
    const real = exitCode <= BY_SIGNAL ? exitCode : await this.#around.exitOf(this.#exec.execId, this.#signal);
    const oomKilled = counters.oomKills > 0 && ((await this.#around.sawOomSince(this.#oomsBefore)) ?? true);
    return { exitCode: real, oomKilled, pidsRefused: counters.pidsRefused > 0 };
  }
}

// How commands in a container that stays are ended, and how they ended: signals by a shell that waits inside, the rest by what
// the engine says.

/** What it needs of the container. */
interface ExecEndsParts {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly gone: Gone;
  /** Fired when this process has let go of the container. */
  readonly life: AbortSignal;
  /** A shell that waits inside. */
  take(signal: AbortSignal): Promise<ReadyExec>;
  /** One was used up. */
  taken(): void;
}

const CALL_MS = 10_000;
const SIGNAL_MS = 5000;
const EXIT_MS = 10_000;
const MAX_HEARD = 4096;
const COULD_NOT = 'a command in it could not be ended';
const SLOWEST_LOOK_MS = 50;
// What a shell says of a command that SIGKILL ended, and how long the end of the whole sandbox may take to be heard of where
// nobody inside answers any more.
const KILLED = 137;
const GONE_MS = 5000;
const SIGNAL = /^SIG[A-Z0-9]{2,10}$/;

/** The ends of commands in one container. */
export class ExecEnds {
  readonly #parts: ExecEndsParts;
  /** The signals on their way inside. */
  readonly #signals = new Set<Promise<void>>();

  constructor(parts: ExecEndsParts) {
    this.#parts = parts;
  }

  /** Signals a process group. By a shell, since it needs no further process to do it; an engine has no way to signal an exec. */
  async signal(pid: number, name: string): Promise<void> {
    if (!SIGNAL.test(name)) throw new AcodeError('ACODE-SBX-017', { field: 'signal', reason: `${name} is no signal` });
    const { clock, life, gone } = this.#parts;
    const late = (): Error =>
      new AcodeError('ACODE-SBX-018', { operation: `sending ${name}`, reason: 'no shell inside could send it' });
    const line = (word: string): string => signalLine(pid, name, word);
    const sent = inTime(clock, SIGNAL_MS, this.tell(line, `sending ${name}`, life), late);
    this.#signals.add(sent);
    try {
      await sent;
    } catch (error) {
      // Whoever ends every shell that could end it ends the sandbox: no command outlives its time because of what it does inside.
      if (name === 'SIGKILL') gone.tell(COULD_NOT);
      throw error;
    } finally {
      this.#signals.delete(sent);
    }
  }

  /** Settles when no signal is on its way inside. */
  async sent(): Promise<void> {
    await Promise.allSettled(this.#signals);
  }

  /** Has a shell inside carry out a line, and hears that it did. */
  async tell(lineWith: (word: string) => string, operation: string, signal: AbortSignal): Promise<void> {
    const exec = await this.#parts.take(signal);
    const nothing = (): void => undefined;
    const word = randomBytes(16).toString('hex');
    let told = nothing;
    let heard = '';
    const sent = new Promise<void>(resolve => (told = resolve));
    const hear = (data: Buffer): void => {
      heard = (heard + data.toString('latin1')).slice(-MAX_HEARD);
      if (heard.includes(word)) told();
    };
    await exec.handOver(lineWith(word), { stdout: hear, stderr: nothing });
    const over = exec.drained.then(nothing, nothing).then(() => 'over' as const);
    const outcome = await Promise.race([sent, over]);
    this.#parts.taken();
    // One that was ended before it said so may have been ended by the command it was to end.
    if (outcome === 'over') throw new AcodeError('ACODE-SBX-018', { operation, reason: 'the shell inside was ended' });
  }

  /** Ends a process group. Whoever says inside that it was done may be another: the engine has the last word. */
  async end(pid: number, execId: string): Promise<void> {
    await this.signal(pid, 'SIGKILL');
    await this.#exitOf(execId, this.#parts.life, ENDED_MS);
  }

  /**
   * The exit status of a process, by the engine. One that was killed may have been killed with everything else, and what an
   * engine cannot tell of may be going with its sandbox: it may say so much later, and then that is why.
   */
  async exitOf(execId: string, signal: AbortSignal, withinMs = EXIT_MS): Promise<number> {
    try {
      const exitCode = await this.#exitOf(execId, signal, withinMs);
      if (exitCode === KILLED) await this.#unlessGone();
      return exitCode;
    } catch (error) {
      if (!signal.aborted && isEnginesFailure(error)) await this.#unlessGone();
      throw error;
    }
  }

  async #exitOf(execId: string, signal: AbortSignal, withinMs: number): Promise<number> {
    const { clock, gone } = this.#parts;
    const deadline = clock.monotonic() + withinMs;
    for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 2, SLOWEST_LOOK_MS)) {
      const state = await this.#stateOf(execId, signal);
      if (!state.running && state.exitCode !== null) return state.exitCode;
      if (clock.monotonic() > deadline) {
        // It said that it was over, or was told to be: what goes on all the same goes with the sandbox.
        gone.tell(COULD_NOT);
        throw gone.failure(COULD_NOT);
      }
      await new Promise<void>(resolve => void clock.after(pauseMs, resolve));
      signal.throwIfAborted();
    }
  }

  async #stateOf(execId: string, signal: AbortSignal): Promise<ExecState> {
    const { engine, gone } = this.#parts;
    try {
      return await engine.exec.inspect(execId, { signal, deadlineMs: CALL_MS });
    } catch (error) {
      throw failureIn(error, gone, signal);
    }
  }

  // Whoever answers inside says that the sandbox goes on.
  async #unlessGone(): Promise<void> {
    const { clock, gone, life } = this.#parts;
    let cancel = (): void => undefined;
    const late = new Promise<void>(resolve => (cancel = clock.after(GONE_MS, resolve)));
    const answered = this.tell(answerLine, 'asking who is left', life).catch(() => late);
    try {
      await gone.unless(Promise.race([answered, late]));
    } finally {
      cancel();
    }
  }
}

/** What a failed question to the engine about a sandbox means. */
export function failureIn(error: unknown, gone: Gone, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (!isNotFound(error)) return engineFailure(error, signal);
  return gone.failure('the engine has no such sandbox');
}

function isEnginesFailure(error: unknown): boolean {
  return !(error instanceof AcodeError && error.is('ACODE-SBX-025'));
}

// That a sandbox is gone, told to whoever listens by then. A promise that lives as long as the sandbox would hold on to
// everything that ever waited beside it: each command, and all that it printed.

/** The end of one sandbox. */
export class Gone {
  readonly #sandbox: string;
  readonly #listeners = new Set<(reason: string) => void>();
  #reason: string | null = null;

  constructor(sandbox: string) {
    this.#sandbox = sandbox;
  }

  /** Tells everybody, the first time. */
  tell(reason: string): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    for (const listener of this.#listeners) listener(reason);
    this.#listeners.clear();
  }

  /** Calls back when it is gone, at once where it is. What is returned ends that. */
  listen(listener: (reason: string) => void): () => void {
    if (this.#reason === null) this.#listeners.add(listener);
    else listener(this.#reason);
    return () => void this.#listeners.delete(listener);
  }

  /** What comes of the work, unless it is gone before that. */
  async unless<Value>(work: Promise<Value>): Promise<Value> {
    let stop = (): void => undefined;
    const gone = new Promise<never>((_, reject) => {
      stop = this.listen(reason => reject(this.failure(reason)));
    });
    work.catch(() => undefined);
    try {
      return await Promise.race([work, gone]);
    } finally {
      stop();
    }
  }

  /** What whoever needs it is told. */
  failure(reason: string): AcodeError {
    return new AcodeError('ACODE-SBX-025', { sandbox: this.#sandbox, reason });
  }
}
