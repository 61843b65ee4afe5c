// `acode hook`: sends the commands of an agent that runs on this machine into sandboxes.

import { Argument, Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { HOOKED } from '../hooks/agents.ts';

/** The commands. */
export function hookCommands(perform: Perform) {
  return new Command('hook')
    .description('Send the commands of an agent that runs on this machine into sandboxes')
    .addCommand(
      new Command('exec')
        .description('Start an agent whose commands run in sandboxes, whatever the repository’s settings say')
        .addArgument(new Argument('<agent>', 'the agent').choices(HOOKED))
        .usage('[options] <agent> [-- <arguments of the agent…>]')
        .option('--project-settings', 'accept the settings of the repository that run programs')
        .option('--program <file>', 'the agent’s program, if PATH does not lead to it')
        .action((agent, options, command) =>
          perform(command, async call => (await import('../hooks/commands.ts')).execAgent(call, agent, options)),
        ),
    )
    .addCommand(
      new Command('install')
        .description('Add the hook to your own settings of an agent')
        .addArgument(new Argument('<agent>', 'the agent').choices(HOOKED))
        .option('--yes', 'do not ask, because a person already agreed')
        .action((agent, { yes }, command) =>
          perform(command, async call => (await import('../hooks/commands.ts')).install(call, agent, yes === true)),
        ),
    )
    .addCommand(
      new Command('remove')
        .description('Remove the hook from your own settings of an agent')
        .addArgument(new Argument('<agent>', 'the agent').choices(HOOKED))
        .action((agent, _options, command) =>
          perform(command, async call => (await import('../hooks/commands.ts')).remove(call, agent)),
        ),
    )
    .addCommand(
      new Command('status')
        .description('Show which agents have the hook, and what stays outside of it (exit 1: one is not whole)')
        .addArgument(new Argument('[agent]', 'the agent').choices(HOOKED))
        .action((agent, _options, command) =>
          perform(command, async call => (await import('../hooks/commands.ts')).status(call, agent)),
        ),
    )
    .addCommand(
      new Command('auto-approve')
        .description('Answer Claude Code’s hook: approve a few harmless calls of acode, without a question')
        .action((_options, command) =>
          perform(command, async call => (await import('../hooks/auto-approve.ts')).autoApprove(call)),
        ),
    );
}
