// `acode init`: first steps on a machine.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The command. */
export function initCommand(perform: Perform) {
  return new Command('init')
    .description('Look around, write a first configuration file, check this machine, and show what to try')
    .option('--yes', 'write the file without asking')
    .addHelpText(
      'after',
      `
The file is your own, with comments; nothing in it loosens anything. One that exists is never changed.
Exit status: 0 if the checks of acode doctor pass, 1 if one fails, 2 usage.`,
    )
    .action(({ yes }, command) =>
      perform(command, async call => (await import('../init/init.ts')).init(call, yes === true)),
    );
}
