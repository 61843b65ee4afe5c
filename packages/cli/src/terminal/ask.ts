// Asks the person at the terminal a question that is answered with yes or no.

import { createInterface } from 'node:readline';
import type { Io } from '../io.ts';

/** Whether there is somebody to ask: the question is read on standard error and answered on standard input. */
export function canAsk({ stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>): boolean {
  return stdin.isTTY === true && stderr.isTTY === true;
}

/** The answer; no unless it begins with `y`, and no at the end of the input. Rejects where the signal comes first. */
export function ask(
  { stdin, stderr }: Pick<Io, 'stdin' | 'stderr'>,
  question: string,
  signal: AbortSignal,
): Promise<boolean> {
  signal.throwIfAborted();
  const reader = createInterface({ input: stdin, output: stderr, terminal: false });
  return new Promise<boolean>((resolve, reject) => {
    const stop = (): void => reject(signal.reason instanceof Error ? signal.reason : new Error('interrupted'));
    signal.addEventListener('abort', stop, { once: true });
    reader.on('line', line => resolve(/^\s*y/i.test(line)));
    reader.on('close', () => resolve(false));
    stderr.write(`${question} [y/N] `);
  }).finally(() => {
    reader.close();
    stdin.pause();
  });
}
