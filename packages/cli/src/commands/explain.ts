// `acode explain`: shows the policy of a command without running it.

import { requestCommand } from '../arguments/request.ts';
import type { Perform } from '../call.ts';
import { flagsOf } from './exec.ts';

/** The command. */
export function explainCommand(perform: Perform) {
  return requestCommand('explain')
    .description('Show what a command would be allowed to do and who decided; runs nothing')
    .action((argv, options, command) =>
      perform(command, async call =>
        (await import('./explain-view.ts')).explain(call, argv, options, flagsOf(command)),
      ),
    );
}
