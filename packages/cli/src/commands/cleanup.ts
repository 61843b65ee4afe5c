// `acode sandbox cleanup`: removes what was left behind.

import type { CleanupReport } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { shortId } from '../terminal/identifier.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';

const FAILED = 125;

/** The command. */
export function cleanupCommand(perform: Perform) {
  return new Command('cleanup')
    .description('Remove your sandboxes that were left behind')
    .option('--force', 'remove running ones too, but not those of another session that lives')
    .option('--all-sessions', 'do not spare your other sessions that live')
    .option('--dry-run', 'remove nothing, show what would be')
    .action((options, command) => perform(command, call => cleanUp(call, options)));
}

interface CleanupFlags {
  readonly force?: true | undefined;
  readonly allSessions?: true | undefined;
  readonly dryRun?: true | undefined;
}

async function cleanUp(call: Call, options: CleanupFlags): Promise<number> {
  const report = await call.withHost(acode =>
    call.progress.during(
      'Removing sandboxes…',
      acode.cleanup({
        force: options.force === true,
        allSessions: options.allSessions === true,
        dryRun: options.dryRun === true,
        signal: call.interruption.signal,
      }),
    ),
  );
  await call.print('acode.cleanup/1', report, look => renderCleanup(report, look));
  return report.failed.length > 0 ? FAILED : 0;
}

/** What was removed, for a person. */
export function renderCleanup(report: CleanupReport, look: Look): string {
  const { removed, failed, kept, dryRun } = report;
  const rows = [
    ...removed.map(({ name, image, state }) => [name, shortId(image), state, dryRun ? 'would be removed' : 'removed']),
    ...failed.map(({ sandbox, reason }) => [sandbox.name, shortId(sandbox.image), sandbox.state, `failed: ${reason}`]),
    ...kept.map(({ name, image, state }) => [name, shortId(image), state, 'kept']),
  ];
  const listed = rows.length > 0 ? table(['NAME', 'IMAGE', 'STATE', 'RESULT'], rows, look) : '';
  return `${listed}${summary(report)}\n`;
}

function summary({ removed, failed, kept, dryRun }: CleanupReport): string {
  const parts = [dryRun ? `Would remove ${sandboxes(removed.length)}` : `Removed ${sandboxes(removed.length)}`];
  if (failed.length > 0) parts.push(`${failed.length} could not be removed`);
  if (kept.length > 0)
    parts.push(
      `${kept.length} left alone (--force removes running ones too, --all-sessions those of your other sessions)`,
    );
  return oneLine(`${parts.join(', ')}.`);
}

function sandboxes(count: number): string {
  return `${count} ${count === 1 ? 'sandbox' : 'sandboxes'}`;
}
