// Why a file of the log could not be used, in words, and as the error that refuses what it was to be written for.

import { AcodeError } from '../../contract/errors.ts';
import { reasonOf } from '../../contract/system-error.ts';

/** The error that a record could not be written. What is an error of ours already says it better. */
export function notWritten(error: unknown, file: string): AcodeError {
  if (isOurs(error)) return error;
  return new AcodeError('ACODE-AUD-001', { file: pathOf(error) ?? file, reason: reasonOf(error) }, { cause: error });
}

function pathOf(error: unknown): string | null {
  return error instanceof Error && 'path' in error && typeof error.path === 'string' ? error.path : null;
}

function isOurs(error: unknown): error is AcodeError {
  return error instanceof AcodeError && (error.is('ACODE-AUD-001') || error.is('ACODE-AUD-002'));
}
