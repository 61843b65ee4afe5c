// `acode sandbox status`: shows whether sandboxes are available here.

import { formatBytes, isBoundary } from '@acode/sandbox';
import type { LevelStatus, Status } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

/** The command. */
export function statusCommand(perform: Perform) {
  return new Command('status')
    .description('Show whether sandboxes are available (exit 0) or not (exit 1)')
    .action((_options, command) => perform(command, showStatus));
}

async function showStatus(call: Call): Promise<number> {
  const { Acode } = await import('@acode/sandbox');
  const status = await call.progress.during('Asking the engine…', Acode.survey(await call.hostOptions()));
  await call.print('acode.status/1', status, look => renderStatus(status, look, call.options.verbose));
  return status.available ? 0 : 1;
}

/** Formats the status for a terminal; with `verbose`, also what to do about each level that is not available. */
export function renderStatus(status: Status, look: Look, verbose = false): string {
  const { engine, sandboxes } = status;
  const { bold, red } = look.colours;
  const headline = status.available
    ? headlineOf(status, look)
    : red(bold(`Sandbox unavailable: ${oneLine(status.unavailableReason ?? 'unknown')}`));
  const about = fields(
    [
      ...(engine ? engineFields(engine) : []),
      ['Isolation level', status.level ?? 'none'],
      ...(engine ? [['Sandboxes', countsText(sandboxes)] as const] : []),
      ['Default image', status.defaultImage],
      ...(engine ? [['Caches', oneLine(status.cacheVolumes.join(', ')) || 'none yet'] as const] : []),
      ['Workspace', status.workspace ?? 'none'],
    ],
    look,
  );
  return fitted(`${headline}\n${about}${levelsText(status.levels, look, verbose)}${hintText(status, look)}`, look);
}

function hintText({ hint }: Status, { colours: { cyan, dim } }: Look): string {
  return hint === undefined ? '' : `${dim('╰▶')} ${cyan('hint:')} ${oneLine(hint)}\n`;
}

function levelsText(levels: readonly LevelStatus[], look: Look, verbose: boolean): string {
  const { bold, dim } = look.colours;
  const rows = levels.map(level => levelField(level, verbose));
  const isMore = !verbose && levels.some(({ remedy }) => remedy !== undefined);
  const more = isMore ? `${dim('What to do about a level: `acode sandbox status --verbose`')}\n` : '';
  return `${bold('Levels, strongest first')}\n${fields(rows, look)}${more}`;
}

// Two levels provide no isolation, and the headline must not suggest that they do.
function headlineOf({ level, engine }: Status, { colours: { bold, green, yellow } }: Look): string {
  if (level !== null && !isBoundary(level))
    return yellow(bold(`No sandbox: your configuration runs commands at level ${level}, on this host as they are`));
  const what = level === 'bubblewrap' ? 'bubblewrap' : `Docker version ${engine?.version ?? 'unknown'}`;
  return green(bold(`Sandbox available: ${what}`));
}

function levelField({ level, state, by, reason, remedy }: LevelStatus, verbose: boolean): readonly [string, string] {
  const how = state === 'available' ? `available (${by})` : state;
  const why = reason === undefined ? how : `${how}: ${reason}`;
  return [level, verbose && remedy !== undefined ? `${why}. ${remedy}` : why];
}

function engineFields(engine: NonNullable<Status['engine']>): (readonly [string, string])[] {
  const runtimes = engine.runtimes.map(name => (name === engine.defaultRuntime ? `${name} (default)` : name));
  return [
    ['Engine socket', `${engine.socket} (found by ${engine.source})`],
    ['API version', engine.apiVersion],
    ['Operating system', engine.operatingSystem],
    ['CPUs', String(engine.cpus)],
    ['Memory', formatBytes(engine.memoryBytes)],
    ['Runtimes', runtimes.join(', ')],
    ['Cgroups', `version ${engine.cgroupVersion}`],
  ];
}

// Omits counts of zero.
function countsText({ running, total, owned, orphaned, expired, kept, foreign }: Status['sandboxes']): string {
  const whose = [
    [owned, 'owned by a session'],
    [orphaned, 'orphaned (the next run removes them)'],
    [expired, 'expired (the next run removes them)'],
    [kept, 'persistent'],
    [foreign, 'of other users or hosts'],
  ] as const;
  const parts = whose.flatMap(([count, what]) => (count > 0 ? [`${count} ${what}`] : []));
  return `${running} running, ${total} in total${parts.length > 0 ? `: ${parts.join(', ')}` : ''}`;
}
