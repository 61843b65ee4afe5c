// `acode worker`: runs tasks of a fleet on this machine, if the package of the fleet is installed.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** The command. */
export function workerCommand(perform: Perform) {
  return new Command('worker')
    .description('Run tasks of a fleet on this machine (needs the package @acode/fleet)')
    .option('--file <path>', 'the worker’s file (default: worker.yml beside your configuration)')
    .option('--keys', 'print a new pair of keys for a tenant, and end')
    .action((options, command) =>
      perform(command, async call => (await import('../fleet/worker.ts')).work(call, options)),
    );
}
