// Converts failures of the engine client into acode’s errors.

import { AcodeError } from '../../contract/errors.ts';
import type { EngineFault } from '../../contract/error-table.ts';
import { shortageIn } from '../../contract/system-error.ts';
import { EngineError } from './engine/protocol.ts';

/** The reason for a failure as text: the engine’s own message, if it sent one. */
export function reasonOf(error: unknown): string {
  if (error instanceof EngineError) return (error.engineMessage ?? error.detail).trim().replace(/\.$/, '');
  return error instanceof Error ? error.message : String(error);
}

/** The error for an engine that cannot be reached. */
export function unavailable(
  socket: string,
  reason: string,
  { remedy, fault, cause }: { readonly remedy?: string; readonly fault?: EngineFault; readonly cause?: unknown } = {},
): AcodeError {
  return new AcodeError(
    'ACODE-SBX-008',
    { socket, reason, ...(remedy === undefined ? {} : { remedy }), ...(fault === undefined ? {} : { fault }) },
    { cause: new AcodeError('ACODE-CTN-008', { socket, reason }, { cause }) },
  );
}

/** The error for a missing engine: none was named, and none is at the well-known paths. */
export function absent(searched: string): AcodeError {
  const reason = 'no engine socket exists';
  const cause = new AcodeError('ACODE-CTN-008', { socket: searched, reason });
  return new AcodeError('ACODE-SBX-008', { socket: searched, reason, absent: true }, { cause });
}

/**
 * Converts a failure during an operation: a cancellation remains a cancellation, and an error that has a code is
 * unchanged.
 */
export function engineFailure(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (!(error instanceof EngineError)) return error;
  const reason = reasonOf(error);
  const { operation } = error;
  return new AcodeError('ACODE-SBX-018', { operation, reason, ...shortageIn(reason) }, { cause: error });
}

/** Calls the engine, and converts a failure into one of acode’s errors. */
export async function asked<Value>(call: () => Promise<Value>, signal: AbortSignal): Promise<Value> {
  try {
    return await call();
  } catch (error) {
    throw engineFailure(error, signal);
  }
}
