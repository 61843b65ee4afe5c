// Output pump: passes on what a command prints, raw into a pipe and sanitized for a terminal.

import { TerminalSanitiser } from '@acode/sandbox';
import type { Output } from './output.ts';

const COLOUR = '\u001b[';
const RESET = '\u001b[0m';

/** Copies a stream to an output, at the reader’s pace. False where the reader went away, or `signal` came first. */
export async function pump(source: AsyncIterable<Uint8Array>, output: Output, signal: AbortSignal): Promise<boolean> {
  return output.isTerminal ? pumpHarmless(source, output, signal) : pumpRaw(source, output, signal);
}

async function pumpRaw(source: AsyncIterable<Uint8Array>, output: Output, signal: AbortSignal): Promise<boolean> {
  for await (const chunk of source) if (!(await output.write(chunk, signal))) return false;
  return true;
}

async function pumpHarmless(source: AsyncIterable<Uint8Array>, output: Output, signal: AbortSignal): Promise<boolean> {
  const sanitiser = new TerminalSanitiser();
  let coloured = false;
  const show = async (text: string): Promise<boolean> => {
    coloured ||= text.includes(COLOUR);
    return output.write(text, signal);
  };
  try {
    for await (const chunk of source) if (!(await show(sanitiser.push(chunk)))) return false;
    return await show(sanitiser.end());
  } finally {
    // A colour that was never taken back would go on into the user’s own prompt; hidden text would hide it.
    if (coloured) output.control(RESET);
  }
}
