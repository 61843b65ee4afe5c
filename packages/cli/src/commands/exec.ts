// `acode sandbox exec`: one command in a fresh sandbox, as if it ran here.

import { requestCommand } from '../arguments/request.ts';
import type { Perform } from '../call.ts';
import { execute } from '../execution/execute.ts';

/** The command. */
export function execCommand(perform: Perform) {
  return requestCommand('exec')
    .description('Run one command in a fresh sandbox')
    .addHelpText('after', EXIT_STATUSES)
    .action((words, options, command) => perform(command, call => execute(call, words, options, flagsOf(command))));
}

/** What the exit statuses of `exec` and `run` mean. */
export const EXIT_STATUSES = `
Exit status: the command’s own; 124 time limit, 125 refused or failed, 126 not executable,
127 not found, 129/130/131/143 stopped by SIGHUP/SIGINT/SIGQUIT/SIGTERM,
141 nobody reads the output, 2 usage.
Standard input is passed on unless it is a terminal.`;

/** The long options of a command. */
export function flagsOf(command: { readonly options: readonly { readonly long?: string | undefined }[] }): string[] {
  return command.options.flatMap(({ long }) => (long === undefined ? [] : [long]));
}
