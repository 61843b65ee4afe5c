// How commands in a container that stays are ended, and how they ended: signals by a shell that waits inside, the rest by what
// the engine says.

import { randomBytes } from 'node:crypto';
import { AcodeError } from '../../../contract/errors.ts';
import type { Clock } from '../../../contract/ports.ts';
import { answerLine, signalLine } from '../../handover/open-script.ts';
import { inTime } from '../../waiting.ts';
import { isNotFound } from '../engine/error.ts';
import type { ExecState } from '../engine/exec.ts';
import type { Engine } from '../engine/index.ts';
import { ENDED_MS } from './exec-execution.ts';
import { engineFailure } from '../failure.ts';
import type { Gone } from './gone.ts';
import type { ReadyExec } from './ready-exec.ts';

/** What it needs of the container. */
export interface ExecEndsParts {
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
