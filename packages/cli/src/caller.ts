// Caller as background work sees it: its directory and standard error. Separate from call.ts, which starts that work.

import type { Io } from './io.ts';
import type { Look } from './terminal/look.ts';
import type { Output } from './terminal/output.ts';
import type { Place } from './workspace.ts';

/** The call that background work follows. */
export interface Caller {
  readonly io: Io;
  readonly stderr: Output;
  readonly errorLook: Look;
  /** The arguments before any `--`, options too. */
  readonly before: readonly string[];
  /** Directories besides the workspace that the command of this call could write. */
  readonly written: readonly string[];
  /** Whether a hook of an agent sent it. */
  readonly isHook?: boolean;
  place(): Promise<Place>;
  /** Prints to standard error. */
  say(text: string): Promise<void>;
}
