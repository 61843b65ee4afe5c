// `acode config`: shows, changes and checks the configuration files.

import { Argument, Command, Option } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

const LAYERS = ['user', 'team', 'machine', 'repository'] as const;
// Where consent is needed and there is no terminal to ask at.
const YES = ['--yes', 'do it without asking; the audit log records the calling program'] as const;
const KEY = 'key with dots, such as sandbox.defaults.memory_mb';

/** The group. */
export function configCommands(perform: Perform) {
  return new Command('config')
    .description('Show, change and check the configuration files')
    .enablePositionalOptions()
    .addCommand(getCommand(perform))
    .addCommand(setCommand(perform))
    .addCommand(unsetCommand(perform))
    .addCommand(checkCommand(perform))
    .addCommand(pathCommand(perform))
    .addCommand(editCommand(perform));
}

function getCommand(perform: Perform) {
  return new Command('get')
    .description('Show what is set, and the file and line that set it')
    .argument('[key]', KEY)
    .action((key, _options, command) =>
      perform(command, async call => (await import('./config-actions.ts')).showValues(call, key)),
    );
}

function setCommand(perform: Perform) {
  return new Command('set')
    .description('Set a key in your own file; asks before it loosens the policy')
    .argument('<key>', KEY)
    .argument('<value...>', 'value; for a list, several values or a,b')
    .option('--add', 'add to the list that is there')
    .option(...YES)
    .action((key, values, { add, yes }, command) =>
      perform(command, async call => {
        const { change } = await import('./config-actions.ts');
        return change(call, { kind: add ? 'add' : 'set', key, values }, yes === true);
      }),
    );
}

function unsetCommand(perform: Perform) {
  return new Command('unset')
    .description('Take a key out of your own file')
    .argument('<key>', KEY)
    .option(...YES)
    .action((key, { yes }, command) =>
      perform(command, async call => {
        const { change } = await import('./config-actions.ts');
        return change(call, { kind: 'unset', key }, yes === true);
      }),
    );
}

function checkCommand(perform: Perform) {
  return new Command('check')
    .description('Check your own, the team’s, the machine’s and the repository’s file (exit 1: a problem)')
    .argument('[file]', 'a file to check instead')
    .addOption(new Option('--as <layer>', 'with a file: check it as the file of this layer').choices(LAYERS))
    .action((file, { as }, command) =>
      perform(command, async call => (await import('./config-actions.ts')).checkFiles(call, file, as)),
    );
}

function pathCommand(perform: Perform) {
  return new Command('path')
    .description('Show where the files are, strongest first')
    .addArgument(new Argument('[layer]', 'print only the path of this one').choices(LAYERS))
    .action((layer, _options, command) =>
      perform(command, async call => (await import('./config-actions.ts')).showFiles(call, layer)),
    );
}

function editCommand(perform: Perform) {
  return new Command('edit')
    .description('Edit a copy of your own file in $VISUAL or $EDITOR; only a valid result is installed')
    .option(...YES)
    .action(({ yes }, command) =>
      perform(command, async call => (await import('./config-actions.ts')).editFile(call, yes === true)),
    );
}
