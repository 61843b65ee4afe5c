// `acode scan-workspace`: the process that goes on with scans when their command has ended. Started by acode itself, and not shown in help.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { SCAN_COMMAND } from '../scans/directory.ts';

/** The command. */
export function scanWorkspaceCommand(perform: Perform) {
  return new Command(SCAN_COMMAND).action((_, command) =>
    perform(command, async call => (await import('../scans/scan-workspace.ts')).scanWorkspace(call)),
  );
}
