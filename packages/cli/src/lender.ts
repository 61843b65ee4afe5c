// Where a call has its host from, if not from itself.

import type { Acode, AcodeOptions, ScanJob } from '@acode/sandbox';

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
