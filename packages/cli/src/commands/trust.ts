// `acode trust`: allows the repository’s configuration to loosen the policy, for exactly its current content.

import { Command, Option } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import type { Deed } from './trust-actions.ts';

/** The command. */
export function trustCommand(perform: Perform) {
  return new Command('trust')
    .description('Trust the repository’s .agent/config.yml as it is now')
    .addOption(new Option('--show', 'only show what the file asks for').conflicts('revoke'))
    .option('--revoke', 'withdraw the trust')
    .option('--yes', 'do it without asking; the audit log records the calling program')
    .action((options, command) =>
      perform(command, async call =>
        (await import('./trust-actions.ts')).trust(call, deedOf(options), options.yes === true),
      ),
    );
}

function deedOf({ show, revoke }: { show?: true | undefined; revoke?: true | undefined }): Deed {
  if (show) return 'shown';
  return revoke ? 'revoked' : 'granted';
}
