// Gives others their turn in work that would otherwise go on without a stop, so that a signal and a deadline are heard.

// A signal, another command’s output and a progress bar wait this long at most, and one step of the work.
const MAX_MS = 10;

/** The pauses of one piece of work. */
export class Pauses {
  readonly #signal: AbortSignal | null;
  #since = performance.now();

  /** Without a signal the work cannot be cancelled, only waited for. */
  constructor(signal: AbortSignal | null) {
    this.#signal = signal;
  }

  /** Whether it is time: asked for every step, since the author of the input decides how long a step takes. */
  get isDue(): boolean {
    return performance.now() - this.#since >= MAX_MS;
  }

  /** Lets everything else go on that is ready; rejects where the work was cancelled meanwhile. */
  async take(): Promise<void> {
    this.#signal?.throwIfAborted();
    await new Promise(resolve => setImmediate(resolve));
    this.#signal?.throwIfAborted();
    this.#since = performance.now();
  }
}
