// `acode audit tail`: the newest records, and those that follow.

import type { Audit } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import { count } from '../arguments/count.ts';
import type { Call, Perform } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { renderLine, renderRecords } from './audit-record.ts';

const SHOWN = 20;

/** The command. */
export function auditTailCommand(perform: Perform) {
  return new Command('tail')
    .description('Show the newest records of the audit log')
    .addOption(new Option('-n, --lines <count>', 'how many').argParser(count).default(SHOWN))
    .option('-f, --follow', 'go on with each record as it is written')
    .action(({ lines, follow }, command) =>
      perform(command, call => (follow ? followLog(call, lines) : showNewest(call, lines))),
    );
}

async function showNewest(call: Call, lines: number): Promise<number> {
  const items = await call.withObserver(({ audit }) => audit.tail({ count: lines }));
  await call.print('acode.audit/1', { items }, look => renderRecords(items, look));
  return 0;
}

async function followLog(call: Call, lines: number): Promise<number> {
  if (call.options.json)
    throw new UsageError(
      '--follow has no end, and --json prints one object.',
      'Leave one of the two out; `acode audit export --from <number>` prints the lines as they are.',
    );
  await call.withObserver(({ audit }) => goOn(call, audit, lines));
  return 0;
}

async function goOn(call: Call, audit: Audit, lines: number): Promise<void> {
  const { signal } = call.interruption;
  const before = await audit.tail({ count: lines });
  for (const record of before) await call.stdout.write(renderLine(record, call.look), signal);
  const after = before.at(-1)?.seq ?? 0;
  for await (const record of audit.follow({ after, signal }))
    if (!(await call.stdout.write(renderLine(record, call.look), signal))) return;
}
