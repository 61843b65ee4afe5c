// `acode agent`: a coding agent in a sandbox, and which there are.

import { Command, Option } from '@commander-js/extra-typings';
import type { AgentBudget } from '../agents/session.ts';
import { count } from '../arguments/values.ts';
import type { Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';

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
    .addOption(
      new Option('--budget <limits>', 'what it may use: minutes=30,requests=200,tokens=2m; repeatable').argParser(
        budget,
      ),
    )
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

const BUDGETS: Readonly<Record<keyof AgentBudget, (value: string) => number>> = {
  minutes,
  requests: many,
  tokens: many,
};

function budget(text: string, before: AgentBudget = {}): AgentBudget {
  return text.split(',').reduce((all, one) => {
    const [, name = '', value = ''] = /^(\w+)=(.+)$/.exec(one.trim()) ?? [];
    if (isBudget(name)) return { ...all, [name]: BUDGETS[name](value) };
    throw new UsageError(
      `--budget ${oneLine(one)} is not a limit.`,
      'Limit the time, the requests or the tokens: --budget minutes=30,requests=200,tokens=2m.',
    );
  }, before);
}

function isBudget(name: string): name is keyof AgentBudget {
  return Object.hasOwn(BUDGETS, name);
}

// Also a part of one: a session of a script may be short.
function minutes(text: string): number {
  const value = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : 0;
  return value >= MIN_MINUTES ? value : count(text);
}

const MIN_MINUTES = 0.05;
const TIMES: Readonly<Record<string, number>> = { '': 1, k: 1e3, m: 1e6 };

// Tokens come in millions.
function many(text: string): number {
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)([km]?)$/i.exec(text) ?? [];
  return count(digits === undefined ? text : String(Math.round(Number(digits) * (TIMES[unit.toLowerCase()] ?? 1))));
}
