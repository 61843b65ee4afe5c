// Command line parser: all commands, and the errors of the parser.

import { Command } from '@commander-js/extra-typings';
import type { CommandUnknownOpts, CommanderError } from '@commander-js/extra-typings';
import { addCommonOptions } from './arguments/common.ts';
import type { Perform } from './call.ts';
import { agentCommand } from './commands/agent.ts';
import { auditCommands } from './commands/audit.ts';
import { changesCommand } from './commands/changes.ts';
import { completionCommand } from './commands/completion.ts';
import { configCommands } from './commands/config.ts';
import { dockerCommands, sandboxCommands } from './commands/sandbox.ts';
import { doctorCommand } from './commands/doctor.ts';
import { egressCommands } from './commands/egress.ts';
import { explainCommand } from './commands/explain.ts';
import { fleetCommands } from './commands/fleet.ts';
import { forkCommands } from './commands/fork.ts';
import { hookCommands } from './commands/hook.ts';
import { initCommand } from './commands/init.ts';
import { loginCommand, logoutCommand } from './commands/login.ts';
import { maskCommands } from './commands/masks.ts';
import { mcpCommand } from './commands/mcp.ts';
import { projectCommands } from './commands/project.ts';
import { runCommand } from './commands/exec.ts';
import { scanWorkspaceCommand } from './commands/scan-workspace.ts';
import { serveCommand } from './commands/serve.ts';
import { statsCommand } from './commands/stats.ts';
import { swarmCommands } from './commands/swarm.ts';
import { trustCommand } from './commands/trust.ts';
import { uninstallCommand } from './commands/uninstall-command.ts';
import { gateCommand, workerCommand } from './commands/worker.ts';
import type { Complained } from './failure/parse-failure.ts';
import { ownVersion } from './version.ts';
import { hanging } from './terminal/wrap.ts';

const ABOUT = 'Run untrusted code in a fresh, hardened, single-use sandbox.';
/** Columns of help where the terminal has no bound. */
export const HELP_WIDTH = 100;
// Beside the names of options; with less, a description stands below its option.
const MIN_DESCRIPTION = 36;
const BELOW = ' '.repeat(6);
const COMPLETION = 'completion';

/** What the parser printed, kept until it is known in which form it is wanted. */
export interface Printed {
  text: string;
  /** The command whose help it is, as the user calls it. Its examples are added where the text is printed. */
  helpOf?: string;
  /** Columns that help has; null for no bound. */
  readonly width: number | null;
}

/** A complaint of the parser’s, before it is a usage error: what explains it is loaded for it alone. */
export class ParseComplaint extends Error {
  readonly complaint: CommanderError;
  readonly about: Complained;

  constructor(complaint: CommanderError, about: Complained) {
    super(complaint.message, { cause: complaint });
    this.complaint = complaint;
    this.about = about;
  }
}

/** The program. `printed` receives help and version. */
export function buildProgram(perform: Perform, printed: Printed): CommandUnknownOpts {
  const program = new Command('acode')
    .description(ABOUT)
    .enablePositionalOptions()
    .version(ownVersion(), '-V, --version', 'show the version')
    .commandsGroup('Run:')
    .addCommand(runCommand(perform))
    .addCommand(agentCommand(perform))
    .addCommand(projectCommands(perform, 'build'))
    .addCommand(projectCommands(perform, 'test'))
    .addCommand(swarmCommands(perform))
    .addCommand(fleetCommands(perform))
    .addCommand(sandboxCommands(perform))
    .commandsGroup('See what commands did, and decide:')
    .addCommand(forkCommands(perform))
    .addCommand(changesCommand(perform))
    .addCommand(egressCommands(perform))
    .addCommand(auditCommands(perform))
    .addCommand(statsCommand(perform))
    .commandsGroup('Say what commands may do:')
    .addCommand(explainCommand(perform))
    .addCommand(configCommands(perform))
    .addCommand(trustCommand(perform))
    .addCommand(maskCommands(perform))
    .addCommand(loginCommand(perform))
    .addCommand(logoutCommand(perform))
    .commandsGroup('For agents that stay outside:')
    .addCommand(mcpCommand(perform))
    .addCommand(hookCommands(perform))
    .commandsGroup('This machine:')
    .addCommand(initCommand(perform))
    .addCommand(doctorCommand(perform))
    .addCommand(serveCommand(perform))
    .addCommand(completionCommand(perform))
    .addCommand(uninstallCommand(perform))
    .addCommand(workerCommand(perform))
    .addCommand(gateCommand(perform))
    .addCommand(dockerCommands(perform))
    .addCommand(scanWorkspaceCommand(perform), { hidden: true })
    .helpCommand('help [command...]', 'Show the help of a command');
  prepare(program, printed);
  return program;
}

/** What the user typed to reach a command: `acode sandbox exec`. */
export function calledAs(command: CommandUnknownOpts): string {
  return command.parent ? `${calledAs(command.parent)} ${command.name()}` : command.name();
}

// What other tools call it.
const KNOWN_ELSEWHERE: Readonly<Record<string, string>> = {
  rm: 'acode sandbox kill',
  remove: 'acode sandbox kill',
  delete: 'acode sandbox kill',
  stop: 'acode sandbox kill',
  ps: 'acode sandbox list',
  ls: 'acode sandbox list',
};

// A command by its own name, in whichever group it stands, or by the name it has elsewhere.
function inGroups(command: CommandUnknownOpts, word: string): string | null {
  const { commands } = command;
  if (command.parent === null || command.name() === 'sandbox') {
    const known = Object.entries(KNOWN_ELSEWHERE).find(([name]) => name === word);
    if (known) return known[1];
  }
  const found = commands.flatMap(group => group.commands).find(one => one.name() === word);
  return found ? calledAs(found) : null;
}

/**
 * The arguments of `help` as those of `--help`, which knows the commands of a group too: `help sandbox keep` is
 * `sandbox keep --help`. Other arguments are returned unchanged.
 */
export function helpArguments(program: CommandUnknownOpts, argv: readonly string[]): readonly string[] {
  // As most programs have it.
  if (argv.length === 1 && argv[0] === '-v') return ['--version'];
  const at = argv.findIndex(argument => !argument.startsWith('-'));
  const [name, ...path] = argv.slice(Math.max(0, at));
  if (name !== 'help' || path.length === 0) return argv;
  const before = argv.slice(0, at);
  let here = program;
  for (const [index, word] of path.entries()) {
    const next = here.commands.find(command => command.name() === word);
    // An argument that is not a command is refused, unless the command takes arguments.
    if (!next) return here.commands.length > 0 ? [...before, ...path.slice(0, index + 1)] : helpOf(before, path, index);
    here = next;
  }
  return helpOf(before, path, path.length);
}

function helpOf(before: readonly string[], path: readonly string[], length: number): string[] {
  return [...before, ...path.slice(0, length), '--help'];
}

// What is below a command is prepared when it is called: everything at once would be a tenth of a short command’s time.
function prepare(command: CommandUnknownOpts, printed: Printed): void {
  const called = calledAs(command);
  if (command.parent && command.commands.length > 0) command.helpCommand(false);
  addCommonOptions(command, called);
  command
    .enablePositionalOptions()
    .helpOption('-h, --help', 'show this help')
    .configureHelp({ formatItem: (term, width, text) => helpItem(term, width, text, printed.width ?? HELP_WIDTH) })
    .configureOutput({
      writeOut: text => (printed.text += inWidth(text, printed.width ?? HELP_WIDTH)),
      writeErr: text => (printed.text += inWidth(text, printed.width ?? HELP_WIDTH)),
      outputError: () => undefined,
      getOutHelpWidth: () => printed.width ?? HELP_WIDTH,
      getErrHelpWidth: () => printed.width ?? HELP_WIDTH,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .exitOverride(complaint => {
      const options = command.options.flatMap(({ long }) => long ?? []);
      const about = { called, help: printed.text, elsewhere: (word: string) => inGroups(command, word), options };
      throw complaint.exitCode === 0 ? complaint : new ParseComplaint(complaint, about);
    });
  command.addHelpText('after', () => {
    printed.helpOf = called;
    return '';
  });
  command.hook('preSubcommand', (_, child) => {
    if (child.name() === COMPLETION) for (const one of command.commands) prepareAll(one, printed);
    else if (command.name() !== COMPLETION) prepare(child, printed);
  });
}

// An option or a command, and what it is for.
function helpItem(term: string, termWidth: number, text: string, width: number): string {
  if (text === '') return `  ${term}`;
  const prefix = `  ${term.padEnd(termWidth)}  `;
  return width - prefix.length >= MIN_DESCRIPTION
    ? hanging(prefix, text, width)
    : `  ${term}\n${hanging(BELOW, text, width, BELOW)}`;
}

// Paragraphs of help are written in one line each. What is indented is laid out already, or is a command to paste.
function inWidth(text: string, width: number): string {
  return text
    .split('\n')
    .map(line => (line.startsWith(' ') || line.length <= width ? line : hanging('', line, width)))
    .join('\n');
}

// Completion speaks of every command.
function prepareAll(command: CommandUnknownOpts, printed: Printed): void {
  // Once: what stands below `completion` is prepared with everything else before it is called.
  if (!command.options.some(({ long }) => long === '--json')) prepare(command, printed);
  for (const child of command.commands) prepareAll(child, printed);
}
