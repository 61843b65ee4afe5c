// Screen filter: a program inside may draw on the terminal and nothing else: no clipboard, no title, no query that the
// terminal would answer as if the user had typed it.

import { controlDrawing, escapeDrawing, shiftDrawing } from './screen-sequences.ts';
import type { Drawing } from './screen-sequences.ts';

/** What a filter lets through besides drawing. */
export interface ScreenFilterOptions {
  /** Whether the program may hear of the mouse. */
  readonly mouse?: boolean;
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

/**
 * The filter for one program. Only whole sequences of a list pass, so whatever a terminal makes of half a one, or of two that
 * were split and put together again, is nothing that was not on the list.
 */
export class ScreenFilter {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  readonly #mouse: boolean;
  readonly #touched = new Map<string, string>();
  #state: State = 'text';
  #sequence = '';
  #afterReturn = false;

  constructor({ mouse = false }: ScreenFilterOptions = {}) {
    this.#mouse = mouse;
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
    return entries.map(([, text]) => text).join('');
  }

  #take(character: string): string | null {
    if (character === ESCAPE) return this.#begin('escape');
    if (CANCEL.includes(character)) return this.#begin('text');
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

  #inString(character: string): string {
    return character === BELL || character === STRING_END ? this.#begin('text') : '';
  }

  #inEscape(character: string): string | null {
    if (this.#sequence === '' && character === '[') return this.#begin('control');
    if (this.#sequence === '' && STRINGS.includes(character)) return this.#begin('string');
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
    return sequence.length > MAX_LENGTH ? '' : this.#draw(controlDrawing(sequence, character, this.#mouse));
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
