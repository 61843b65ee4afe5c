// Options that say what a sandbox is to be, where one is named that exists already: refused, and never ignored.

import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { UsageError } from '../failure/usage.ts';
import { sandboxCommand } from './request.ts';
import { NEITHER_BRIDGE_NOR_CACHES } from './staying.ts';

// What counts for each command in a sandbox, wherever it was said.
const EACH_TIME = ['--timeout'];

/** Throws where such an option was given with a sandbox that exists. */
export function refuseCreationOptions(command: CommandUnknownOpts, sandbox: string): void {
  const creation = sandboxCommand('').options.flatMap(({ long }) => long ?? []);
  const given = command.options.filter(
    option =>
      creation.includes(option.long ?? '') &&
      !EACH_TIME.includes(option.long ?? '') &&
      command.getOptionValueSource(option.attributeName()) === 'cli',
  );
  // `--caches` and `--no-caches` are one setting.
  const [first] = given.filter(option => option.negate === (command.getOptionValue(option.attributeName()) === false));
  if (!first) return;
  throw new UsageError(
    `${first.long ?? ''} counts when a sandbox is created, and ${sandbox} exists already.`,
    neverStays(first.long, command)
      ? `Leave it out. ${NEITHER_BRIDGE_NOR_CACHES}`
      : `Leave it out, or create another one with it: \`acode sandbox create ${first.long ?? ''} …\`.`,
  );
}

function neverStays(long: string | undefined, command: CommandUnknownOpts): boolean {
  if (long === '--network') return command.getOptionValue('network') === 'bridge';
  return long === '--caches' || long === '--fill-cache';
}
