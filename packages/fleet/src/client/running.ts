// Running command of a fleet: the handle that `spawn` returns, with both streams of the task’s log.

import { AcodeError } from '@acode/sandbox';
import type { RunResult, RunningCommand } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import { Pieces } from './pieces.ts';
import type { FleetTask } from './task.ts';

/** Who hears what a command prints. */
export interface Listeners {
  readonly onStdout?: ((chunk: Uint8Array) => void) | undefined;
  readonly onStderr?: ((chunk: Uint8Array) => void) | undefined;
}

const CANCEL_MS = 30_000;

/** A command that runs on the fleet. */
export class FleetRunning implements RunningCommand {
  readonly ports = [];
  readonly stdout = new Pieces();
  readonly stderr = new Pieces();
  readonly result: Promise<RunResult>;
  readonly #task: FleetTask;
  readonly #left = new AbortController();
  #isOver = false;

  constructor(task: FleetTask, listeners: Listeners, signal?: AbortSignal) {
    this.#task = task;
    this.result = this.#run(listeners, signal);
    // Who only reads a stream is not ended by it.
    this.result.catch(() => undefined);
  }

  /** Refused: a task has its input when it is submitted. */
  async write(): Promise<void> {
    const reason = 'cannot be written to later: a task takes its input when it is submitted';
    throw FLEET_ERRORS.create('ACODE-FLT-008', { field: 'stdin', reason });
  }

  /** No effect: the input of a task ends by itself. */
  async closeStdin(): Promise<void> {
    await Promise.resolve();
  }

  /** Cancels the task, whatever the signal. */
  async kill(): Promise<void> {
    this.#left.abort();
    await this.#task.cancel(AbortSignal.timeout(CANCEL_MS));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isOver) return;
    await this.kill().catch(() => undefined);
    await this.result.catch(() => undefined);
  }

  async #run(listeners: Listeners, signal?: AbortSignal): Promise<RunResult> {
    const cancel = (): void => void this.kill().catch(() => undefined);
    if (signal?.aborted === true) cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    const printed = new AbortController();
    const printing = this.#print(listeners, printed.signal);
    try {
      const result = await this.#task.result();
      await printing;
      return result;
    } catch (error) {
      throw this.#left.signal.aborted && isCancelled(error)
        ? new AcodeError('ACODE-SBX-014', {}, { cause: error })
        : error;
    } finally {
      this.#isOver = true;
      signal?.removeEventListener('abort', cancel);
      printed.abort();
      await printing;
    }
  }

  // The result has the beginning of the output: a log that cannot be read takes nothing from it.
  async #print({ onStdout, onStderr }: Listeners, signal: AbortSignal): Promise<void> {
    try {
      for await (const { stream, bytes } of this.#task.logs(signal)) {
        (stream === 1 ? this.stdout : this.stderr).push(bytes);
        (stream === 1 ? onStdout : onStderr)?.(bytes);
      }
    } catch {
      // Ended by the result.
    } finally {
      this.stdout.end();
      this.stderr.end();
    }
  }
}

function isCancelled(error: unknown): boolean {
  return error instanceof AcodeError && error.code === 'ACODE-FLT-016';
}
