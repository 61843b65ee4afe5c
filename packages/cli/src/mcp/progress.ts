// Progress notifications: how much a command printed and its last line, a few times a second at most.

import { oneLine } from '../terminal/text.ts';

const PAUSE_MS = 250;
const MAX_LINE = 200;

/** Sends one notification. */
export type Notify = (progress: number, message: string) => void;

/** The progress of one command. */
export class Progress {
  readonly #notify: Notify | null;
  readonly #now: () => number;
  #bytes = 0;
  #sent = -Infinity;

  /** Without a client to notify, nothing is done. */
  constructor(notify: Notify | null, now: () => number = () => performance.now()) {
    this.#notify = notify;
    this.#now = now;
  }

  /** Takes what a command printed. */
  readonly hear = (chunk: Uint8Array): void => {
    if (!this.#notify) return;
    this.#bytes += chunk.length;
    const now = this.#now();
    if (now - this.#sent < PAUSE_MS) return;
    this.#sent = now;
    this.#notify(this.#bytes, `The command printed: ${lastLine(chunk)}`);
  };
}

function lastLine(chunk: Uint8Array): string {
  const end = new TextDecoder().decode(chunk.subarray(-4 * MAX_LINE)).trimEnd();
  return oneLine(end.slice(end.lastIndexOf('\n') + 1)).slice(0, MAX_LINE);
}
