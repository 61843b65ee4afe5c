// Output pump: passes on what a command prints, raw into a pipe and sanitized for a terminal.

import { TerminalSanitiser } from '@acode/sandbox';
import type { Output } from './output.ts';

const COLOUR = '\u001b[';
const RESET = '\u001b[0m';

/** Copies a stream to an output, at the reader’s pace. False where the reader went away, or `signal` came first. */
export async function pump(source: AsyncIterable<Uint8Array>, output: Output, signal: AbortSignal): Promise<boolean> {
  const screen = new Screen(output);
  try {
    for await (const chunk of source) if (!(await screen.write(chunk, signal))) return false;
    return await screen.finish(signal);
  } finally {
    screen.reset();
  }
}

/** One stream on its way to an output. */
export class Screen {
  readonly #output: Output;
  readonly #sanitiser: TerminalSanitiser | null;
  #coloured = false;

  constructor(output: Output) {
    this.#output = output;
    this.#sanitiser = output.isTerminal ? new TerminalSanitiser() : null;
  }

  /** Passes on what comes next. False where the reader went away, or `signal` came first. */
  async write(chunk: Uint8Array, signal: AbortSignal): Promise<boolean> {
    return this.#sanitiser ? this.#show(this.#sanitiser.push(chunk), signal) : this.#output.write(chunk, signal);
  }

  /** Passes on the rest. */
  async finish(signal: AbortSignal): Promise<boolean> {
    return this.#sanitiser ? this.#show(this.#sanitiser.end(), signal) : true;
  }

  /** A colour that was never taken back would go on into the user’s own prompt; hidden text would hide it. */
  reset(): void {
    if (this.#coloured) this.#output.control(RESET);
  }

  async #show(text: string, signal: AbortSignal): Promise<boolean> {
    this.#coloured ||= text.includes(COLOUR);
    return this.#output.write(text, signal);
  }
}
