// Lender: the server that lends its open host to a call.

import type { Acode, AcodeOptions, ScanJob } from '@acode/sandbox';
import type { Io } from './io.ts';
import type { Note } from './serve/conversation.ts';

/** A server that keeps a host open. */
export interface Lender {
  /** A host that is what these options would open; null where there is none, and the call opens its own. */
  borrow(options: AcodeOptions): Promise<Loan | null>;
  /** Keeps a host open, and the server with it, until something of it has ended. */
  hold(acode: Acode, until: Promise<unknown>): void;
  /** Continues a scan after its call has ended; `pid` is the process at the caller’s terminal. */
  scan(job: ScanJob, pid: number | null): boolean;
}

/** A host for one call. */
export interface Loan {
  /** Uses it once. It remains open afterwards. */
  during<Value>(use: (acode: Acode) => Promise<Value>): Promise<Value>;
}

/** What a call has to do with a server. */
export interface Served {
  /** The server that keeps a host open for it. */
  readonly lender?: Lender;
  /** The note about a server that did not run it. */
  readonly note?: Note | null;
  /** The file this process was started from, where it may leave a background process behind. */
  readonly entry?: string;
  /** Whether it is a command of an agent that a hook sent here. More follow it, so that it need not be the second one. */
  readonly isHook?: boolean;
  /** Whether a server had accepted the call, and the connection was lost. */
  readonly lost?: true;
}

/** Runs a command line in this process; the exit status. */
export type RunCli = (argv: readonly string[], io: Io, served?: Served) => Promise<number>;
