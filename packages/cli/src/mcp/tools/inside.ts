// Work in an open sandbox: finds the sandbox, and lets go of it where it turns out to be gone.

import { AcodeError } from '@acode/sandbox';
import type { InsideSandbox } from '../host.ts';
import type { Session } from '../session.ts';

/** Does something in a sandbox. One that is gone is forgotten, so that the next call without an id opens another. */
export async function inside<Value>(
  session: Session,
  id: string | undefined,
  work: (sandbox: InsideSandbox) => Promise<Value>,
): Promise<Value> {
  const sandbox = await session.sandbox(id);
  try {
    return await work(sandbox);
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-SBX-025')) session.forget(sandbox.id);
    throw error;
  }
}
