// A place in the audit log that was noted elsewhere.

import type { AuditHead } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

/** The heads so far and one more, written `number:hash` as `acode audit verify` prints it. */
export function head(text: string, before: readonly AuditHead[] = []): AuditHead[] {
  const found = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text);
  if (!found)
    throw new InvalidArgumentError(
      'Expected number:hash with all 64 digits of the hash, as `acode audit verify` prints it.',
    );
  return [...before, { seq: Number(found[1]), hash: found[2] ?? '' }];
}
