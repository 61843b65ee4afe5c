// Reason why no sandbox is available, for a caller that asked without running anything.

import { AcodeError } from './errors.ts';

/** The reason alone: that nothing was run is news only to who wanted to run something. */
export function unavailableReason(error: Error): string {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-008'))) return error.message;
  return `no Docker Engine answered at ${error.context.socket} (${error.context.reason}).`;
}
