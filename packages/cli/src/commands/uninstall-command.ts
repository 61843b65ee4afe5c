// `acode uninstall`: its options. What it does is loaded when it is called.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The command. */
export function uninstallCommand(perform: Perform) {
  return new Command('uninstall')
    .description('Show everything acode left on engine and disk; with --purge, remove it')
    .option(
      '--purge',
      'remove everything that is shown, except for the audit log, your configuration and forks with changes',
    )
    .option('--with-audit', 'with --purge: remove the audit log too')
    .option('--with-config', 'with --purge: remove your configuration too')
    .option('--with-forks', 'with --purge: remove forks with changes too')
    .option('--force', 'also remove live sessions and what your other hosts created, and continue without an engine')
    .action((options, command) =>
      perform(command, async call => (await import('./uninstall.ts')).uninstall(call, options)),
    );
}
