// `acode sandbox status`: shows whether sandboxes are available here.

import { formatBytes, isBoundary } from '@acode/sandbox';
import type { LevelStatus, Status } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';

/** The command. */
export function statusCommand(perform: Perform) {
  return new Command('status')
    .description('Show whether sandboxes are available (exit 0) or not (exit 1)')
    .action((_options, command) => perform(command, showStatus));
}

async function showStatus(call: Call): Promise<number> {
  const status = await call.withObserver(observer => call.progress.during('Asking the engine…', observer.status()));
  await call.print('acode.status/1', status, look => renderStatus(status, look));
  return status.available ? 0 : 1;
}

/** Formats the status for a terminal. */
export function renderStatus(status: Status, look: Look): string {
  const { engine, sandboxes } = status;
  const { bold, cyan, dim, red } = look.colours;
  const headline = status.available
    ? headlineOf(status, look)
    : red(bold(`Sandbox Unavailable: ${oneLine(status.unavailableReason ?? 'unknown')}`));
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
  const levels = `${bold('Levels, strongest first')}\n${fields(status.levels.map(levelField), look)}`;
  const hint = status.hint === undefined ? '' : `${dim('╰▶')} ${cyan('hint:')} ${oneLine(status.hint)}\n`;
  return `${headline}\n${about}${levels}${hint}`;
}

// Two levels provide no isolation, and the headline must not suggest that they do.
function headlineOf({ level, engine }: Status, { colours: { bold, green, yellow } }: Look): string {
  if (level !== null && !isBoundary(level))
    return yellow(bold(`No Sandbox: your configuration runs commands at level ${level}, on this host as they are`));
  const what = level === 'bubblewrap' ? 'bubblewrap' : `Docker version ${engine?.version ?? 'unknown'}`;
  return green(bold(`Sandbox Available: ${what}`));
}

function levelField({ level, state, by, reason }: LevelStatus): readonly [string, string] {
  const how = state === 'available' ? `available (${by})` : state;
  return [level, reason === undefined ? how : `${how}: ${reason}`];
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
