// `acode masks`: the files of a workspace that commands see empty, because they hold secrets.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The group. */
export function maskCommands(perform: Perform) {
  return new Command('masks')
    .description('Show which files commands see empty because they hold secrets')
    .addCommand(maskCommand(perform, 'list', 'List what is masked in this workspace, with the rule'))
    .addCommand(maskCommand(perform, 'rescan', 'Search the whole workspace again for what was masked before'));
}

function maskCommand(perform: Perform, name: 'list' | 'rescan', about: string) {
  return new Command(name)
    .description(about)
    .action((_options, command) =>
      perform(command, async call => (await import('./masks-view.ts')).showMasks(call, name)),
    );
}
