// Options of persistent sandboxes: those they cannot have, and those that only count at creation, are refused and never ignored.

import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { LEVELS, isAtLeast } from '@acode/sandbox';
import { UsageError } from '../failure/usage.ts';
import { sandboxCommand } from './request.ts';
import type { SandboxOptions } from './request.ts';

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

/** What a persistent sandbox never has, and what does in its place. */
const NEITHER_BRIDGE_NOR_CACHES =
  'A persistent sandbox has neither the network bridge nor caches. Put what commands need into the workspace (`acode sandbox exec --fill-cache npm --network allow=npm:install -- npm ci` fetches into it) or into the image (`acode sandbox build-image`); or create a sandbox with an allow-list (`--network allow=npm:install`).';

const CACHES = ['--caches', '--fill-cache'];

/** Shows in the help of a command only levels that have persistent sandboxes. */
export function offerEngineLevels<Wanted extends CommandUnknownOpts>(command: Wanted): Wanted {
  for (const option of command.options)
    if (option.long === '--level') option.argChoices = ['auto', ...LEVELS.filter(level => isAtLeast(level, 'docker'))];
  return command;
}

/** Shows in the help of a command only options that a persistent sandbox can have. */
export function showPersistentOptions<Wanted extends CommandUnknownOpts>(command: Wanted): Wanted {
  for (const option of command.options) {
    if ([...CACHES, '--service'].includes(option.long ?? '')) option.hideHelp();
    if (option.long === '--no-caches') option.description = 'no effect: a persistent sandbox never has caches';
    if (option.long === '--network')
      option.description = 'network: none, allow=<hosts>, or the name of a network of your own';
  }
  return offerEngineLevels(command);
}

/** Throws where a persistent sandbox is asked for with options that it cannot have. */
export function refuseNonPersistentOptions({ network, caches, fillCache }: SandboxOptions): void {
  const [asked] = [
    ...(network === 'bridge' ? ['--network bridge'] : []),
    ...(Array.isArray(caches) ? ['--caches'] : []),
    ...(fillCache === undefined ? [] : ['--fill-cache']),
  ];
  if (asked === undefined) return;
  throw new UsageError(
    `${asked} is not available in a persistent sandbox: it is removed with the session that made it, and the sandbox lives longer.`,
    NEITHER_BRIDGE_NOR_CACHES,
  );
}
