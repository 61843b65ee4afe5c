// `acode sandbox logs`: shows the output of runs, past and present.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';

/** The command. */
export function logsCommand(perform: Perform) {
  return new Command('logs')
    .description('Show the output of a run or a persistent sandbox; without a name, list the past runs')
    .argument('[ref]', 'name or id of a sandbox')
    .option('-f, --follow', 'print what comes too, until the sandbox ends or Ctrl-C')
    .action((reference, { follow = false }, command) =>
      perform(command, async call => {
        if (follow && reference === undefined)
          throw new UsageError(
            '--follow needs a sandbox.',
            'Name it: `acode sandbox logs --follow <ref>`. `acode sandbox list` shows the names and ids of those that exist.',
          );
        const { followLog, listLogs, showLog } = await import('./logs-view.ts');
        if (reference === undefined) return listLogs(call);
        return follow ? followLog(call, reference) : showLog(call, reference);
      }),
    );
}
