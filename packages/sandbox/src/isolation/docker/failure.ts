// Turns failures of the engine client into the errors of the contract.

import { AcodeError } from '../../contract/errors.ts';
import { EngineError } from './engine/protocol.ts';

/** What went wrong, in words for a person: the engine’s own where it gave any. */
export function reasonOf(error: unknown): string {
  if (error instanceof EngineError) return (error.engineMessage ?? error.detail).trim().replace(/\.$/, '');
  return error instanceof Error ? error.message : String(error);
}

/** An engine that cannot be reached at all. */
export function unavailable(socket: string, reason: string, remedy?: string, cause?: unknown): AcodeError {
  return new AcodeError(
    'ACODE-SBX-008',
    { socket, reason, ...(remedy === undefined ? {} : { remedy }) },
    { cause: new AcodeError('ACODE-CTN-008', { socket, reason }, { cause }) },
  );
}

/** No engine at all: nobody named one, and there is none in the known places. */
export function absent(searched: string): AcodeError {
  const reason = 'no engine socket exists';
  const cause = new AcodeError('ACODE-CTN-008', { socket: searched, reason });
  return new AcodeError('ACODE-SBX-008', { socket: searched, reason, absent: true }, { cause });
}

/** A failure in the middle of something: what was cancelled stays cancelled, what has a code keeps it. */
export function engineFailure(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (!(error instanceof EngineError)) return error;
  return new AcodeError('ACODE-SBX-018', { operation: error.operation, reason: reasonOf(error) }, { cause: error });
}

/** What a call of the engine gives, its failure as an error of the contract. */
export async function asked<Value>(call: () => Promise<Value>, signal: AbortSignal): Promise<Value> {
  try {
    return await call();
  } catch (error) {
    throw engineFailure(error, signal);
  }
}
