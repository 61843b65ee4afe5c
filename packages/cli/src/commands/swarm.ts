// `acode swarm`: a folder of task files becomes branches, each task in a sandbox and a fork of its own.

import { Command, Option } from '@commander-js/extra-typings';
import { cpus, size, texts } from '../arguments/sandbox-values.ts';
import { count, duration } from '../arguments/values.ts';
import type { Perform } from '../call.ts';

const WHICH = ['[swarm]', 'id of a swarm (default: the latest of this workspace)'] as const;
const swarm = (): Option<'--swarm <id>'> =>
  new Option('--swarm <id>', 'id of a swarm (default: the latest of this workspace)');

/** The group. */
export function swarmCommands(perform: Perform) {
  return new Command('swarm')
    .description('Run many task files at once, each in a sandbox of its own, and get branches')
    .enablePositionalOptions()
    .addCommand(runCommand(perform))
    .addCommand(resumeCommand(perform))
    .addCommand(statusCommand(perform))
    .addCommand(listCommand(perform))
    .addCommand(askCommand(perform, 'stop', 'End tasks that run, and begin no other', '[task]'))
    .addCommand(askCommand(perform, 'pause', 'Begin no further task; those that run go on'))
    .addCommand(askCommand(perform, 'continue', 'Begin tasks again after a pause'))
    .addCommand(
      askCommand(perform, 'retry', 'Begin a task again that has ended, at its first unfinished story', '<task>'),
    )
    .addCommand(attachCommand(perform))
    .addCommand(logsCommand(perform))
    .addCommand(reviewCommand(perform))
    .addCommand(mergeCommand(perform))
    .addCommand(addCommand(perform))
    .addCommand(repairCommand(perform))
    .addCommand(discardCommand(perform))
    .addCommand(orchestrateCommand(perform), { hidden: true });
}

function runCommand(perform: Perform) {
  return new Command('run')
    .description('Run the task files of this workspace (.agent/tasks), or some of them')
    .argument('[file...]', 'task files, or names of tasks (default: all)')
    .option('--image <image>', 'image of every task; it needs git and Node.js 18 or newer')
    .option('--agent <agent>', 'agent of tasks that name none: claude, codex, gemini, opencode, or one of yours')
    .option('--command <line>', 'command in place of an agent; it reads the story on standard input')
    .addOption(new Option('--setup <line>', 'command that runs once, before the tasks; repeatable').argParser(texts))
    .addOption(
      new Option('-p, --parallel <number>', 'tasks at once (default: as many as memory and CPUs allow)').argParser(
        count,
      ),
    )
    .addOption(new Option('--memory <size>', 'memory of each task').argParser(size))
    .addOption(new Option('--cpus <number>', 'CPUs of each task').argParser(cpus))
    .addOption(new Option('--pids <number>', 'processes of each task').argParser(count))
    .addOption(new Option('--timeout <time>', 'time limit of each task, such as 90m (default: 4h)').argParser(duration))
    .addOption(new Option('--attempts <number>', 'most attempts at each story').argParser(count))
    .addOption(
      new Option('--allow <host>', 'host or preset that tasks may reach; repeatable (default: no network)').argParser(
        texts,
      ),
    )
    .option('--strict-sizing', 'refuse where the machine is too small')
    .option('--dry-run', 'show tasks, sizes and limits, and run nothing')
    .option('--detach', 'return once the swarm has begun')
    .option('--yes', 'do not ask')
    .action((files, options, command) =>
      perform(command, async call => (await import('../swarm/run.ts')).runSwarm(call, files, options)),
    );
}

function resumeCommand(perform: Perform) {
  return new Command('resume')
    .description('Continue a swarm whose tasks have not all ended, each at its first unfinished story')
    .argument(...WHICH)
    .option('--detach', 'return once the swarm goes on')
    .action((id, { detach }, command) =>
      perform(command, async call => (await import('../swarm/run.ts')).resumeSwarm(call, id, detach === true)),
    );
}

function statusCommand(perform: Perform) {
  return new Command('status')
    .description('Show the tasks of a swarm, and what they do')
    .argument(...WHICH)
    .option('--follow', 'a live board of the tasks; lines where the output is not a terminal')
    .action((id, { follow }, command) =>
      perform(command, async call => (await import('../swarm/view.ts')).showStatus(call, id, follow === true)),
    );
}

function listCommand(perform: Perform) {
  return new Command('list')
    .description('List the swarms of this workspace')
    .option('--all', 'those of every workspace')
    .action(({ all }, command) =>
      perform(command, async call => (await import('../swarm/view.ts')).listSwarms(call, all === true)),
    );
}

function askCommand(perform: Perform, op: 'stop' | 'pause' | 'continue' | 'retry', about: string, argument?: string) {
  const command = new Command(op).description(about).addOption(swarm());
  if (argument !== undefined) command.argument(argument, 'name of a task');
  return command.action((...given: unknown[]) => {
    const task = typeof given[0] === 'string' ? given[0] : undefined;
    return perform(command, async call =>
      (await import('../swarm/control.ts')).askSwarm(call, op, { id: command.opts().swarm, task }),
    );
  });
}

function attachCommand(perform: Perform) {
  return new Command('attach')
    .description('Work with the agent of a task at this terminal; afterwards the task goes on without it')
    .argument('<task>', 'name of a task')
    .addOption(swarm())
    .action((task, { swarm: id }, command) =>
      perform(command, async call => (await import('../swarm/attach.ts')).attach(call, { id, task })),
    );
}

function logsCommand(perform: Perform) {
  return new Command('logs')
    .description('Print what the programs of a task printed; `setup` for the setup')
    .argument('<task>', 'name of a task')
    .addOption(swarm())
    .action((task, { swarm: id }, command) =>
      perform(command, async call => (await import('../swarm/view.ts')).showLog(call, id, task)),
    );
}

function reviewCommand(perform: Perform) {
  return new Command('review')
    .description('Show what a task changed; accept what is risky in it, or send it back with a comment')
    .argument('[task]', 'name of a task (default: what needs a review)')
    .addOption(swarm())
    .option('--stat', 'only the files, without the patch')
    .option('--comment <text>', 'tell the task something: its next story, or more of the one that it could not finish')
    .option('--accept-risk <rules>', 'make the branch, accepting risky changes by rule; or all')
    .option('--protected <path...>', 'protected paths that the branch may change')
    .option('--yes', 'do not ask, because a person already agreed')
    .action((task, options, command) =>
      perform(command, async call => (await import('../swarm/review.ts')).review(call, task, options)),
    );
}

function mergeCommand(perform: Perform) {
  return new Command('merge')
    .description('Merge the branches of completed tasks into one branch; merging and testing run in a sandbox')
    .addOption(swarm())
    .option('--check', 'only say what would be merged, and what conflicts')
    .option('--into <branch>', 'branch that gets the commits; no work tree may have it checked out')
    .option('--accept-risk <rules>', 'accept risky changes by rule; or all')
    .option('--protected <path...>', 'protected paths that the branch may change')
    .option('--yes', 'do not ask, because a person already agreed')
    .action((options, command) =>
      perform(command, async call => (await import('../swarm/review.ts')).merge(call, options)),
    );
}

function addCommand(perform: Perform) {
  return new Command('add')
    .description('Add a task file from standard input: JSON, or Markdown with front matter')
    .argument('<name>', 'name of the task')
    .argument('[-]', 'standard input')
    .action((name, _from, _options, command) =>
      perform(command, async call => (await import('../swarm/control.ts')).add(call, name)),
    );
}

function repairCommand(perform: Perform) {
  return new Command('repair')
    .description('Write .agent/swarm-state.json again from the record in your state directory')
    .argument(...WHICH)
    .action((id, _options, command) =>
      perform(command, async call => (await import('../swarm/control.ts')).repair(call, id)),
    );
}

function discardCommand(perform: Perform) {
  return new Command('discard')
    .description('Remove a swarm that has ended, with its forks; its branches stay')
    .argument(...WHICH)
    .option('--yes', 'do not ask')
    .action((id, { yes }, command) =>
      perform(command, async call => (await import('../swarm/control.ts')).discard(call, id, yes === true)),
    );
}

function orchestrateCommand(perform: Perform) {
  return new Command('orchestrate')
    .description('Be the orchestrator of a swarm; acode swarm run starts it')
    .argument('<swarm>', 'id of a swarm')
    .action((id, _options, command) =>
      perform(command, async call => (await import('../swarm/orchestrate.ts')).orchestrate(call, id)),
    );
}
