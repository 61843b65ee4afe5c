// `acode sandbox logs`: shows the saved output of past runs.

import { formatBytes } from '@acode/sandbox';
import type { SavedLog, SavedLogInfo } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { pump } from '../terminal/pump.ts';
import { table } from '../terminal/table.ts';

const ID_LENGTH = 8;
// As many as a person reads; the newest come first.
const SHOWN = 20;
const PART = 64 * 1024;

/** The command. */
export function logsCommand(perform: Perform) {
  return new Command('logs')
    .description('Show the saved output of a past run; without a name, list the runs')
    .argument('[ref]', 'name or sandbox id of a run')
    .action((reference, _options, command) =>
      perform(command, call => (reference === undefined ? listLogs(call) : showLog(call, reference))),
    );
}

async function listLogs(call: Call): Promise<number> {
  const items = await call.withObserver(observer => observer.logs.list());
  await call.print('acode.logs/1', { items }, look => renderLogs(items, look));
  return 0;
}

// In JSON a run by name has the shape of the list with one item, and its output in it: one schema to read.
async function showLog(call: Call, reference: string): Promise<number> {
  const log = await call.withObserver(observer => observer.logs.find(reference));
  if (call.options.json) await call.printJson('acode.logs/1', { items: [log] });
  else await replay(call, log);
  return 0;
}

async function replay(call: Call, log: SavedLog): Promise<void> {
  const { signal } = call.interruption;
  await Promise.all([pump(parts(log.stdout), call.stdout, signal), pump(parts(log.stderr), call.stderr, signal)]);
  const { stdout, stderr } = log.dropped;
  if (stdout + stderr === 0) return;
  await call.say(
    `${call.errorLook.colours.yellow('acode:')} ${formatBytes(stdout)} of standard output and ${formatBytes(stderr)} of standard error were not saved.\n`,
  );
}

/** The kept runs for a person. */
export function renderLogs(items: readonly SavedLogInfo[], look: Look): string {
  if (items.length === 0) return 'No run has saved output.\n';
  const rows = items
    .slice(0, SHOWN)
    .map(({ name, sandboxId, endedAt, exitCode, command }) => [
      name,
      sandboxId.slice(0, ID_LENGTH),
      age(endedAt, look.now),
      exitCode === null ? 'killed' : String(exitCode),
      command,
    ]);
  const more = items.length > SHOWN ? `… and ${items.length - SHOWN} older runs; --json lists them all.\n` : '';
  return table(['NAME', 'ID', 'ENDED', 'EXIT', 'COMMAND'], rows, look) + more;
}

async function* parts(text: string): AsyncGenerator<Uint8Array, void, undefined> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += PART) yield bytes.subarray(at, at + PART);
}
