// Reason why no sandbox is available, for a caller that asked without running anything.

import { engineFaultText } from './error-table.ts';
import { AcodeError } from './errors.ts';

/** The reason alone: that nothing was run is news only to who wanted to run something. */
export function unavailableReason(error: Error): string {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-008'))) return error.message;
  const { socket, lateMs } = error.context;
  return lateMs === undefined ? `${engineFaultText(error.context)}.` : `${engineLate(socket, lateMs)}.`;
}

/** That an engine is there and did not answer in time. `socket` is null where acode searched for it. */
export function engineLate(socket: string | null, ms: number): string {
  const at = socket === null ? '' : ` at ${socket.replace(/^unix:\/\//, '')}`;
  return `the engine${at} did not answer within ${ms / 1000} s: it is slow or hangs`;
}

/** What to do about an engine that did not answer in time. */
export const ENGINE_LATE_REMEDY =
  'Try again when this machine is less busy. If `docker version` does not answer either, restart the engine: `sudo systemctl restart docker`.';
