// `acode completion`: prints the completion script for a shell.

import { Argument, Command } from '@commander-js/extra-typings';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** The command. */
export function completionCommand(perform: Perform) {
  return new Command('completion')
    .description('Print the completion script for a shell')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
    .action((shell, _options, command) => perform(command, call => printScript(call, shell, rootOf(command))));
}

async function printScript(call: Call, shell: (typeof SHELLS)[number], root: CommandUnknownOpts): Promise<number> {
  const { completionScript } = await import('../completion/script.ts');
  const script = completionScript(shell, root);
  await call.print('acode.completion/1', { shell, script }, () => script);
  return 0;
}

function rootOf(command: CommandUnknownOpts): CommandUnknownOpts {
  let at = command;
  while (at.parent) at = at.parent;
  return at;
}
