// `acode scan-workspace`: the process that finishes scans after their command has ended. acode starts it; help does not show it.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { SCAN_COMMAND } from '../scans/directory.ts';

/** The command. */
export function scanWorkspaceCommand(perform: Perform) {
  return new Command(SCAN_COMMAND).action((_, command) =>
    perform(command, async call => (await import('../scans/scan-workspace.ts')).scanWorkspace(call)),
  );
}
