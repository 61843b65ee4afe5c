// Progress line: only on a terminal, and only after a noticeable wait.

import type { Look } from './look.ts';
import type { Output } from './output.ts';
import { cut, oneLine } from './text.ts';

const PATIENCE_MS = 1000;
const FRAME_MS = 120;
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
// The frame and the space after it.
const MARK = 2;
const ERASE_LINE = '\r\u001b[2K';
const UP = '\u001b[1A';

/** What is shown: one line, or a line and what stands below it. */
export type ProgressText = string | readonly string[];

/** Shows waiting on one stream. */
export class Progress {
  readonly #output: Output;
  readonly #look: Look;
  readonly #enabled: boolean;

  constructor(output: Output, look: Look, enabled: boolean) {
    this.#output = output;
    this.#look = look;
    this.#enabled = enabled && output.isTerminal;
  }

  /** Whether anything is ever shown. */
  get enabled(): boolean {
    return this.#enabled;
  }

  /** Waits for work; the lines are erased before the result is returned. The text may change meanwhile. */
  async during<Value>(
    text: string | (() => ProgressText),
    work: Promise<Value>,
    patienceMs = PATIENCE_MS,
  ): Promise<Value> {
    if (!this.#enabled) return work;
    const began = Date.now();
    let frame = 0;
    const draw = (): void => {
      const waited = Date.now() - began;
      if (waited < patienceMs) return;
      const mark = this.#look.colours.cyan(FRAMES[frame++ % FRAMES.length] ?? '');
      const lines = this.#lines(typeof text === 'string' ? text : text(), waited);
      this.#output.draw(`${ERASE_LINE}${mark} ${lines.join('\n')}`, erase(lines.length));
    };
    const timer = setInterval(draw, FRAME_MS);
    try {
      return await work;
    } finally {
      clearInterval(timer);
      this.#output.draw('', '');
    }
  }

  // How long it takes stands after a single line; several have figures of their own.
  #lines(text: ProgressText, waited: number): string[] {
    if (typeof text !== 'string') {
      const most = Math.max(1, (this.#output.rows ?? Infinity) - 1);
      return text.slice(0, most).map((line, index) => this.#fitted(line, index === 0 ? MARK : 0, index > 0));
    }
    const time = ` ${Math.floor(waited / 1000)} s`;
    return [`${this.#fitted(text, MARK + time.length, false)}${time}`];
  }

  // A line that wraps is erased only in part, and each frame would leave its beginning behind.
  #fitted(text: string, taken: number, indented: boolean): string {
    const { width } = this.#look;
    const line = `${indented ? '  ' : ''}${oneLine(text)}`;
    return width === null ? line : cut(line, Math.max(0, width - taken - 1));
  }
}

// From the last line up to the first, where whatever comes next begins.
function erase(lines: number): string {
  return ERASE_LINE + `${UP}${ERASE_LINE}`.repeat(Math.max(0, lines - 1));
}
