// View of `acode changes`: loaded only for that command, so that other calls start faster.

import type { RecordedChanges } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import { momentOf } from '../arguments/values.ts';
import type { Since } from '../arguments/values.ts';
import type { Call } from '../call.ts';
import { shownPath } from '../execution/risky-lines.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { cut, oneLine, plural } from '../terminal/text.ts';
import { wrapped } from '../terminal/wrap.ts';

const SOME = 1;
const SHORT = 12;
const MAX_RUNS = 20;
const MAX_PATHS = 8;
const MAX_COMMAND = 200;
const INDENT = '    ';

interface ChangesOptions {
  readonly since?: Since | undefined;
  readonly all?: true | undefined;
}

/** Shows the runs that left something, and gives the exit status. */
export async function showChanges(call: Call, options: ChangesOptions): Promise<number> {
  const { signal } = call.interruption;
  const workspace = options.all ? null : (await call.place()).root;
  const from = options.since === undefined ? undefined : momentOf(options.since, call.io.now());
  const query = {
    signal,
    ...(workspace === null ? {} : { workspace }),
    ...(from === undefined ? {} : { since: from }),
  };
  const found = await call.withObserver(({ audit }) =>
    call.progress.during('Reading the audit log…', audit.changes(query)),
  );
  // The newest command first: what a reader came for is mostly the last run.
  const items = found.toReversed();
  const asked = from === undefined ? null : from instanceof Date ? from.toISOString() : from;
  await call.print('acode.changes/1', { workspace, since: asked, items }, look =>
    renderChanges(items, { workspace, since: from }, look),
  );
  return items.length === 0 ? 0 : SOME;
}

/** What was asked for. */
interface Asked {
  /** Null for every workspace. */
  readonly workspace: string | null;
  readonly since: Date | number | undefined;
}

/** The runs for a person, newest first. */
function renderChanges(items: readonly RecordedChanges[], asked: Asked, look: Look): string {
  if (items.length === 0) return lines([`No risky changes are recorded${where(asked)}${after(asked)}.`], look);
  const shown = items.slice(0, MAX_RUNS);
  const hidden = items.length - shown.length;
  const known = items.every(({ riskyChanges }) => riskyChanges.length > 0);
  const what = known ? 'left risky changes' : 'left risky changes or could not be scanned completely';
  const head = `${plural(items.length, 'run')} ${what}${where(asked)}${after(asked)}, newest first.`;
  const more = hidden > 0 ? ['', `And ${plural(hidden, 'earlier run')}; --json lists all.`] : [];
  return [
    ...wrapped(head, look.width).map(line => look.colours.bold(line)),
    ...shown.flatMap(item => ['', ...runLines(item, asked.workspace === null, look)]),
    ...more,
    '',
  ].join('\n');
}

function runLines(item: RecordedChanges, withWorkspace: boolean, look: Look): string[] {
  const { record, intent, ts, sandboxId, workspace, riskyChanges, riskyChangesTotal } = item;
  const about = [
    `record ${intent ?? record}`,
    age(ts, look.now),
    ...(sandboxId === null ? [] : [`sandbox ${oneLine(sandboxId).slice(0, SHORT)}`]),
  ].join(', ');
  const hidden = riskyChangesTotal - riskyChanges.length;
  return [
    ...wrapped(about, look.width).map(line => look.colours.cyan(line)),
    ...indented(commandText(item), look),
    ...(withWorkspace && workspace !== null ? [`${INDENT}in ${quoted(oneLine(workspace))}`] : []),
    ...grouped(riskyChanges).flatMap(([kind, paths]) => groupLines(kind, paths, look)),
    ...(hidden > 0 ? indented(`and ${hidden} more, not listed in the record`, look) : []),
    ...unscanned(item, look),
  ];
}

function commandText({ command }: RecordedChanges): string {
  if (command.length === 0)
    return 'no command: the change came after the last command of a sandbox, or while a warm sandbox waited';
  const [shell, option, line] = command;
  const text = shell === '/bin/sh' && option === '-c' && command.length === 3 ? (line ?? '') : command.join(' ');
  return `command: ${cut(oneLine(text), MAX_COMMAND)}`;
}

function groupLines(kind: string, paths: readonly string[], look: Look): string[] {
  const names = paths.slice(0, MAX_PATHS).map(shownPath).join(', ');
  const more = paths.length > MAX_PATHS ? ` and ${paths.length - MAX_PATHS} more` : '';
  return indented(`${oneLine(kind)}: ${names}${more}`, look);
}

function unscanned({ scan, scanReason }: RecordedChanges, look: Look): string[] {
  if (scan === 'complete' || scan === null) return [];
  if (scan === 'continuing')
    return indented('the scan continues in the background; its result is not recorded yet', look);
  const why = scanReason === null ? '' : `: ${oneLine(scanReason)}`;
  return indented(`not everything was scanned${why}`, look);
}

function indented(text: string, look: Look): string[] {
  const width = look.width === null ? null : Math.max(1, look.width - INDENT.length);
  return wrapped(text, width).map(line => INDENT + line);
}

function grouped(changes: RecordedChanges['riskyChanges']): [kind: string, paths: string[]][] {
  const groups = new Map<string, string[]>();
  for (const { kind, path } of changes) groups.set(kind, [...(groups.get(kind) ?? []), path]);
  return [...groups];
}

function where({ workspace }: Asked): string {
  return workspace === null ? '' : ` in ${quoted(oneLine(workspace))}`;
}

function after({ since: from }: Asked): string {
  if (from === undefined) return '';
  return from instanceof Date ? ` since ${from.toISOString().slice(0, 19)}Z` : ` after record ${from}`;
}

function lines(texts: readonly string[], look: Look): string {
  return `${texts.flatMap(text => wrapped(text, look.width)).join('\n')}\n`;
}
