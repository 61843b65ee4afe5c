// Raw terminal: passes keys to the program inside, filters what it prints, and restores the terminal however this ends.

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

  /** Shows what the program printed. False where the terminal was closed, or `signal` came first. */
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

const RETURN = 0x0d;
const NEWLINE = 0x0a;
const TILDE = 0x7e;
const DOT = 0x2e;

/** What was typed: the data for the program inside, and whether the user wants to leave. */
export interface Typed {
  readonly data: Uint8Array;
  readonly leave: boolean;
}

/** Watches what is typed. A tilde that begins a line is held until the next key; two of them are one. */
export class LeaveKeys {
  #lineBegins = true;
  #held = false;

  /** The next bytes that were typed. */
  push(typed: Uint8Array): Typed {
    const out: number[] = [];
    for (const key of typed) {
      if (this.#held && key === DOT) return { data: Uint8Array.from(out), leave: true };
      if (this.#lineBegins && !this.#held && key === TILDE) {
        this.#held = true;
        continue;
      }
      if (this.#held && key !== TILDE) out.push(TILDE);
      out.push(key);
      this.#held = false;
      this.#lineBegins = key === RETURN || key === NEWLINE;
    }
    return { data: Uint8Array.from(out), leave: false };
  }
}
