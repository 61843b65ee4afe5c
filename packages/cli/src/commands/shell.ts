// `acode sandbox shell`: opens a terminal in a sandbox.

import type { Acode, Command as SandboxedCommand, Sandbox, TerminalHandle } from '@acode/sandbox';
import { offerEngineLevels, refuseCreationOptions } from '../arguments/persistent-options.ts';
import { reference } from '../arguments/values.ts';
import { environmentOf, environmentOptions } from '../arguments/environment-options.ts';
import { WORKDIR, createRequestOf, sandboxCommand } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call, Perform } from '../call.ts';
import { closingNotices } from '../execution/closing-lines.ts';
import { sayNotices, statusOf } from '../execution/execute.ts';
import { preparing } from '../execution/preparing.ts';
import { filterOptions, mouseOption } from '../execution/terminal-options.ts';
import { variablesOfTerminal } from '../execution/terminal-variables.ts';
import { UsageError } from '../failure/usage.ts';
import { lifetimeOption } from './create.ts';

// Whoever hangs up ends what runs there.
const LEFT = 129;
// One that ends with its shell: as long as a sandbox may stay.
const MAX_MS = 24 * 3600 * 1000;
// The better shell of the image, without a word of the user’s in the text.
const SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash; else exec /bin/sh; fi';
const AFTER = `
The keys Enter ~ . leave the shell whatever runs in it; Enter ~ ~ types one ~.
What the sandbox prints may draw on your terminal and do nothing else with it: it cannot reach the clipboard or the title, nor make the terminal answer. docs/sessions.md lists what passes.
Exit status: the shell’s own; 124 time limit, 125 refused or failed, 129 left by those keys, 2 usage.`;

/** The command. */
export function shellCommand(perform: Perform) {
  return offerEngineLevels(sandboxCommand('shell'))
    .description('Open a terminal in a persistent sandbox, or in a fresh one that ends with it')
    .argument('[sandbox]', 'id or name of a persistent sandbox; without it, a fresh one', reference)
    .usage('[options] [sandbox] [-- <program> [arguments…]]')
    .addOption(lifetimeOption())
    .addOption(environmentOptions().env)
    .addOption(environmentOptions().file)
    .option(...WORKDIR)
    .addOption(mouseOption('let programs inside receive mouse events'))
    .addHelpText('after', AFTER)
    .action((named, options, command) =>
      perform(command, call => {
        assertTerminal(call, named);
        if (named !== undefined) refuseCreationOptions(command, named);
        if (named !== undefined && options.for !== undefined)
          throw new UsageError(
            `--for counts when a sandbox is created, and ${named} exists already.`,
            `Leave it out; \`acode sandbox keep ${named} --for …\` changes when it expires.`,
          );
        return shell(call, named, options);
      }),
    );
}

type ShellOptions = RequestOptions & { readonly for?: number | undefined; readonly mouse?: true | undefined };

function assertTerminal(call: Call, named: string | undefined): void {
  const instead = named === undefined ? 'acode run' : `acode sandbox exec --in ${named}`;
  if (call.options.json)
    throw new UsageError('A shell has no result to print as JSON.', `Use \`${instead} --json -- …\` for one command.`);
  if (call.io.stdin.isTTY && call.stdout.isTerminal) return;
  throw new UsageError(
    'A shell needs a terminal, and standard input or output is not one.',
    `To run one command, no terminal is needed: \`${instead} "ls"\`. To run commands from standard input: \`echo ls | ${instead} sh\`.`,
  );
}

async function shell(call: Call, named: string | undefined, options: ShellOptions): Promise<number> {
  const command = programOf(call);
  const { here } = await call.place();
  const env = await environmentOf(options, { env: call.io.env, here });
  return call.withHost(async acode => {
    const sandbox = await sandboxFor(call, acode, named, options);
    // Loaded before any command runs: where acode is installed in the workspace, the command may put something else in its place.
    const { atTerminal } = await import('../execution/at-terminal.ts');
    const filter = await filterOptions(call, options.mouse);
    const handle = await begin(call, sandbox, command, options, env);
    const result = await atTerminal(call, handle, filter);
    if (result === null) {
      const fate = sandbox.kept ? 'keeps running' : 'is removed';
      await call.say(`\nacode: left the shell, which ends what ran in it; the sandbox ${fate}.\n`);
      return LEFT;
    }
    // As a list of arguments: a shell ends with the status of its last command, which says nothing about the program here.
    const existing = named === undefined ? null : { timeoutMs: options.timeout };
    await sayNotices(call, closingNotices(result, [], { existing }));
    return statusOf(result);
  });
}

function programOf({ argv, called }: Call): SandboxedCommand {
  if (argv === null) return SHELL;
  if (argv.length === 0 || argv[0] === '')
    throw new UsageError('There is no program after `--`.', `Leave \`--\` out for a shell: \`${called}\`.`);
  return argv;
}

async function sandboxFor(
  call: Call,
  acode: Acode,
  named: string | undefined,
  options: ShellOptions,
): Promise<Sandbox> {
  const { signal } = call.interruption;
  if (named !== undefined) return call.progress.during('Asking the engine…', acode.connect(named, { signal }));
  const request = createRequestOf(options, await call.place());
  return preparing(call, acode, acode.create({ ...request, expiresInMs: options.for ?? MAX_MS, signal }));
}

async function begin(
  call: Call,
  { commands }: Sandbox,
  command: SandboxedCommand,
  { workdir, timeout }: ShellOptions,
  env: Readonly<Record<string, string>> | undefined,
): Promise<TerminalHandle> {
  const { signal } = call.interruption;
  const { inside } = await call.place();
  const { size } = call.stdout;
  return commands.terminal(command, {
    cwd: workdir ?? inside,
    signal,
    env: { ...variablesOfTerminal(call), ...env },
    ...(timeout === undefined ? {} : { timeoutMs: timeout }),
    ...(size ? { size } : {}),
  });
}
