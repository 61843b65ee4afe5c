// Waits for work that goes on without its caller: a create under way cannot be taken back, and others may wait for it too.

import { AcodeError } from '../../contract/errors.ts';

/** What comes of the work; a caller who is cancelled leaves at once, and the work goes on. */
export async function unlessCancelled<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  signal.throwIfAborted();
  let leave: () => void = () => undefined;
  const aborted = new Promise<never>((_, reject) => {
    leave = () => reject(new AcodeError('ACODE-SBX-014', {}, { cause: signal.reason }));
    signal.addEventListener('abort', leave, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    // A listener that stays keeps its signal, and all that hangs on it, for as long as the session lasts.
    signal.removeEventListener('abort', leave);
  }
}
