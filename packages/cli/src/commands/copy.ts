// `acode sandbox cp`: copies files and directories into a persistent sandbox and out of it.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The command. */
export function copyCommand(perform: Perform) {
  return new Command('cp')
    .description('Copy files and directories into a persistent sandbox, or out of it')
    .argument('<source>', 'a path, or sandbox:path')
    .argument('<target>', 'a path, or sandbox:path; copies into an existing directory')
    .action((source, target, _options, command) =>
      perform(command, async call => {
        const { copy, parseCopyRequest } = await import('./copy-files.ts');
        return copy(call, parseCopyRequest(source, target));
      }),
    );
}
