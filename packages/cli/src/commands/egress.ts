// `acode egress`: presets and decisions of allow-lists, what commands connected to, and refused hosts that you can allow.

import { Command, Option } from '@commander-js/extra-typings';
import { network } from '../arguments/sandbox-values.ts';
import { count } from '../arguments/values.ts';
import type { Perform } from '../call.ts';

const SHOWN = 20;

/** The group. */
export function egressCommands(perform: Perform) {
  return new Command('egress')
    .description('Show what allow-lists let through and refused, and allow what was refused')
    .enablePositionalOptions()
    .addCommand(presetsCommand(perform))
    .addCommand(testCommand(perform))
    .addCommand(logCommand(perform))
    .addCommand(pendingCommand(perform))
    .addCommand(allowCommand(perform));
}

function presetsCommand(perform: Perform) {
  return new Command('presets')
    .description('Show the presets of allow-lists, and what each does not prevent')
    .action((_options, command) =>
      perform(command, async call => (await import('../egress/presets-view.ts')).showPresets(call)),
    );
}

function testCommand(perform: Perform) {
  return new Command('test')
    .description('Show what would become of a request, by which rule (exit 1: it would be refused)')
    .argument('<url>', 'URL, or a host such as db.example:5432')
    .addOption(
      new Option('--network <network>', 'network of the command; by default, what your configuration says').argParser(
        network,
      ),
    )
    .option('--method <method>', 'method of the request', 'GET')
    .option('--connect', 'resolve the name, check its addresses and connect')
    .action((url, options, command) =>
      perform(command, async call => (await import('../egress/test-view.ts')).testAccess(call, url, options)),
    );
}

function logCommand(perform: Perform) {
  return new Command('log')
    .description('Show what commands with an allow-list connected to, and what they were refused')
    .addOption(new Option('-n, --lines <count>', 'number of commands').argParser(count).default(SHOWN))
    .option('-f, --follow', 'print those of each command when it ends')
    .option('--denied', 'only what was refused')
    .action((options, command) =>
      perform(command, async call => (await import('../egress/log-view.ts')).showLog(call, options)),
    );
}

function pendingCommand(perform: Perform) {
  return new Command('pending')
    .description('Show hosts that were refused in the last hour, or that a model asks for')
    .action((_options, command) =>
      perform(command, async call => (await import('../egress/grant-actions.ts')).showPending(call)),
    );
}

function allowCommand(perform: Perform) {
  return new Command('allow')
    .description('Allow a host that is pending')
    .argument('<id>', 'id, as `acode egress pending` shows it')
    .addOption(
      new Option('--once', 'for the command that asked, or the next one; the default').conflicts(['task', 'save']),
    )
    .addOption(new Option('--task', 'for its task or workspace, for eight hours').conflicts('save'))
    .option('--save', 'for good, in your own configuration')
    .option('--yes', 'do it without asking; the audit log records the calling program')
    .action((id, options, command) =>
      perform(command, async call => (await import('../egress/grant-actions.ts')).allow(call, id, options)),
    );
}
