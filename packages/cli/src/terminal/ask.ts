// Questions to the person at the terminal.

import { createInterface } from 'node:readline';
import type { Io } from '../io.ts';

/** Whether a person can be asked: the question is shown on standard error and answered on standard input. */
export function canAsk({ stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>): boolean {
  return stdin.isTTY === true && stderr.isTTY === true;
}

/**
 * The answer; no unless it begins with `y`, and no at the end of the input. With `otherwise`, an empty line is a yes.
 * Rejects where the signal comes first.
 */
export async function ask(
  io: Pick<Io, 'stdin' | 'stderr'>,
  question: string,
  signal: AbortSignal,
  otherwise = false,
): Promise<boolean> {
  const line = await askLine(io, `${question} ${otherwise ? '[Y/n]' : '[y/N]'} `, signal);
  return line !== null && (/^\s*y/i.test(line) || (otherwise && line.trim() === ''));
}

/** The line that is typed; null at the end of the input. Rejects where the signal comes first. */
export function askLine(
  { stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>,
  question: string,
  signal: AbortSignal,
): Promise<string | null> {
  signal.throwIfAborted();
  const reader = createInterface({ input: stdin, output: stderr, terminal: false });
  return new Promise<string | null>((resolve, reject) => {
    const stop = (): void => reject(signal.reason instanceof Error ? signal.reason : new Error('interrupted'));
    signal.addEventListener('abort', stop, { once: true });
    reader.on('line', resolve);
    reader.on('close', () => resolve(null));
    stderr.write(question);
  }).finally(() => {
    reader.close();
    stdin.pause();
  });
}
