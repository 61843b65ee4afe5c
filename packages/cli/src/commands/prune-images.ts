// `acode sandbox prune-images`: removes unused images that acode pulled or built.

import type { ImagePruneReport } from '@acode/sandbox';
import { Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { sizeText } from '../terminal/pull-lines.ts';
import { table } from '../terminal/table.ts';
import { plural } from '../terminal/text.ts';

const FAILED = 125;

/** The command. */
export function pruneImagesCommand(perform: Perform) {
  return new Command('prune-images')
    .description('Remove images that acode pulled or built and that were not used for a while')
    .option('--dry-run', 'only show what would be removed')
    .addOption(new Option('--older-than <days>', 'minimum days since the last use (default: 30)').argParser(days))
    .action((options, command) => perform(command, call => pruneImages(call, options)));
}

interface PruneFlags {
  readonly dryRun?: true | undefined;
  readonly olderThan?: number | undefined;
}

async function pruneImages(call: Call, { dryRun, olderThan }: PruneFlags): Promise<number> {
  const report = await call.withHost(acode =>
    call.progress.during(
      'Removing images…',
      acode.images.prune({
        dryRun: dryRun === true,
        ...(olderThan === undefined ? {} : { olderThanDays: olderThan }),
        signal: call.interruption.signal,
      }),
    ),
  );
  await call.print('acode.prune-images/1', report, look => renderPrune(report, look));
  return report.failed.length > 0 ? FAILED : 0;
}

/** What was removed, for a person. */
export function renderPrune({ removed, kept, failed, removedBytes, dryRun }: ImagePruneReport, look: Look): string {
  const result = dryRun ? 'would be removed' : 'removed';
  const row = (reference: string, sizeBytes: number, lastUsedAt: string, text: string): string[] => [
    reference,
    sizeText(sizeBytes),
    age(lastUsedAt, look.now),
    text,
  ];
  const rows = [
    ...removed.map(one => row(one.reference, one.sizeBytes, one.lastUsedAt, result)),
    ...failed.map(one => row(one.reference, one.sizeBytes, one.lastUsedAt, `failed: ${one.reason}`)),
    ...kept.map(one => row(one.reference, one.sizeBytes, one.lastUsedAt, `kept: ${one.reason}`)),
  ];
  if (rows.length === 0) return 'There is no image that acode pulled or built.\n';
  const count = plural(removed.length, 'image');
  // Layers that other images share stay, and no engine says beforehand which those are.
  const freed =
    removed.length === 0 ? '' : ` (frees up to ${sizeText(removedBytes)}: layers that other images share stay)`;
  const summary = `${dryRun ? 'Would remove' : 'Removed'} ${count}${dryRun ? freed : freed.replace('frees', 'freed')}`;
  return `${table(['IMAGE', 'SIZE', 'LAST USED', 'RESULT'], rows, look)}${summary}${failed.length > 0 ? `, ${failed.length} could not be removed` : ''}.\n`;
}

const MAX_DAYS = 36_500;

/** The number of days; 0 is none. */
function days(text: string): number {
  const value = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : NaN;
  if (!(value >= 0 && value <= MAX_DAYS)) throw new InvalidArgumentError('Expected days, such as 30 or 0.');
  return value;
}
