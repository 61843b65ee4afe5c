// `acode sandbox exec` and `acode run`: one command in a fresh sandbox or a persistent one, as if it ran here.

import { Option } from '@commander-js/extra-typings';
import { refuseCreationOptions } from '../arguments/persistent-options.ts';
import { reference } from '../arguments/values.ts';
import { requestCommand, requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call, Perform } from '../call.ts';
import { attend, commandIn, execute } from '../execution/execute.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import { TERMINAL_HELP, executeInTerminal, terminalOption } from '../execution/in-terminal.ts';

/** The command. */
export function execCommand(perform: Perform) {
  return requestCommand('exec')
    .description('Run one command in a fresh sandbox, or with --in in a persistent one')
    .addOption(
      new Option('--in <sandbox>', 'id or name of a persistent sandbox, in place of a fresh one').argParser(reference),
    )
    .addOption(terminalOption())
    .addHelpText('after', `${EXIT_STATUSES}${TERMINAL_HELP}`)
    .action((argv, options, command) =>
      perform(command, call => {
        const flags = flagsOf(command);
        if (options.in !== undefined) refuseCreationOptions(command, options.in);
        if (options.terminal) return executeInTerminal(call, argv, options, flags);
        if (options.in === undefined) return execute(call, argv, options, flags);
        return executeIn(call, options.in, argv, options, flags);
      }),
    );
}

/** What the exit statuses of `exec` and `run` mean. */
const EXIT_STATUSES = `
Exit status: the command’s own; 124 time limit, 125 refused or failed, 126 not executable,
127 not found, 129/130/131/143 stopped by SIGHUP/SIGINT/SIGQUIT/SIGTERM,
141 the output was closed, 2 usage.
Standard input is passed on unless it is a terminal.`;

/** The long options of a command. */
export function flagsOf(command: { readonly options: readonly { readonly long?: string | undefined }[] }): string[] {
  return command.options.flatMap(({ long }) => (long === undefined ? [] : [long]));
}

// A signal ends the command and not the sandbox, which is let go of when the host is closed.
async function executeIn(
  call: Call,
  sandboxId: string,
  argv: readonly string[],
  options: RequestOptions,
  flags: readonly string[],
): Promise<number> {
  const command = commandIn(call, argv, flags);
  const { cwd, env: own } = requestOf(options, await call.place());
  const env = { ...terminalVariables(call), ...own };
  const { timeout: timeoutMs } = options;
  const request = { ...(cwd ? { cwd } : {}), env, ...(timeoutMs ? { timeoutMs } : {}) };
  return call.withHost(acode =>
    attend(call, { command, existing: { timeoutMs }, flags }, async given => {
      const connected = acode.connect(sandboxId, { signal: given.signal });
      const sandbox = await call.progress.during('Asking the engine…', connected);
      return sandbox.commands.spawn(command, { ...request, ...given });
    }),
  );
}

/** The command. */
export function runCommand(perform: Perform) {
  return requestCommand('run')
    .description('Run one command in a fresh sandbox; short for `sandbox exec`')
    .addOption(terminalOption())
    .addHelpText('after', `${EXIT_STATUSES}${TERMINAL_HELP}`)
    .action((argv, options, command) =>
      perform(command, call => {
        const run = options.terminal ? executeInTerminal : execute;
        return run(call, argv, options, flagsOf(command));
      }),
    );
}
