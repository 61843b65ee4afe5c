// The user’s terminal while a program inside has it: keys go inside as they are typed, what comes back is filtered, and it is
// given back as it was however this ends.

import type { Io } from '../io.ts';
import type { Output } from './output.ts';
import { ScreenFilter } from './screen-filter.ts';
import type { ScreenFilterOptions } from './screen-filter.ts';

/** A terminal that was taken over. Disposing gives it back. */
export class RawTerminal implements Disposable {
  readonly #io: Pick<Io, 'stdin' | 'signals'>;
  readonly #output: Output;
  readonly #filter: ScreenFilter;
  readonly #last: Disposable;
  readonly #continued = (): void => this.#again();
  #given = false;

  constructor(io: Pick<Io, 'stdin' | 'signals' | 'atExit'>, output: Output, options: ScreenFilterOptions) {
    this.#io = io;
    this.#output = output;
    this.#filter = new ScreenFilter(options);
    this.#last = io.atExit(() => this.#giveBack());
    io.signals.on('SIGCONT', this.#continued);
    io.stdin.setRawMode?.(true);
  }

  /** Shows what the program printed. False where nobody looks any more, or `signal` came first. */
  async show(data: Uint8Array, signal: AbortSignal): Promise<boolean> {
    return this.#output.write(this.#filter.push(data), signal);
  }

  [Symbol.dispose](): void {
    this.#giveBack();
    this.#last[Symbol.dispose]();
    this.#io.signals.off('SIGCONT', this.#continued);
  }

  #giveBack(): void {
    if (this.#given) return;
    this.#given = true;
    const undo = this.#filter.undo();
    if (undo !== '') this.#output.control(undo);
    this.#io.stdin.setRawMode?.(false);
  }

  // Whoever had the terminal while this process was stopped left it as they like it.
  #again(): void {
    if (this.#given) return;
    this.#io.stdin.setRawMode?.(false);
    this.#io.stdin.setRawMode?.(true);
  }
}
