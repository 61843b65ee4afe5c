// Serve request: everything about a call that the command would otherwise read from its own process.

import { LOOK_VARIABLES } from './identity.ts';
import type { Io, OutputStream } from '../io.ts';

/** What is known of an output and the terminal behind it. */
export interface OutputFacts {
  readonly terminal: boolean;
  readonly columns: number | null;
  readonly rows: number | null;
}

const NO_TERMINAL: OutputFacts = { terminal: false, columns: null, rows: null };

/** A call as it is sent. */
export interface ServedRequest {
  /** What client and server must have in common. */
  readonly identity: string;
  /** Which directory the client sees at the workspace’s path: it may live in another view of the file system. */
  readonly directory: string;
  /** The process of the client. */
  readonly pid: number;
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly stdinIsTerminal: boolean;
  readonly stdout: OutputFacts;
  readonly stderr: OutputFacts;
  readonly outputsAreOne: boolean;
  readonly env: Readonly<Record<string, string>>;
}

/**
 * The request of a call in these surroundings.
 *
 * @param terminals which of the three standard streams are terminals: to ask the streams themselves would make them, which
 *   takes longer than the rest of a call, and most calls never need all of them
 */
export function requestFrom(
  io: Io,
  terminals: readonly number[],
  about: Pick<ServedRequest, 'identity' | 'directory' | 'argv' | 'cwd'>,
): ServedRequest {
  return {
    ...about,
    pid: process.pid,
    stdinIsTerminal: terminals.includes(0),
    stdout: terminals.includes(1) ? factsOf(io.stdout) : NO_TERMINAL,
    stderr: terminals.includes(2) ? factsOf(io.stderr) : NO_TERMINAL,
    outputsAreOne: io.outputsAreOne,
    env: Object.fromEntries(
      // The language belongs to the identity too, and decides what a command hears of the terminal.
      [...LOOK_VARIABLES, 'LANG'].flatMap(name => {
        const value = io.env[name];
        return value === undefined ? [] : [[name, value]];
      }),
    ),
  };
}

/** Which directory is at a path, as a client and a server can compare it. */
export function directoryMark({ dev, ino }: { readonly dev: number; readonly ino: number }): string {
  return `${dev}:${ino}`;
}

function factsOf({ columns, rows }: OutputStream): OutputFacts {
  return { terminal: true, columns: columns ?? null, rows: rows ?? null };
}
