// `acode audit export`: the lines of the log as they are, to be kept or checked elsewhere.

import type { Audit } from '@acode/sandbox';
import { Command, Option } from '@commander-js/extra-typings';
import { count } from '../arguments/count.ts';
import type { Call, Perform } from '../call.ts';
import { pump } from '../terminal/pump.ts';

/** Which records. */
interface Range {
  readonly from?: number | undefined;
  readonly to?: number | undefined;
}

/** The command. */
export function auditExportCommand(perform: Perform) {
  return new Command('export')
    .description('Print the lines of the audit log as they are')
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
