// A line that says what is being waited for: only on a terminal, and only once the wait has become noticeable.

import type { Look } from './look.ts';
import type { Output } from './output.ts';

const PATIENCE_MS = 1000;
const FRAME_MS = 120;
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
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
      this.#output.control(
        `${ERASE_LINE}${mark} ${typeof text === 'string' ? text : text()} ${Math.floor(waited / 1000)} s`,
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
}
