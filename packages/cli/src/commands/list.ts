// `acode sandbox list`: the sandboxes that exist now.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The command. */
export function listCommand(perform: Perform) {
  return new Command('list')
    .description('List the sandboxes that exist')
    .action((_options, command) => perform(command, async call => (await import('./list-view.ts')).showList(call)));
}
