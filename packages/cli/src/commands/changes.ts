// `acode changes`: risky changes that runs left in the workspace, from the audit log.

import { Command, Option } from '@commander-js/extra-typings';
import { since } from '../arguments/values.ts';
import type { Perform } from '../call.ts';

const AFTER = `
A run is listed while its record is in the log, even if its files no longer exist.
Exit status: 0 no risky changes, 1 risky changes or an incomplete scan, 2 usage, 125 the log cannot be read.`;

/** The command. */
export function changesCommand(perform: Perform) {
  return new Command('changes')
    .description('Show risky changes that runs left in the workspace')
    .addOption(
      new Option(
        '--since <time or record>',
        'only changes since then: 2h, 2026-05-31, 2026-05-31T14:00, or after a record number',
      ).argParser(since),
    )
    .option('--all', 'show every workspace')
    .addHelpText('after', AFTER)
    .action((options, command) =>
      perform(command, async call => (await import('./changes-view.ts')).showChanges(call, options)),
    );
}
