// What acode itself has done inside a sandbox that stays: programs of a fixed argument vector, never a line for a shell that
// somebody’s words are part of.

import type { Readable } from 'node:stream';

/** How a program inside ended. */
export interface InsideEnd {
  readonly exitCode: number;
  /** The beginning of what it printed on standard error, as text. */
  readonly stderr: string;
}

/** What a program inside printed, and how it ended. */
export interface InsideResult extends InsideEnd {
  readonly stdout: Buffer;
}

/** A program inside while it runs. */
export interface InsideProgram {
  /** What it prints. When it is not read, the program waits. */
  readonly stdout: Readable;
  /** Resolves when the bytes are on their way, so awaiting each write is back-pressure. */
  write(data: Uint8Array | string): Promise<void>;
  closeStdin(): Promise<void>;
  /** Settles when it has ended and `stdout` was read to its end. */
  readonly ended: Promise<InsideEnd>;
  /** Ends it, and every process it started. */
  destroy(): void;
}

/** The inside of one sandbox. */
export interface Inside {
  /**
   * Runs a program to its end. Rejects with ACODE-SBX-015 where the image has no such program, with ACODE-FIL-003 where it
   * prints more than `maxBytes` (16 MiB unless told otherwise), and with ACODE-SBX-025 where the sandbox is gone.
   */
  call(
    argv: readonly string[],
    options: { readonly input?: Uint8Array | string; readonly maxBytes?: number; readonly signal: AbortSignal },
  ): Promise<InsideResult>;
  /** Starts a program. */
  open(argv: readonly string[], signal: AbortSignal): Promise<InsideProgram>;
}
