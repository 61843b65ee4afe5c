// `acode fork`: the forks of a workspace, what commands changed in them, and how changes are applied or taken back.

import { Command, Option } from '@commander-js/extra-typings';
import { count, reference } from '../arguments/values.ts';
import type { Perform } from '../call.ts';

const WHICH = ['[fork]', 'id or name of a fork (default: the current one of this workspace)'] as const;

/** The group. */
export function forkCommands(perform: Perform) {
  return new Command('fork')
    .description('Show what commands changed in a fork of the workspace, apply it, or take it back')
    .enablePositionalOptions()
    .addCommand(forkListCommand(perform))
    .addCommand(forkDiffCommand(perform))
    .addCommand(forkApplyCommand(perform))
    .addCommand(forkHistoryCommand(perform))
    .addCommand(forkUndoCommand(perform))
    .addCommand(forkSnapshotCommand(perform))
    .addCommand(forkCreateCommand(perform))
    .addCommand(forkExportCommand(perform))
    .addCommand(forkImportCommand(perform))
    .addCommand(forkDiscardCommand(perform));
}

function forkListCommand(perform: Perform) {
  return new Command('list')
    .description('List the forks of this workspace')
    .option('--all', 'those of every workspace')
    .action(({ all }, command) =>
      perform(command, async call => (await import('./fork-view.ts')).listForks(call, all === true)),
    );
}

function forkDiffCommand(perform: Perform) {
  return new Command('diff')
    .description('Show what commands changed in a fork: A added, M changed, D deleted')
    .argument(...WHICH)
    .addOption(new Option('--stat', 'with sizes and modes').conflicts(['patch', 'nameOnly']))
    .addOption(new Option('--patch', 'as a patch that `git apply --binary` takes').conflicts('nameOnly'))
    .option('--name-only', 'only the paths, one on each line')
    .addOption(acceptRisk())
    .action((fork, options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).showDiff(call, { fork }, options)),
    );
}

/** `acode sandbox diff`. */
export function sandboxDiffCommand(perform: Perform) {
  return new Command('diff')
    .description('Show what commands changed in the fork of a persistent sandbox, which is paused meanwhile')
    .argument('<sandbox>', 'id or name of a persistent sandbox', reference)
    .addOption(new Option('--stat', 'with sizes and modes').conflicts('nameOnly'))
    .option('--name-only', 'only the paths, one on each line')
    .action((sandbox, options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).showDiff(call, { sandbox }, options)),
    );
}

/** `acode sandbox snapshot`. */
export function sandboxSnapshotCommand(perform: Perform) {
  return new Command('snapshot')
    .description('Make a fork of what the commands of a persistent sandbox have changed so far, to go back to')
    .argument('<sandbox>', 'id or name of a persistent sandbox; it is paused meanwhile', reference)
    .argument('[name]', 'name of the new fork (default: only an id)')
    .action((sandbox, name, _options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).snapshotSandbox(call, sandbox, name)),
    );
}

/** `acode sandbox apply`. */
export function sandboxApplyCommand(perform: Perform) {
  return withApplyOptions(new Command('apply'))
    .description('Apply what commands changed in the fork of a persistent sandbox: all of it or nothing')
    .argument('<sandbox>', 'id or name of a persistent sandbox; it is paused meanwhile', reference)
    .action((sandbox, options, command) =>
      perform(command, async call => (await import('./fork-apply.ts')).apply(call, { sandbox }, options)),
    );
}

function withApplyOptions(command: Command) {
  return command
    .addOption(
      new Option('--only <path>', 'only this path, and what is below it; repeatable').argParser(
        (path, before: readonly string[] | undefined) => [...(before ?? []), path],
      ),
    )
    .addOption(new Option('-i, --interactive', 'ask about each file').conflicts(['only', 'check', 'yes']))
    .option('--check', 'only say what would be applied, and what conflicts')
    .option('--diff <id>', 'stop if the changes are not those of this diff')
    .addOption(acceptRisk())
    .option('--yes', 'do it without asking; the audit log records the calling program');
}

function acceptRisk() {
  return new Option('--accept-risk <rules>', 'accept risky changes by rule: package-scripts,ci-file; or all');
}

function forkApplyCommand(perform: Perform) {
  return withApplyOptions(new Command('apply'))
    .description('Apply what commands changed in a fork to the workspace: all of it or nothing')
    .argument(...WHICH)
    .addOption(
      new Option(
        '--branch <name>',
        'instead, add its commits as a new branch (without commits: one commit of its changes)',
      ).conflicts(['only', 'interactive', 'check', 'diff', 'resume', 'rollback']),
    )
    .option('--image <image>', 'with --branch: image that has git')
    .option('--message <text>', 'with --branch: message of the commit')
    .option('--protected <path...>', 'with --branch: protected paths that it may change')
    .addOption(new Option('--resume', 'finish an interrupted apply').conflicts('rollback'))
    .option('--rollback', 'undo an interrupted apply')
    .action((fork, options, command) =>
      perform(command, async call =>
        options.branch === undefined
          ? (await import('./fork-apply.ts')).apply(call, { fork }, options)
          : (await import('./fork-branch.ts')).branch(call, fork, options.branch, options),
      ),
    );
}

function forkHistoryCommand(perform: Perform) {
  return new Command('history')
    .description('List the commands whose changes a fork has')
    .argument(...WHICH)
    .action((fork, _options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).showHistory(call, fork)),
    );
}

function forkUndoCommand(perform: Perform) {
  return new Command('undo')
    .description('Take back what the last commands changed in a fork')
    .argument(...WHICH)
    .addOption(new Option('-n, --commands <number>', 'number of commands to take back').argParser(count).default(1))
    .addOption(new Option('--to <snapshot>', 'all commands since a snapshot').conflicts('commands'))
    .action((fork, options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).undo(call, fork, options)),
    );
}

function forkSnapshotCommand(perform: Perform) {
  return new Command('snapshot')
    .description('Give a name to a fork as it is now')
    .argument('<name>', 'name of the snapshot')
    .argument(...WHICH)
    .action((name, fork, _options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).snapshot(call, name, fork)),
    );
}

function forkCreateCommand(perform: Perform) {
  return new Command('create')
    .description('Make a fork of what a snapshot has')
    .argument('[name]', 'name of the new fork (default: only an id)')
    .requiredOption('--from <snapshot>', 'snapshot of the current fork; <fork>@<snapshot> of another')
    .action((name, { from }, command) =>
      perform(command, async call => (await import('./fork-view.ts')).create(call, from, name)),
    );
}

function forkExportCommand(perform: Perform) {
  return new Command('export')
    .description('Write the changes of a fork to a file, for `acode fork import`')
    .argument(...WHICH)
    .option('-o, --output <file>', 'file to make (default: standard output, unless it is a terminal)')
    .action((fork, { output }, command) =>
      perform(command, async call => (await import('./fork-view.ts')).exportFork(call, fork, output)),
    );
}

function forkImportCommand(perform: Perform) {
  return new Command('import')
    .description('Make a fork of this workspace from what `acode fork export` wrote')
    .argument('<file>', 'the file')
    .option('--name <name>', 'name of the new fork (default: only an id)')
    .action((file, { name }, command) =>
      perform(command, async call => (await import('./fork-view.ts')).importFork(call, file, name)),
    );
}

function forkDiscardCommand(perform: Perform) {
  return new Command('discard')
    .description('Remove a fork with everything that commands changed in it')
    .argument(...WHICH)
    .action((fork, _options, command) =>
      perform(command, async call => (await import('./fork-view.ts')).discard(call, fork)),
    );
}
