// `acode audit`: the commands about the audit log.

import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { auditExportCommand } from './audit-export.ts';
import { renderRecord } from './audit-record.ts';
import { auditTailCommand } from './audit-tail.ts';
import { auditVerifyCommand } from './audit-verify.ts';

/** The group. */
export function auditCommands(perform: Perform) {
  return new Command('audit')
    .description('Read what was run and refused, and check that the log was not changed')
    .enablePositionalOptions()
    .addCommand(auditTailCommand(perform))
    .addCommand(auditShowCommand(perform))
    .addCommand(auditVerifyCommand(perform))
    .addCommand(auditExportCommand(perform));
}

/** The command. */
function auditShowCommand(perform: Perform) {
  return new Command('show')
    .description('Show a record by its number, or all records with a correlation id')
    .argument('<ref>', 'number of a record, or a correlation id')
    .action((reference, _options, command) => perform(command, call => showRecords(call, reference)));
}

async function showRecords(call: Call, reference: string): Promise<number> {
  const items = await call.withObserver(({ audit }) => audit.find(reference));
  await call.print('acode.audit/1', { items }, look => items.map(record => renderRecord(record, look)).join('\n'));
  return 0;
}
