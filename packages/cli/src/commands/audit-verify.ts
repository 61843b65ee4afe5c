// `acode audit verify`: whether the audit log is what it was, and the head that will show it later.

import { AcodeError } from '@acode/sandbox';
import type { AuditHead, AuditVerification } from '@acode/sandbox';
import { Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';

/** The command. */
export function auditVerifyCommand(perform: Perform) {
  return new Command('verify')
    .description('Check every record of the audit log, and name the first that was changed')
    .addOption(new Option('--head <number:hash>', 'a head you kept elsewhere; can be repeated').argParser(head))
    .action((options, command) => perform(command, call => verify(call, options.head ?? [])));
}

async function verify(call: Call, heads: readonly AuditHead[]): Promise<number> {
  const { signal } = call.interruption;
  const report = await call.withObserver(({ audit }) =>
    call.progress.during('Reading the audit log…', audit.verify({ heads, signal })),
  );
  if (report.problem) throw new AcodeError('ACODE-AUD-002', { ...report.problem });
  await call.print('acode.audit-verify/1', report, look => renderVerification(report, heads.length, look));
  return 0;
}

function renderVerification(report: AuditVerification, heads: number, look: Look): string {
  const { bold, green, yellow } = look.colours;
  if (report.head === null) return 'Nothing was recorded yet.\n';
  const about = fields(
    [
      ['Records', `${report.records} in ${report.files} file${report.files === 1 ? '' : 's'}`],
      ['Signatures', `${report.checkpoints}, by key ${report.key ?? 'none'}`],
      ['Signed', signedOf(report)],
      ...(heads === 0 ? [] : [['Heads found', `${report.headsFound} of ${heads}`] as const]),
      ...(report.unfinished ? [['Last line', 'is being written, or was when its writer was killed'] as const] : []),
      ['Head', `${report.head.seq}:${report.head.hash}`],
    ],
    look,
  );
  const warnings = report.warnings.map(text => `${yellow('warning:')} ${text}\n`).join('');
  const why = heads === 0 ? 'Keep the head somewhere this user cannot write, and check it later with --head.\n' : '';
  return `${green(bold('No record was changed'))}\n${about}${warnings}${why}`;
}

function signedOf({ records, covered }: AuditVerification): string {
  if (covered === 0) return 'none yet: the first signature comes after 255 records, or with the second file';
  return `records 1 to ${covered}; the newest ${records - covered} follow with the next signature`;
}

/** The heads so far and one more, written `number:hash` as `acode audit verify` prints it. */
function head(text: string, before: readonly AuditHead[] = []): AuditHead[] {
  const found = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text);
  if (!found)
    throw new InvalidArgumentError(
      'Expected number:hash with all 64 digits of the hash, as `acode audit verify` prints it.',
    );
  return [...before, { seq: Number(found[1]), hash: found[2] ?? '' }];
}
