// Raw terminal: passes keys to the program inside, filters what it prints, and restores the terminal however this ends.

import type { Io } from '../io.ts';
import type { Output } from './output.ts';
import { ScreenFilter } from './screen-filter.ts';
import type { ClipboardWrites, Question, ScreenFilterOptions } from './screen-filter.ts';
import { KEYBOARD_QUERY, TerminalReports } from './terminal-reports.ts';
import type { TerminalReport } from './terminal-reports.ts';

/** How long a terminal may take to say which modes its keyboard has. One far away that takes longer counts as having none. */
const MAX_REPORT_MS = 1000;

/** A terminal that was taken over. Disposing gives it back. */
export class RawTerminal implements Disposable {
  readonly #io: Pick<Io, 'stdin' | 'signals'>;
  readonly #output: Output;
  readonly #filter: ScreenFilter;
  readonly #last: Disposable;
  readonly #continued = (): void => this.#again();
  readonly #reports = new TerminalReports();
  readonly #answer: (data: Uint8Array) => void;
  // Whether the keyboard has modes; null where the terminal was not asked, or has not answered.
  #hasModes: boolean | null = null;
  #waiting: Question[] = [];
  #late: NodeJS.Timeout | null = null;
  #heard: () => void = () => undefined;
  #settled = Promise.resolve();
  #given = false;

  /** `answer` gives the program bytes that nobody typed: answers to what it asked the terminal. */
  constructor(
    io: Pick<Io, 'stdin' | 'signals' | 'atExit'>,
    output: Output,
    options: ScreenFilterOptions,
    answer: (data: Uint8Array) => void,
  ) {
    this.#io = io;
    this.#output = output;
    this.#answer = answer;
    this.#filter = new ScreenFilter(options);
    this.#last = io.atExit(() => this.#giveBack());
    io.signals.on('SIGCONT', this.#continued);
    io.stdin.setRawMode?.(true);
  }

  /** Shows what the program printed. False where the terminal was closed, or `signal` came first. */
  async show(data: Uint8Array, signal: AbortSignal): Promise<boolean> {
    const text = this.#filter.push(data);
    this.#waiting.push(...this.#filter.questions());
    this.#answerAll();
    return this.#output.write(text, signal);
  }

  /** What was typed, without what the terminal reports to acode. */
  typed(data: Uint8Array): Uint8Array {
    const { typed, reports } = this.#reports.push(data);
    for (const report of reports) this.#hear(report);
    return typed;
  }

  /** Waits for a report that is on its way: later it would be typed into the user’s shell. */
  async settled(): Promise<void> {
    await this.#settled;
  }

  /** How often the program wrote to the clipboard. */
  get clipboard(): ClipboardWrites {
    return this.#filter.clipboard;
  }

  #answerAll(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if ('keys' in next && this.#hasModes === null) {
        if (this.#late === null) this.#askKeyboard();
        return;
      }
      this.#waiting.shift();
      const text = 'answer' in next ? next.answer : this.#hasModes === true ? keyboardReport(next.keys) : '';
      if (text !== '') this.#answer(Buffer.from(text));
    }
  }

  #askKeyboard(): void {
    this.#settled = new Promise(resolve => (this.#heard = resolve));
    this.#reports.expect();
    this.#output.control(KEYBOARD_QUERY);
    this.#late = setTimeout(() => this.#hear('attributes'), MAX_REPORT_MS);
  }

  // A terminal answers in the order in which it was asked: attributes come last, and without modes before them there are none.
  #hear(report: TerminalReport): void {
    this.#hasModes ??= report === 'keyboard';
    if (report === 'attributes') {
      if (this.#late !== null) clearTimeout(this.#late);
      const held = this.#reports.end();
      if (held.length > 0) this.#answer(held);
      this.#heard();
    }
    this.#answerAll();
  }

  [Symbol.dispose](): void {
    if (this.#late !== null) clearTimeout(this.#late);
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

function keyboardReport(mode: number): string {
  return `\u001b[?${mode}u`;
}

const RETURN = 0x0d;
const NEWLINE = 0x0a;
const TILDE = 0x7e;
const DOT = 0x2e;
const ESCAPE = 0x1b;
// What stands before and after pasted text where a program asked for that: `ESC [ 200 ~` and `ESC [ 201 ~`.
const PASTE = Buffer.from('\u001b[20');
const BEGINS = 0x30;
const ENDS = 0x31;

/** What was typed: the data for the program inside, and whether the user wants to leave. */
export interface Typed {
  readonly data: Uint8Array;
  readonly leave: boolean;
}

/**
 * Watches what is typed. A tilde that begins a line is held until the next key; two of them are one. Pasted text never leaves
 * where the program has it marked.
 */
export class LeaveKeys {
  readonly #pasted = new PastedText();
  #lineBegins = true;
  #held = false;

  /** The next bytes that were typed. */
  push(typed: Uint8Array): Typed {
    const out: number[] = [];
    for (const key of typed) {
      if (this.#pasted.holds(key)) out.push(key);
      else if (this.#held && key === DOT) return { data: Uint8Array.from(out), leave: true };
      else out.push(...this.#next(key));
    }
    return { data: Uint8Array.from(out), leave: false };
  }

  #next(key: number): readonly number[] {
    if (this.#lineBegins && !this.#held && key === TILDE) {
      this.#held = true;
      return [];
    }
    const held = this.#held && key !== TILDE;
    this.#held = false;
    this.#lineBegins = key === RETURN || key === NEWLINE;
    return held ? [TILDE, key] : [key];
  }
}

// Text between the marks that a terminal puts around what is pasted.
class PastedText {
  #inside = false;
  // What of a mark is there.
  #mark: number[] = [];

  /** Takes the next byte, and returns whether it is pasted text or the end of it. */
  holds(key: number): boolean {
    const inside = this.#inside;
    const at = this.#mark.length;
    if (!fitsMark(key, at)) this.#mark = key === ESCAPE ? [key] : [];
    else if (at <= PASTE.length) this.#mark.push(key);
    else {
      this.#inside = this.#mark.at(-1) === BEGINS;
      this.#mark = [];
    }
    return inside;
  }
}

function fitsMark(key: number, at: number): boolean {
  if (at < PASTE.length) return key === PASTE[at];
  return at === PASTE.length ? key === BEGINS || key === ENDS : key === TILDE;
}
