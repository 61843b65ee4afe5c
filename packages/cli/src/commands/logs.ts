// `acode sandbox logs`: shows the output of runs, past and present.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The command. */
export function logsCommand(perform: Perform) {
  return new Command('logs')
    .description('Show the output of a run or a persistent sandbox; without a name, list the past runs')
    .argument('[ref]', 'name or id of a sandbox')
    .option('-f, --follow', 'keep printing new output until the sandbox ends or you press Ctrl-C')
    .action((reference, { follow = false }, command) =>
      perform(command, async call => {
        const { followLog, listLogs, showLog } = await import('./logs-view.ts');
        if (follow) return followLog(call, reference);
        return reference === undefined ? listLogs(call) : showLog(call, reference);
      }),
    );
}
