// `acode audit`: the commands about the audit log.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';
import { auditExportCommand } from './audit-export.ts';
import { auditShowCommand } from './audit-show.ts';
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
