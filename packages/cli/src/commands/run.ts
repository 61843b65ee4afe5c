// `acode run`: `acode sandbox exec`, short.

import { requestCommand } from '../arguments/request.ts';
import type { Perform } from '../call.ts';
import { execute } from '../execution/execute.ts';
import { EXIT_STATUSES, flagsOf } from './exec.ts';

/** The command. */
export function runCommand(perform: Perform) {
  return requestCommand('run')
    .description('Run one command in a fresh sandbox; short for `sandbox exec`')
    .addHelpText('after', EXIT_STATUSES)
    .action((words, options, command) => perform(command, call => execute(call, words, options, flagsOf(command))));
}
