// How a mount is refused: one error, with the rule that was broken and the way on.

import { AcodeError } from '../contract/errors.ts';
import type { MountViolation } from '../contract/errors.ts';

/** The error for something that a sandbox may not be given. */
export function refusal(
  path: string,
  violation: MountViolation,
  reason: string,
  more: { remedy?: string; cause?: unknown } = {},
): AcodeError<'ACODE-SBX-003'> {
  const { remedy, cause } = more;
  const context = { path, violation, reason, ...(remedy === undefined ? {} : { remedy }) };
  return new AcodeError('ACODE-SBX-003', context, cause === undefined ? {} : { cause });
}
