// `acode docker`: the names that Docker users try first, for the same commands.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { cleanupCommand } from './cleanup.ts';
import { inspectCommand } from './inspect.ts';
import { listCommand } from './list.ts';
import { logsCommand } from './logs.ts';

/** The group. */
export function dockerCommands(perform: Perform) {
  return new Command('docker')
    .description('`list`, `inspect`, `logs` and `cleanup` of `sandbox`, for Docker users')
    .addCommand(listCommand(perform))
    .addCommand(inspectCommand(perform))
    .addCommand(logsCommand(perform))
    .addCommand(cleanupCommand(perform));
}
