// Progress while a sandbox is created or its image is pulled.

import type { Acode } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { PullDisplay } from '../terminal/pull-display.ts';

/** Waits for a sandbox, or for what runs in it, and shows what it waits for. */
export async function preparing<Value>(call: Call, acode: Acode, work: Promise<Value>): Promise<Value> {
  const display = new PullDisplay(call);
  using _progress = acode.events.on('ImagePullProgress', display.hear);
  using _pulled = acode.events.on('ImagePulled', () => display.end());
  // Awaited here: who listens is let go of at the end of this.
  return await call.progress.during(() => display.text('Preparing the sandbox…'), work);
}
