// `acode sandbox exec` and `acode run`: one command in a fresh sandbox or a persistent one, as if it ran here.

import { Option } from '@commander-js/extra-typings';
import { reference } from '../arguments/values.ts';
import { artifactOption, requestCommand } from '../arguments/request.ts';
import type { Perform } from '../call.ts';
import { execute } from '../execution/execute.ts';
import { TERMINAL_HELP, executeInTerminal, terminalOption } from '../execution/in-terminal.ts';
import { mouseOption, refuseMouse } from '../execution/terminal-options.ts';

const MOUSE = 'with -t: let the program receive mouse events';

/** The command. */
export function execCommand(perform: Perform) {
  return requestCommand('exec')
    .description('Run one command in a fresh sandbox, or in a persistent one that is named before `--`')
    .usage('[options] "<line>"  |  [options] [sandbox] -- <program> [arguments…]')
    .addOption(
      new Option('--in <sandbox>', 'run in this persistent sandbox (id or name); for a quoted line').argParser(
        reference,
      ),
    )
    .addOption(artifactOption())
    .addOption(terminalOption())
    .addOption(mouseOption(MOUSE))
    .addHelpText('after', `${EXIT_STATUSES}${TERMINAL_HELP}`)
    .action((argv, options, command) =>
      perform(command, async call => {
        const flags = flagsOf(command);
        refuseMouse(options);
        // One line, or only what follows `--`: a fresh sandbox. Anything else may name a persistent one.
        if (options.in === undefined && argv.length === (call.argv === null ? 1 : 0))
          return (options.terminal ? executeInTerminal : execute)(call, argv, options, flags);
        const { executeNamed } = await import('./exec-in.ts');
        return executeNamed(call, { argv, command, flags, options: () => command.opts() });
      }),
    );
}

/** What the exit statuses of `exec` and `run` mean. */
const EXIT_STATUSES = `
Exit status: the command’s own; 124 time limit, 125 refused or failed, 126 not executable, 127 not found, 129/130/131/143 stopped by SIGHUP/SIGINT/SIGQUIT/SIGTERM, 141 the output was closed, 2 usage.
Standard input is passed on unless it is a terminal.`;

/** The long options of a command. */
export function flagsOf(command: { readonly options: readonly { readonly long?: string | undefined }[] }): string[] {
  return command.options.flatMap(({ long }) => (long === undefined ? [] : [long]));
}

/** The command. */
export function runCommand(perform: Perform) {
  return requestCommand('run')
    .description('Run one command in a fresh sandbox; short for `sandbox exec`')
    .addOption(artifactOption())
    .addOption(terminalOption())
    .addOption(mouseOption(MOUSE))
    .addOption(
      new Option(
        '--learn [how]',
        'ask which refused hosts to allow, and run it again in forks; =open asks nothing',
      ).choices(['ask', 'open'] as const),
    )
    .addHelpText('after', `${EXIT_STATUSES}${TERMINAL_HELP}`)
    .action((argv, options, command) =>
      perform(command, async call => {
        refuseMouse(options);
        if (options.learn !== undefined) {
          const { learn } = await import('../execution/learn.ts');
          return learn(call, argv, { ...options, isOpen: options.learn === 'open' }, flagsOf(command));
        }
        const run = options.terminal ? executeInTerminal : execute;
        return run(call, argv, options, flagsOf(command));
      }),
    );
}
