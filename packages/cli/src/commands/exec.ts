// `acode sandbox exec` and `acode run`: one command in a fresh sandbox or a persistent one, as if it ran here.

import { AcodeError } from '@acode/sandbox';
import { Option } from '@commander-js/extra-typings';
import { quoted, sandboxBefore } from '../arguments/command-arguments.ts';
import { refuseCreationOptions } from '../arguments/persistent-options.ts';
import { reference } from '../arguments/values.ts';
import { requestCommand, requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call, Perform } from '../call.ts';
import { attend, commandIn, execute } from '../execution/execute.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import { UsageError } from '../failure/usage.ts';
import { TERMINAL_HELP, executeInTerminal, terminalOption } from '../execution/in-terminal.ts';

/** The command. */
export function execCommand(perform: Perform) {
  return requestCommand('exec')
    .description('Run one command in a fresh sandbox, or in a persistent one that is named before `--`')
    .usage('[options] "<line>"  |  [options] [sandbox] -- <program> [arguments…]')
    .addOption(
      new Option('--in <sandbox>', 'persistent sandbox by id or name, where the command is a line').argParser(
        reference,
      ),
    )
    .addOption(terminalOption())
    .addHelpText('after', `${EXIT_STATUSES}${TERMINAL_HELP}`)
    .action((argv, options, command) =>
      perform(command, call => {
        const flags = flagsOf(command);
        const { sandbox, rest } = sandboxOf(call, argv, options.in);
        if (sandbox !== undefined) refuseCreationOptions(command, sandbox);
        if (options.terminal) return executeInTerminal(call, rest, { ...options, in: sandbox }, flags);
        if (sandbox === undefined) return execute(call, rest, options, flags);
        return executeIn(call, sandbox, rest, options, flags, options.in === undefined);
      }),
    );
}

interface Named {
  readonly sandbox: string | undefined;
  /** The arguments before `--` that are not the sandbox. */
  readonly rest: readonly string[];
}

// As with the other subcommands, the sandbox may stand first. Without `--` an argument is a line for the shell.
function sandboxOf({ argv: after, called }: Call, argv: readonly string[], named: string | undefined): Named {
  const [first, ...more] = argv;
  if (after === null || first === undefined || more.length > 0) return { sandbox: named, rest: argv };
  if (named !== undefined)
    throw new UsageError(
      `${quoted(first)} and --in ${quoted(named)} both name a sandbox.`,
      `Leave one out: \`${called} ${quoted(named)} -- ${(after ?? []).map(quoted).join(' ')}\`.`,
    );
  return { sandbox: sandboxBefore(first, after, called), rest: [] };
}

/** What the exit statuses of `exec` and `run` mean. */
const EXIT_STATUSES = `
Exit status: the command’s own; 124 time limit, 125 refused or failed, 126 not executable, 127 not found, 129/130/131/143 stopped by SIGHUP/SIGINT/SIGQUIT/SIGTERM, 141 the output was closed, 2 usage.
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
  isFirst: boolean,
): Promise<number> {
  const command = commandIn(call, argv, flags);
  const { cwd, env: own } = await requestOf(options, await call.place(), call.io.env);
  const env = { ...terminalVariables(call), ...own };
  const { timeout: timeoutMs } = options;
  const request = { ...(cwd ? { cwd } : {}), env, ...(timeoutMs ? { timeoutMs } : {}) };
  return call.withHost(acode =>
    attend(call, { command, existing: { timeoutMs }, flags }, async given => {
      const connected = acode.connect(sandboxId, { signal: given.signal }).catch((error: unknown) => {
        throw isFirst ? orCommand(error, sandboxId, call) : error;
      });
      const sandbox = await call.progress.during('Asking the engine…', connected);
      return sandbox.commands.spawn(command, { ...request, ...given });
    }),
  );
}

// What was meant may have been the program of a command.
function orCommand(error: unknown, word: string, { called, argv }: Call): unknown {
  if (!(error instanceof AcodeError && error.is('ACODE-CTN-012'))) return error;
  const remedy = `\`acode sandbox list\` shows the sandboxes that exist. For a program in a fresh one: \`${called} -- ${[word, ...(argv ?? [])].map(quoted).join(' ')}\`.`;
  return new AcodeError('ACODE-CTN-012', { ...error.context, remedy }, { cause: error });
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
