// Screen of rows and keys: what a program draws that has the whole terminal, and what a person presses meanwhile.

import type { Io } from '../io.ts';
import type { Output } from './output.ts';

const ENTER = '\u001b[?1049h\u001b[?25l\u001b[?7l\u001b[?2004h';
const LEAVE = '\u001b[?2004l\u001b[?7h\u001b[?25h\u001b[?1049l';

/** The other screen of the terminal, in raw mode. Only rows that have changed are written. */
export class RowScreen {
  readonly #io: Pick<Io, 'stdin' | 'signals' | 'atExit'>;
  readonly #output: Output;
  readonly #hear: (data: Uint8Array | string) => void;
  readonly #again = (): void => this.#continued();
  #rows: string[] = [];
  #last: Disposable | null = null;

  constructor(io: Pick<Io, 'stdin' | 'signals' | 'atExit'>, output: Output, pressed: (keys: string[]) => void) {
    this.#io = io;
    this.#output = output;
    const keys = new KeyReader();
    this.#hear = data => pressed(keys.push(Buffer.from(data).toString('utf8')));
  }

  /** Takes the terminal. */
  enter(): void {
    const { stdin, signals, atExit } = this.#io;
    this.#last = atExit(() => this.#giveBack());
    signals.on('SIGCONT', this.#again);
    stdin.setRawMode?.(true);
    stdin.on('data', this.#hear);
    stdin.resume();
    this.#rows = [];
    this.#output.control(ENTER);
  }

  /** Gives it back as it was. */
  leave(): void {
    if (this.#last === null) return;
    this.#last[Symbol.dispose]();
    this.#last = null;
    const { stdin, signals } = this.#io;
    signals.off('SIGCONT', this.#again);
    stdin.off('data', this.#hear);
    stdin.pause();
    this.#giveBack();
  }

  /** After a change of size, nothing is where it was. */
  forget(): void {
    this.#rows = [];
  }

  /** Shows these rows. */
  draw(rows: readonly string[]): void {
    const changed = rows.flatMap((row, at) => (row === this.#rows[at] ? [] : [`\u001b[${at + 1};1H${row}\u001b[K`]));
    const isWhole = this.#rows.length === 0;
    this.#rows = [...rows];
    if (changed.length > 0) this.#output.control(`${isWhole ? '\u001b[2J' : ''}${changed.join('')}`);
  }

  #giveBack(): void {
    this.#output.control(LEAVE);
    this.#io.stdin.setRawMode?.(false);
  }

  // Whoever had the terminal while this process was stopped left it as they like it.
  #continued(): void {
    this.#io.stdin.setRawMode?.(false);
    this.#io.stdin.setRawMode?.(true);
    this.#output.control(ENTER);
    this.#rows = [];
  }
}

const SEQUENCES: Readonly<Record<string, string>> = {
  '[A': 'up',
  '[B': 'down',
  '[5~': 'pageup',
  '[6~': 'pagedown',
  '[H': 'home',
  '[F': 'end',
  '[1~': 'home',
  '[4~': 'end',
  OA: 'up',
  OB: 'down',
  OH: 'home',
  OF: 'end',
};
const NAMED: Readonly<Record<string, string>> = {
  '\r': 'enter',
  '\n': 'enter',
  '\u0003': 'interrupt',
  '\u001b': 'escape',
  ' ': 'pagedown',
};
// eslint-disable-next-line no-control-regex
const TYPED = /\u001b(?:\[[0-9;]*[~A-Za-z]|O[A-Z])|[^]/gu;

/** Reads keys from what a terminal sends. What is pasted presses none. */
export class KeyReader {
  #isPasting = false;

  /** The keys that were pressed. */
  push(text: string): string[] {
    const keys: string[] = [];
    for (const [part] of text.matchAll(TYPED)) {
      if (part === '\u001b[200~' || part === '\u001b[201~') this.#isPasting = part === '\u001b[200~';
      else if (!this.#isPasting)
        keys.push(NAMED[part] ?? SEQUENCES[part.slice(1)] ?? (part.startsWith('\u001b') ? '' : part));
    }
    return keys.filter(key => key !== '');
  }
}
