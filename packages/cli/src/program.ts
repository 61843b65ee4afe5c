// All commands, put together: what the parser knows, and how its complaints come out.

import { Command } from '@commander-js/extra-typings';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { addCommonOptions } from './arguments/common.ts';
import type { Perform } from './call.ts';
import { auditCommands } from './commands/audit.ts';
import { completionCommand } from './commands/completion.ts';
import { dockerCommands } from './commands/docker.ts';
import { doctorCommand } from './commands/doctor.ts';
import { explainCommand } from './commands/explain.ts';
import { runCommand } from './commands/run.ts';
import { sandboxCommands } from './commands/sandbox.ts';
import { trustCommand } from './commands/trust.ts';
import { uninstallCommand } from './commands/uninstall.ts';
import { exampleText } from './examples.ts';
import { usageErrorFor } from './failure/parse-failure.ts';
import { ownVersion } from './version.ts';

const ABOUT = 'Run untrusted code in a fresh, hardened, single-use sandbox.';
const HELP_WIDTH = 100;

/** What the parser printed, kept until it is known in which form it is wanted. */
export interface Printed {
  text: string;
  /** Columns that help has; null for no bound. */
  readonly width: number | null;
}

/** The program. `printed` receives help and version. */
export function buildProgram(perform: Perform, printed: Printed): CommandUnknownOpts {
  const program = new Command('acode')
    .description(ABOUT)
    .enablePositionalOptions()
    .version(ownVersion(), '-V, --version', 'show the version')
    .addCommand(sandboxCommands(perform))
    .addCommand(runCommand(perform))
    .addCommand(explainCommand(perform))
    .addCommand(trustCommand(perform))
    .addCommand(auditCommands(perform))
    .addCommand(doctorCommand(perform))
    .addCommand(dockerCommands(perform))
    .addCommand(completionCommand(perform))
    .addCommand(uninstallCommand(perform))
    .helpCommand('help [command]', 'Show the help of a command');
  prepare(program, printed);
  return program;
}

/** What the user typed to reach a command: `acode sandbox exec`. */
export function calledAs(command: CommandUnknownOpts): string {
  return command.parent ? `${calledAs(command.parent)} ${command.name()}` : command.name();
}

function prepare(command: CommandUnknownOpts, printed: Printed): void {
  const called = calledAs(command);
  addCommonOptions(command);
  command
    .enablePositionalOptions()
    .helpOption('-h, --help', 'show this help')
    .configureOutput({
      writeOut: text => (printed.text += text),
      writeErr: text => (printed.text += text),
      outputError: () => undefined,
      getOutHelpWidth: () => printed.width ?? HELP_WIDTH,
      getErrHelpWidth: () => printed.width ?? HELP_WIDTH,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .exitOverride(complaint => {
      throw complaint.exitCode === 0 ? complaint : usageErrorFor(complaint, called, printed.text);
    });
  const examples = exampleText(called);
  if (examples !== '') command.addHelpText('after', examples);
  for (const child of command.commands) {
    if (child.commands.length > 0) child.helpCommand(false);
    prepare(child, printed);
  }
}
