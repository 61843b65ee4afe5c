// Terminal reports: what a terminal answers when acode asks it about its keyboard, told apart from what is typed.

/** Asks for the modes of the keyboard, and for the attributes, which every terminal has: their report is the last one. */
export const KEYBOARD_QUERY = '\u001b[?u\u001b[c';
// No report is longer.
const REPORT = /\u001b\[\?[\d;]{0,60}([uc])/g;
const BEGINNING = /\u001b(?:\[(?:\?[\d;]{0,60})?)?$/;

/** The keyboard has modes; or all is answered. */
export type TerminalReport = 'keyboard' | 'attributes';

/** What came from a terminal. */
interface Told {
  readonly typed: Uint8Array;
  readonly reports: readonly TerminalReport[];
}

/** Takes reports out of what is typed, while one is expected. No key sends what they look like. */
export class TerminalReports {
  #expected = false;
  // The beginning of what may become a report, each byte a character.
  #held = '';

  /** A report is on its way. */
  expect(): void {
    this.#expected = true;
  }

  /** No further report is expected. Returns what was held back for one. */
  end(): Uint8Array {
    const held = this.#held;
    this.#expected = false;
    this.#held = '';
    return Buffer.from(held, 'latin1');
  }

  /** The next bytes. */
  push(data: Uint8Array): Told {
    if (!this.#expected) return { typed: data, reports: [] };
    const reports: TerminalReport[] = [];
    const all = this.#held + Buffer.from(data).toString('latin1');
    const rest = all.replaceAll(REPORT, (_, last: string) => {
      reports.push(last === 'u' ? 'keyboard' : 'attributes');
      return '';
    });
    this.#held = BEGINNING.exec(rest)?.[0] ?? '';
    const typed = rest.slice(0, rest.length - this.#held.length);
    return { typed: Buffer.from(typed, 'latin1'), reports };
  }
}
