// `acode audit`: shows, follows, verifies and exports the audit log.

import { Command, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { AcodeError } from '@acode/sandbox';
import type { Audit, AuditHead, AuditVerification } from '@acode/sandbox';
import type { Call, Perform } from '../call.ts';
import { count } from '../arguments/values.ts';
import { UsageError } from '../failure/usage.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { pump } from '../terminal/pump.ts';
import { plural } from '../terminal/text.ts';

/** The group. */
export function auditCommands(perform: Perform) {
  return new Command('audit')
    .description('Show what acode ran and refused, and verify that the log was not changed')
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
  const { renderRecord } = await import('./audit-record.ts');
  await call.print('acode.audit/1', { items }, look => items.map(record => renderRecord(record, look)).join('\n'));
  return 0;
}

const SHOWN = 20;

/** The command. */
function auditTailCommand(perform: Perform) {
  return new Command('tail')
    .description('Show the newest records of the audit log')
    .addOption(new Option('-n, --lines <count>', 'number of records').argParser(count).default(SHOWN))
    .option('-f, --follow', 'print new records as they are written')
    .action(({ lines, follow }, command) =>
      perform(command, call => (follow ? followLog(call, lines) : showNewest(call, lines))),
    );
}

async function showNewest(call: Call, lines: number): Promise<number> {
  const items = await call.withObserver(({ audit }) => audit.tail({ count: lines }));
  const { renderRecords } = await import('./audit-record.ts');
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
  const { renderLine } = await import('./audit-record.ts');
  const before = await audit.tail({ count: lines });
  for (const record of before) await call.stdout.write(renderLine(record, call.look), signal);
  const after = before.at(-1)?.seq ?? 0;
  for await (const record of audit.follow({ after, signal }))
    if (!(await call.stdout.write(renderLine(record, call.look), signal))) return;
}

/** The command. */
function auditVerifyCommand(perform: Perform) {
  return new Command('verify')
    .description('Check every record of the audit log, and name the first that was changed')
    .addOption(
      new Option('--head <number:hash>', 'a head that you saved earlier, to compare; repeatable').argParser(head),
    )
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
      ['Records', `${report.records} in ${plural(report.files, 'file')}`],
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

/** Which records. */
interface Range {
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** The command. */
function auditExportCommand(perform: Perform) {
  return new Command('export')
    .description('Print the raw lines of the audit log')
    .addOption(new Option('--from <number>', 'first record').argParser(count))
    .addOption(new Option('--to <number>', 'last record').argParser(count))
    .action((range, command) => perform(command, call => exportLog(call, range)));
}

async function exportLog(call: Call, range: Range): Promise<number> {
  await call.withObserver(({ audit }) => copy(call, audit, range));
  return 0;
}

async function copy(call: Call, audit: Audit, { from, to }: Range): Promise<void> {
  const lines = audit.export({ ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) });
  await pump(bytesOf(call.options.json ? asOneObject(lines) : lines), call.stdout, call.interruption.signal);
}

async function* bytesOf(pieces: AsyncIterable<string>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const piece of pieces) yield Buffer.from(piece);
}

// Written while it is read, since a log can be larger than memory.
async function* asOneObject(lines: AsyncIterable<string>): AsyncGenerator<string, void, undefined> {
  yield '{"schema":"acode.audit/1","items":[';
  let before = '';
  for await (const line of lines) {
    yield before + asItem(line.trimEnd());
    before = ',';
  }
  yield ']}\n';
}

// A line that was damaged must not damage the object.
function asItem(line: string): string {
  try {
    JSON.parse(line);
    return line;
  } catch {
    return JSON.stringify({ damaged: line });
  }
}
