// `acode build` and `acode test`: the project’s own command for its language, in a fresh sandbox.

import { Option } from '@commander-js/extra-typings';
import { quoted } from '../arguments/command-arguments.ts';
import { optionsCommand } from '../arguments/request.ts';
import { count } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { TOOL_NAMES } from '../project/names.ts';
import type { Job } from '../project/names.ts';
import { flagsOf } from './exec.ts';

const ABOUT: Readonly<Record<Job, string>> = {
  build: 'Build this project in a fresh sandbox, with its own command (npm, cargo, go, make, …)',
  test: 'Test this project in a fresh sandbox, with its own command (npm, pytest, cargo, go, …)',
};

/** The command for a job. */
export function projectCommands(perform: Perform, job: Job) {
  return optionsCommand(job)
    .description(ABOUT[job])
    .argument('[words...]')
    .usage(`[options] [-- <arguments of the ${job} command…>]`)
    .optionsGroup('Project options:')
    .addOption(new Option('--with <tool>', 'tool to use, if the files here mean several').choices(TOOL_NAMES))
    .option('--parallel', 'one sandbox for each package of a workspace; a table at the end')
    .addOption(new Option('--jobs <number>', 'with --parallel: how many sandboxes at a time').argParser(count))
    .action((words, options, command) =>
      perform(command, async call => {
        refuseWords(call, words);
        if (options.jobs !== undefined && !options.parallel)
          throw new UsageError('--jobs needs --parallel.', 'Add --parallel, or leave --jobs out.');
        const { performJob } = await import('../project/perform.ts');
        return performJob(call, job, options, flagsOf(command));
      }),
    );
}

function refuseWords({ called }: Call, words: readonly string[]): void {
  if (words.length === 0) return;
  throw new UsageError(
    `\`${called}\` takes its arguments after \`--\`.`,
    `Write \`${called} -- ${words.map(quoted).join(' ')}\`.`,
  );
}
