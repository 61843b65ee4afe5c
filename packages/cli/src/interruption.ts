// Signals to this process: the first one cancels the work and lets it clean up, the second one exits at once.

import type { SignalSource } from './io.ts';

const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'] as const;

type Known = (typeof SIGNALS)[number];

const STATUSES: Readonly<Record<Known, number>> = { SIGHUP: 129, SIGINT: 130, SIGQUIT: 131, SIGTERM: 143 };

// npx and other wrappers pass on a Ctrl-C that the terminal has already sent: two signals, one wish.
const SAME_WISH_MS = 250;

/** What a person said by signal during one call. */
export class Interruption implements Disposable {
  /** Aborted by the first signal. */
  readonly signal: AbortSignal;
  readonly #controller = new AbortController();
  readonly #source: SignalSource;
  readonly #leave: (status: number) => void;
  readonly #listeners: readonly (readonly [Known, () => void])[];
  #first: { readonly name: Known; readonly at: number } | null = null;

  constructor(source: SignalSource, leave: (status: number) => void) {
    this.#source = source;
    this.#leave = leave;
    this.signal = this.#controller.signal;
    this.#listeners = SIGNALS.map(name => [name, () => this.#take(name)] as const);
    for (const [name, listener] of this.#listeners) source.on(name, listener);
  }

  /** The name of the first signal; null while there was none. */
  get name(): string | null {
    return this.#first?.name ?? null;
  }

  /** The exit status the first signal asks for; null while there was none. */
  get exitStatus(): number | null {
    return this.#first ? STATUSES[this.#first.name] : null;
  }

  [Symbol.dispose](): void {
    for (const [name, listener] of this.#listeners) this.#source.off(name, listener);
  }

  #take(name: Known): void {
    const now = performance.now();
    if (this.#first === null) {
      this.#first = { name, at: now };
      this.#controller.abort();
    } else if (now - this.#first.at > SAME_WISH_MS) {
      this.#leave(STATUSES[name]);
    }
  }
}
