// A swarm as JSON for a program, and as a table for a person. Text of tasks drives no terminal.

import type { SwarmRecord, TaskRecord } from '@acode/swarm';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

/** A record as JSON for a program. */
export function shownState(record: SwarmRecord): object {
  const { id, workspace, createdAt, updatedAt, state, base, parallel, overlaps, tasks } = record;
  return { id, workspace, createdAt, updatedAt, state, base, parallel, overlaps, tasks };
}

/** The tasks of a swarm as a table. */
export function renderSwarm({ id, state, tasks, overlaps }: SwarmRecord, look: Look): string {
  const rows = tasks.map(task => [
    task.id,
    stateIn(task),
    storiesOf(task),
    span(elapsedOf(task, look.now)),
    whatOf(task),
  ]);
  const count = (status: TaskRecord['status']): number => tasks.filter(task => task.status === status).length;
  const waiting = tasks.filter(({ attention }) => attention === 'needs-review').map(task => task.id);
  const lines = [
    `Swarm ${id.slice(0, 8)} (${state}): ${count('completed')} of ${plural(tasks.length, 'task')} completed, ${count('failed')} failed, ${count('stopped')} stopped.`,
    ...overlaps
      .slice(0, 5)
      .map(
        ({ tasks: pair, path, from, to }) =>
          `Both ${pair.join(' and ')} change ${oneLine(path)}, lines ${from} to ${to}.`,
      ),
    ...neededLines(tasks).slice(0, 10),
    ...(waiting.length > 0
      ? [
          `Changes that programs of this machine might execute wait for you: \`acode swarm review ${waiting[0] ?? ''}\`.`,
        ]
      : []),
  ];
  return `${table(['TASK', 'STATE', 'STORIES', 'TIME', 'BRANCH OR REASON'], rows, look, ['TIME'])}${lines.map(line => fitted(`${line}\n`, look)).join('')}`;
}

/** The state of a task as a person is shown it. */
export function stateIn({ attention, status }: TaskRecord): string {
  return status === 'failed' ? status : (attention ?? status);
}

// What a person can do for tasks that need one.
function neededLines(tasks: readonly TaskRecord[]): string[] {
  return tasks.flatMap(({ id, attention, waitsFor }) => [
    ...(attention === 'needs-input'
      ? [`${id} asks a question. Answer: \`acode swarm review ${id} --comment <answer>\`, then \`acode swarm resume\`.`]
      : []),
    ...waitsFor.map(
      ({ id: grant, host, port }) =>
        `${id} was refused ${oneLine(host)}:${port}. Grant it: \`acode egress allow ${grant} --task\`.`,
    ),
  ]);
}

function storiesOf({ stories }: TaskRecord): string {
  return `${stories.filter(({ status }) => status === 'completed').length}/${stories.length}`;
}

/** How long the sandboxes of a task have run, in milliseconds. */
export function elapsedOf({ elapsedMs, updatedAt, status }: TaskRecord, now: number): number {
  // What it is running for now is added to the time when that has ended.
  return status === 'running' ? elapsedMs + Math.max(0, now - Date.parse(updatedAt)) : elapsedMs;
}

/** A time in few letters: `2m05s`; nothing for none. */
export function span(ms: number): string {
  if (ms === 0) return '';
  const seconds = Math.round(ms / 1000);
  const two = (count: number): string => String(count).padStart(2, '0');
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${two(seconds % 60)}s`;
  return `${Math.floor(seconds / 3600)}h${two(Math.floor((seconds % 3600) / 60))}m`;
}

/** Text in the colour of a state. */
export function coloured(text: string, state: string, { colours }: Look): string {
  if (state === 'completed') return colours.green(text);
  if (state === 'failed') return colours.red(text);
  if (state === 'running') return colours.bold(text);
  return ['needs-input', 'blocked-by-policy', 'idle', 'needs-review'].includes(state) ? colours.yellow(text) : text;
}

function whatOf({ status, branch, branchCommit, reason, detail, lastLine }: TaskRecord): string {
  if (status === 'completed') return branchCommit === null ? 'no changes on a branch' : branch;
  if (status === 'running') return lastLine;
  return [reason ?? '', detail].filter(part => part !== '').join(': ');
}
