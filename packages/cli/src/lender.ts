// Where a call has its host from, if not from itself.

import type { Acode, AcodeOptions, ScanJob } from '@acode/sandbox';
import type { Io } from './io.ts';
import type { Note } from './serve/conversation.ts';

/** Somebody who keeps a host open. */
export interface Lender {
  /** A host that is what these options would open; null where there is none, and the call opens its own. */
  borrow(options: AcodeOptions): Promise<Loan | null>;
  /** Goes on with a scan when its call has ended; `pid` is the process at the caller’s terminal. */
  scan(job: ScanJob, pid: number | null): boolean;
}

/** A host for one call. */
export interface Loan {
  /** Uses it once. It stays open afterwards. */
  during<Value>(use: (acode: Acode) => Promise<Value>): Promise<Value>;
}

/** What a call has to do with a server. */
export interface Served {
  /** Who keeps a host open for it. */
  readonly lender?: Lender;
  /** What is to be said about a server that did not do it. */
  readonly note?: Note | null;
  /** The file this process was started from, where it may leave a background process behind. */
  readonly entry?: string;
  /** Whether a server had taken it on, and was lost. */
  readonly lost?: true;
}

/** Runs a command line in this process; the exit status. */
export type RunCli = (argv: readonly string[], io: Io, served?: Served) => Promise<number>;
