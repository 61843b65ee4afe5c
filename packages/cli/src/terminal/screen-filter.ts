// Screen filter: a program inside may draw on the terminal and nothing else: no clipboard without consent, no title, no query
// that the terminal would answer as if the user had typed it.

import { MAX_CLIPBOARD, clipboardWrite } from './clipboard.ts';
import { KeyModes } from './key-modes.ts';
import { controlDrawing, controlOf, escapeDrawing, modeDefault, shiftDrawing } from './screen-sequences.ts';
import type { Control, Drawing } from './screen-sequences.ts';

/** What a filter lets through besides drawing. */
export interface ScreenFilterOptions {
  /** Whether the program may hear of the mouse. */
  readonly mouse?: boolean;
  /** Whether the program may write to the clipboard. No program reads it. */
  readonly clipboard?: boolean;
}

/**
 * A question of the program’s that acode answers in place of the terminal: with a fixed text, or with the mode of the
 * keyboard if the terminal has such modes.
 */
export type Question = { readonly answer: string } | { readonly keys: number };

/** How often the program wrote to the clipboard, and how often it was not let. */
export interface ClipboardWrites {
  readonly written: number;
  readonly refused: number;
}

type State = 'text' | 'escape' | 'control' | 'string';

const ESCAPE = '\u001b';
const BELL = '\u0007';
const RETURN = '\r';
const STRING_END = '\u009c';
// CAN and SUB end any sequence.
const CANCEL = ['\u0018', '\u001a'];
// What follows an escape to begin a string for the terminal itself; `k` is a title in screen and tmux.
const STRINGS = ']PX^_k';
// No sequence that passes is longer. What is, is taken in to its end without being kept.
const MAX_LENGTH = 128;
// Neither controls of either kind nor what makes text read in another direction than it is.
const TEXT = /[ -~\u00a0-\u061b\u061d-\u200d\u2010-\u2029\u202f-\u2065\u206a-\uffff]+/y;
const SOFT_RESET = `${ESCAPE}[!p${ESCAPE}[H${ESCAPE}[2J`;
// What takes a terminal back to its own screen comes after what was changed on the other, and margins move the cursor.
const LATE = ['mode 47', 'mode 1047', 'mode 1049', 'margins'];
const ALTERNATE_SCREEN = /^\u001b\[\?(?:[\d;]*;)?(?:47|1047|1049)(?:;[\d;]*)?([hl])$/;
// A terminal of the second generation with colours: what acode passes, and no more.
const ATTRIBUTES = `${ESCAPE}[?62;22c`;
const NAME = `${ESCAPE}P>|acode${ESCAPE}\\`;
// A program that asks without end and reads no answer.
const MAX_QUESTIONS = 64;

/**
 * The filter for one program. Only whole sequences of a list pass, so whatever a terminal makes of half a one, or of two that
 * were split and put together again, is nothing that was not on the list.
 */
export class ScreenFilter {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #mouse: boolean;
  readonly #clipboard: boolean;
  readonly #keys = new KeyModes();
  readonly #touched = new Map<string, string>();
  #questions: Question[] = [];
  #written = 0;
  #refused = 0;
  #state: State = 'text';
  #sequence = '';
  // The string for the terminal that is being read, with what it began with; only one that may be for the clipboard is kept.
  #string = '';
  #afterReturn = false;

  constructor({ mouse = false, clipboard = false }: ScreenFilterOptions = {}) {
    this.#mouse = mouse;
    this.#clipboard = clipboard;
  }

  /** How often the clipboard was written to. */
  get clipboard(): ClipboardWrites {
    return { written: this.#written, refused: this.#refused };
  }

  /** What the program asked the terminal since the last call. The terminal never heard of it. */
  questions(): readonly Question[] {
    const asked = this.#questions;
    this.#questions = [];
    return asked;
  }

  /** The next bytes, as the terminal may have them. */
  push(data: Uint8Array): string {
    const text = this.#decoder.decode(data, { stream: true });
    let out = '';
    for (let at = 0; at < text.length;) {
      TEXT.lastIndex = at;
      const plain = this.#state === 'text' ? TEXT.exec(text)?.[0] : undefined;
      if (plain === undefined) {
        const taken = this.#take(text[at] ?? '');
        // Null: it ended a sequence that it is no part of.
        if (taken !== null) at++;
        out += taken ?? '';
      } else {
        this.#afterReturn = false;
        out += plain;
        at += plain.length;
      }
    }
    return out;
  }

  /** What gives the terminal back as it was, but for the picture. */
  undo(): string {
    const entries = [...this.#touched];
    const rank = ([what]: readonly [string, string]): number => LATE.indexOf(what);
    entries.sort((one, other) => rank(one) - rank(other));
    this.#touched.clear();
    const here = this.#keys.undo();
    const [before, after] = this.#keys.switched(false);
    return `${here}${before}${entries.map(([, text]) => text).join('')}${after}${this.#keys.undo()}`;
  }

  #take(character: string): string | null {
    // The end of a string may follow: an escape and a backslash.
    if (character === ESCAPE) return this.#begin('escape');
    if (CANCEL.includes(character)) return this.#cancel();
    if (this.#state === 'string') return this.#inString(character);
    if (character < ' ') return this.#control(character);
    if (this.#state === 'escape') return this.#inEscape(character);
    return this.#state === 'control' ? this.#inControl(character) : '';
  }

  #begin(state: State): string {
    this.#state = state;
    this.#sequence = '';
    return '';
  }

  #cancel(): string {
    this.#string = '';
    return this.#begin('text');
  }

  #inString(character: string): string {
    if (character === BELL || character === STRING_END) return this.#endString();
    // One more than is taken shows that it was too long.
    if (this.#string !== '' && this.#string.length <= MAX_CLIPBOARD) this.#string += character;
    return '';
  }

  #endString(): string {
    const string = this.#string;
    this.#cancel();
    if (!string.startsWith(']52;')) return '';
    const text = string.length > MAX_CLIPBOARD ? null : clipboardWrite(string.slice(1));
    // A question for what it holds, or text that is none.
    if (text === null) return '';
    if (this.#clipboard) this.#written += 1;
    else this.#refused += 1;
    return this.#clipboard ? text : '';
  }

  #inEscape(character: string): string | null {
    if (this.#sequence === '') {
      if (character === '\\') return this.#endString();
      this.#string = character === ']' ? character : '';
      if (character === '[') return this.#begin('control');
      if (STRINGS.includes(character)) return this.#begin('string');
    }
    if (character > '~') return this.#again();
    if (character < '0') return this.#keep(character);
    const sequence = `${this.#sequence}${character}`;
    this.#begin('text');
    return sequence === 'c' ? `${this.undo()}${SOFT_RESET}` : this.#draw(escapeDrawing(sequence));
  }

  #inControl(character: string): string | null {
    if (character > '~') return this.#again();
    if (character < '@') return this.#keep(character);
    const sequence = this.#sequence;
    this.#begin('text');
    const control = sequence.length > MAX_LENGTH ? null : controlOf(sequence, character);
    if (control === null || this.#isQuestion(control)) return '';
    const keys = this.#keys.change(control);
    return keys ?? this.#onScreen(this.#draw(controlDrawing(control, this.#mouse)));
  }

  // Terminals keep the modes of the keyboard for each of their two screens.
  #onScreen(text: string): string {
    const [, end] = ALTERNATE_SCREEN.exec(text) ?? [];
    if (end === undefined) return text;
    const [before, after] = this.#keys.switched(end === 'h');
    return `${before}${text}${after}`;
  }

  // A program that has an answer does not wait for one.
  #isQuestion({ prefix, numbers, space, final }: Control): boolean {
    switch (`${prefix}${space}${final}`) {
      case 'c':
        return this.#ask(/^0?$/.test(numbers) ? { answer: ATTRIBUTES } : null);
      case '>q':
        return this.#ask(/^0?$/.test(numbers) ? { answer: NAME } : null);
      case '?u':
        return this.#ask(numbers === '' ? { keys: this.#keys.current } : null);
      case '?$p':
        return this.#ask(/^\d{1,5}$/.test(numbers) ? { answer: this.#modeReport(Number(numbers)) } : null);
      default:
        return false;
    }
  }

  #ask(question: Question | null): true {
    if (question !== null && this.#questions.length < MAX_QUESTIONS) this.#questions.push(question);
    return true;
  }

  // 1 is on, 2 is off, 0 is a mode that does not pass.
  #modeReport(mode: number): string {
    const usual = modeDefault(mode, this.#mouse);
    const on = usual !== this.#touched.has(`mode ${mode}`);
    return `${ESCAPE}[?${mode};${usual === null ? 0 : on ? 1 : 2}$y`;
  }

  #again(): null {
    this.#begin('text');
    return null;
  }

  #keep(character: string): string {
    if (this.#sequence.length <= MAX_LENGTH) this.#sequence += character;
    return '';
  }

  #draw({ text, touches = [] }: Drawing): string {
    this.#afterReturn = false;
    for (const [what, undo] of touches) {
      if (undo === null) this.#touched.delete(what);
      else this.#touched.set(what, undo);
    }
    return text;
  }

  // Node leaves it to the terminal’s driver to put a return before each newline, and a program that draws means the newline
  // alone: a vertical tab is one, and no driver touches it.
  #control(character: string): string {
    const newline = this.#afterReturn ? '\n' : '\v';
    this.#afterReturn = character === RETURN;
    if (character === '\n') return newline;
    if (character === '\v' || character === '\f') return '\v';
    if (character === '\u000e' || character === '\u000f') return this.#draw(shiftDrawing(character));
    return [BELL, '\b', '\t', RETURN].includes(character) ? character : '';
  }
}
