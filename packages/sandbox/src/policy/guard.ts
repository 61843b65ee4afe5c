// The root guard: nothing untrusted is ever started by uid 0, before an engine or a workspace is touched.

import { AcodeError } from '../contract/errors.ts';

/** Refuses uid 0 unless the user’s own configuration says otherwise. */
export function assertNotRoot(uid: number, allowRoot: boolean): void {
  if (uid === 0 && !allowRoot) throw new AcodeError('ACODE-SBX-011', { uid });
}
