// `acode run`: `acode sandbox exec`, short.

import { requestCommand } from '../arguments/request.ts';
import type { Perform } from '../call.ts';
import { execute } from '../execution/execute.ts';
import { TERMINAL_HELP, executeInTerminal, terminalOption } from '../execution/in-terminal.ts';
import { EXIT_STATUSES, flagsOf } from './exec.ts';

/** The command. */
export function runCommand(perform: Perform) {
  return requestCommand('run')
    .description('Run one command in a fresh sandbox; short for `sandbox exec`')
    .addOption(terminalOption())
    .addHelpText('after', `${EXIT_STATUSES}${TERMINAL_HELP}`)
    .action((words, options, command) =>
      perform(command, call => {
        const run = options.terminal ? executeInTerminal : execute;
        return run(call, words, options, flagsOf(command));
      }),
    );
}
