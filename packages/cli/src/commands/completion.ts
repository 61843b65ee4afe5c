// `acode completion`: prints the completion script for a shell, or installs it for the user.

import { Argument, Command } from '@commander-js/extra-typings';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** The command. */
export function completionCommand(perform: Perform) {
  return new Command('completion')
    .description('Install the completion of commands and options in your shell, or print its script')
    .addArgument(new Argument('<shell>', 'the shell to print the script for').choices(SHELLS))
    .action((shell, _options, command) => perform(command, call => printScript(call, shell, rootOf(command))))
    .addCommand(installCommand(perform));
}

function installCommand(perform: Perform) {
  return new Command('install')
    .description('Write the script to your own directory for completions; no other file is changed')
    .addArgument(new Argument('[shell]', 'the shell (default: the one of $SHELL)').choices(SHELLS))
    .option('--uninstall', 'remove the script again')
    .action((shell, { uninstall }, command) =>
      perform(command, call => install(call, shell, uninstall === true, rootOf(command))),
    );
}

async function printScript(call: Call, shell: Shell, root: CommandUnknownOpts): Promise<number> {
  const script = await scriptFor(call, shell, root);
  await call.print('acode.completion/1', { shell, script }, () => script);
  return 0;
}

// With the keys of the configuration and the names of agents, which the libraries know.
async function scriptFor(call: Call, shell: Shell, root: CommandUnknownOpts): Promise<string> {
  const [{ completionScript }, { Acode }, { PRESETS, knownAgents }] = await Promise.all([
    import('../completion/script.ts'),
    import('@acode/sandbox'),
    import('@acode/agents'),
  ]);
  // A file of agents that is not valid is no reason to complete nothing: `acode agent` says what is wrong with it.
  const known = await knownAgents(call.io.env).catch(() => PRESETS.map(preset => ({ preset })));
  const agents = known.map(({ preset }) => preset.name);
  return completionScript(shell, root, { keys: (await Acode.configuration()).keys(), agents });
}

async function install(
  call: Call,
  named: Shell | undefined,
  uninstall: boolean,
  root: CommandUnknownOpts,
): Promise<number> {
  const { installScript, renderInstalled, shellOf, uninstallScript } = await import('../completion/install.ts');
  const { env } = call.io;
  const shell = shellOf(named, env);
  const done = await (uninstall
    ? uninstallScript(shell, env)
    : installScript(shell, await scriptFor(call, shell, root), env));
  await call.print('acode.completion-install/1', done, () => renderInstalled(done));
  return 0;
}

function rootOf(command: CommandUnknownOpts): CommandUnknownOpts {
  let at = command;
  while (at.parent) at = at.parent;
  return at;
}
