// `acode agent`: a coding agent in a sandbox, and which there are.

import { Command, Option } from '@commander-js/extra-typings';
import { count } from '../arguments/values.ts';
import type { Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';

/** The group. */
export function agentCommand(perform: Perform) {
  return new Command('agent')
    .description('Run a whole coding agent in a sandbox, on a fork of the workspace')
    .argument('<agent>', 'claude, codex, gemini, opencode, one of your own file, or a program of the image')
    .usage('[options] <agent> [-- <arguments of the agent…>]')
    .option('-p, --prompt <task>', 'do this task, without a screen')
    .option('--image <reference>', 'image of the sandbox (default: as `acode run` chooses it)')
    .addOption(new Option('--direct', 'write the workspace itself, not a fork').conflicts(['readonly', 'branch']))
    .addOption(new Option('--readonly', 'mount the workspace read-only').conflicts('branch'))
    .option('--branch <name>', 'apply its commits to this new branch at the end, after asking')
    .addOption(new Option('--resume', 'go on with the last session, in its fork').conflicts('fresh'))
    .option('--fresh', 'forget earlier sessions')
    .addOption(
      new Option(
        '--allow <hosts>',
        'hosts that it may reach besides its model: npm:install,github:read; repeatable',
      ).argParser((text: string, before: readonly string[] | undefined) => [
        ...(before ?? []),
        ...text.split(',').map(one => one.trim()),
      ]),
    )
    .addOption(new Option('--budget <limit>', 'what it may use: minutes=30').argParser(budget))
    .action((agent, options, command) =>
      perform(command, async call => (await import('../agents/run.ts')).runAgent(call, agent, options)),
    )
    .addCommand(
      new Command('list')
        .description('List the agents that acode knows')
        .action((_options, command) =>
          perform(command, async call => (await import('../agents/listing.ts')).listAgents(call)),
        ),
    )
    .addCommand(
      new Command('show')
        .description('Show what acode knows of an agent: program, settings, network, what is copied')
        .argument('<agent>', 'the agent')
        .action((agent, _options, command) =>
          perform(command, async call => (await import('../agents/listing.ts')).showAgent(call, agent)),
        ),
    )
    .addCommand(
      new Command('update')
        .description('Pin another version of an agent in your own file')
        .argument('<agent>', 'the agent')
        .option('--to <version>', 'version or tag of the registry', 'latest')
        .option('--yes', 'do it without asking')
        .action((agent, { to, yes }, command) =>
          perform(command, async call => (await import('../agents/listing.ts')).updateAgent(call, agent, { to, yes })),
        ),
    );
}

function budget(text: string): { readonly minutes: number } {
  const [, name, value = ''] = /^(\w+)=(.+)$/.exec(text) ?? [];
  if (name === 'minutes') return { minutes: count(value) };
  throw new UsageError(
    name === 'requests' || name === 'tokens' ? `acode cannot limit ${name}.` : `--budget ${text} is not a limit.`,
    'Limit the time: --budget minutes=30.',
  );
}
