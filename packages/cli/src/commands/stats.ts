// `acode stats`: how many commands ran, how they ended, and how fast their sandboxes were ready, from the audit log.

import { Command, Option } from '@commander-js/extra-typings';
import type { ProvisionFigures, Stats } from '@acode/sandbox';
import { momentOf, since } from '../arguments/values.ts';
import type { Since } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { plural } from '../terminal/text.ts';

/** The command. */
export function statsCommand(perform: Perform) {
  return new Command('stats')
    .description('Show how many commands ran, how they ended, and how fast their sandboxes were ready')
    .addOption(
      new Option('--since <time or record>', 'only since then: 2h, 7d, 2026-05-31, or after a record number').argParser(
        since,
      ),
    )
    .action((options, command) => perform(command, call => showStats(call, options.since)));
}

async function showStats(call: Call, asked: Since | undefined): Promise<number> {
  const { signal } = call.interruption;
  const from = asked === undefined ? undefined : momentOf(asked, call.io.now());
  const query = { signal, ...(from === undefined ? {} : { since: from }) };
  const stats = await call.withObserver(({ audit }) =>
    call.progress.during('Reading the audit log…', audit.stats(query)),
  );
  await call.print('acode.stats/1', stats, look => renderStats(stats, look));
  return 0;
}

/** The figures for a person. */
export function renderStats(stats: Stats, look: Look): string {
  if (stats.from === null || stats.to === null) return 'No command is recorded for that time.\n';
  const { commands, failed, timedOut, oomKilled, errors, refused, warm, cold } = stats;
  const counted = (count: number, label: string): readonly (readonly [string, string])[] =>
    count === 0 ? [] : [[label, String(count)]];
  return fields(
    [
      ['Commands', String(commands)],
      ...counted(failed, 'Failed'),
      ...counted(timedOut, 'Timed out'),
      ...counted(oomKilled, 'Out of memory'),
      ...counted(errors, 'Errors'),
      ...counted(refused, 'Refused'),
      ['Ready, warm', figures(warm)],
      ['Ready, cold', figures(cold)],
      ['Period', `${minutes(stats.from)} to ${minutes(stats.to)}`],
    ],
    look,
  );
}

function figures({ count, medianMs, p95Ms }: ProvisionFigures): string {
  if (medianMs === null || p95Ms === null) return 'no sandbox';
  return `${duration(medianMs)} (95 % within ${duration(p95Ms)}), ${plural(count, 'sandbox', 'sandboxes')}`;
}

function duration(ms: number): string {
  return ms < 1000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

// In UTC, as in the records.
function minutes(iso: string): string {
  return `${iso.slice(0, 10)} ${iso.slice(11, 16)} UTC`;
}
