// Process interface: everything that the command uses of its process, so that a test can replace it.

import type { Readable, Writable } from 'node:stream';

/** A stream to write to, and what is known of the terminal behind it. */
export type OutputStream = Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number };

/** A stream to read from. */
export type InputStream = Readable & {
  readonly isTTY?: boolean;
  /** Present where it is a terminal: whether keys come as they are typed, and none of them is a signal. */
  setRawMode?(raw: boolean): unknown;
};

/** Where signals come from: a process, or a test. */
export interface SignalSource {
  on(signal: NodeJS.Signals, listener: () => void): unknown;
  off(signal: NodeJS.Signals, listener: () => void): unknown;
}

/** The surroundings of one call of the command. */
export interface Io {
  readonly stdin: InputStream;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** The process at the caller’s terminal; absent where that is not known. */
  readonly pid?: number;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signals: SignalSource;
  /** Whether both outputs end in the same place though neither is a terminal, as after `2>&1`. */
  readonly outputsAreOne: boolean;
  /** The current directory; throws where it was removed meanwhile. */
  cwd(): string;
  /** Milliseconds since the epoch. */
  now(): number;
  /** Has something done at the very end of the process, however it comes, unless it is taken back before. */
  atExit(last: () => void): Disposable;
  /** Ends the process at once, whatever is under way. */
  leave(status: number): void;
}
