// `acode worker` and `acode gate`: run tasks of a fleet on this machine, or let tenants submit them, if the package of the fleet is installed.

import { Command, Option } from '@commander-js/extra-typings';
import { count } from '../arguments/values.ts';
import type { Perform } from '../call.ts';

/** The command. */
export function workerCommand(perform: Perform) {
  return new Command('worker')
    .description('Run tasks of a fleet on this machine (needs the package @acode/fleet)')
    .option('--file <path>', 'the worker’s file (default: worker.yml beside your configuration)')
    .addOption(
      new Option('--metrics <port>', 'show figures to Prometheus on this port of the loopback').argParser(count),
    )
    .option('--keys', 'print a new pair of keys for a tenant, and end')
    .action((options, command) =>
      perform(command, async call => (await import('../fleet/worker.ts')).work(call, options)),
    );
}

/** The command of a gate. */
export function gateCommand(perform: Perform) {
  return new Command('gate')
    .description('Let the tenants of a fleet submit tasks, and share its hosts fairly (needs the package @acode/fleet)')
    .option('--file <path>', 'the gate’s file (default: tenants/gate.yml beside your configuration)')
    .addOption(
      new Option('--metrics <port>', 'show figures to Prometheus on this port of the loopback').argParser(count),
    )
    .action((options, command) =>
      perform(command, async call => (await import('../fleet/worker.ts')).serveGate(call, options)),
    );
}
