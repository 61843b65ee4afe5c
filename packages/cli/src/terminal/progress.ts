// A line that says what is being waited for: only on a terminal, and only once the wait has become noticeable.

import type { Look } from './look.ts';
import type { Output } from './output.ts';
import { cut, oneLine } from './text.ts';

const PATIENCE_MS = 1000;
const FRAME_MS = 120;
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
// The frame and the space after it.
const MARK = 2;
const ERASE_LINE = '\r\u001b[2K';

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

  /** Waits for work; the line is gone again before the result is returned. The text may change meanwhile. */
  async during<Value>(text: string | (() => string), work: Promise<Value>): Promise<Value> {
    if (!this.#enabled) return work;
    const began = Date.now();
    let frame = 0;
    const draw = (): void => {
      const waited = Date.now() - began;
      if (waited < PATIENCE_MS) return;
      const mark = this.#look.colours.cyan(FRAMES[frame++ % FRAMES.length] ?? '');
      const time = ` ${Math.floor(waited / 1000)} s`;
      this.#output.control(
        `${ERASE_LINE}${mark} ${this.#fitted(typeof text === 'string' ? text : text(), time.length)}${time}`,
      );
    };
    const timer = setInterval(draw, FRAME_MS);
    try {
      return await work;
    } finally {
      clearInterval(timer);
      if (frame > 0) this.#output.control(ERASE_LINE);
    }
  }

  // A line that goes on into the next is erased only in part, and each frame would leave its beginning behind.
  #fitted(text: string, taken: number): string {
    const { width } = this.#look;
    const line = oneLine(text);
    return width === null ? line : cut(line, Math.max(0, width - MARK - taken - 1));
  }
}
