// `acode sandbox cleanup`: removes leftover sandboxes.

import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';

const FAILED = 125;

/** The command. */
export function cleanupCommand(perform: Perform) {
  return new Command('cleanup')
    .description('Remove your sandboxes that were left behind')
    .option('--force', 'also remove running sandboxes, except those of other live sessions')
    .option('--all-sessions', 'also remove sandboxes of your other live sessions')
    .option('--volumes', 'also remove volumes that sandboxes share, such as caches')
    .option('--dry-run', 'only show what would be removed')
    .action((options, command) => perform(command, call => cleanUp(call, options)));
}

interface CleanupFlags {
  readonly force?: true | undefined;
  readonly allSessions?: true | undefined;
  readonly volumes?: true | undefined;
  readonly dryRun?: true | undefined;
}

async function cleanUp(call: Call, options: CleanupFlags): Promise<number> {
  const report = await call.withHost(acode =>
    call.progress.during(
      'Removing sandboxes…',
      acode.cleanup({
        force: options.force === true,
        allSessions: options.allSessions === true,
        volumes: options.volumes === true,
        dryRun: options.dryRun === true,
        signal: call.interruption.signal,
      }),
    ),
  );
  const { renderCleanup } = await import('./cleanup-view.ts');
  await call.print('acode.cleanup/1', report, look => renderCleanup(report, look));
  return report.failed.length + report.belongings.failed.length > 0 ? FAILED : 0;
}
