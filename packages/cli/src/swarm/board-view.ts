// Rows of the swarm board: what a person sees of a swarm at a size of terminal. Text of tasks drives no terminal.

import type { SwarmRecord, TaskRecord } from '@acode/swarm';
import { formatBytes } from '@acode/sandbox';
import type { Look } from '../terminal/look.ts';
import { cut, oneLine, pad, widthOf } from '../terminal/text.ts';
import { coloured, elapsedOf, span, stateIn } from './render.ts';

/** What a task’s sandbox uses now. */
export interface Load {
  /** In CPUs; null before there are two samples. */
  readonly cpus: number | null;
  readonly memoryBytes: number;
}

/** The log of a task on the screen. */
export interface OpenLog {
  readonly task: string;
  /** Its last lines. */
  readonly lines: readonly string[];
  /** How many lines above the end the screen ends. */
  readonly above: number;
}

/** What a board shows. */
export interface Board {
  readonly record: SwarmRecord;
  readonly loads: ReadonlyMap<string, Load>;
  /** The selected task; null for the first one. */
  readonly selected: string | null;
  /** The first row of tasks that is on the screen. */
  readonly top: number;
  /** What happened last, what a key did, or a question. */
  readonly notice: string;
  readonly log: OpenLog | null;
}

type Size = { readonly columns: number; readonly rows: number };

const AROUND = 4;
const GAP = '  ';
const MIN_LAST = 10;
const MAX_TASK = 20;
const MAX_STATE = 12;
const KEYS = '↑↓ select  l log  a attach  s stop  r retry  g grant  q leave';
const SHORT_KEYS = '↑↓ log attach stop retry grant q leave';
const LOG_KEYS = '↑↓ scroll  q back';

// Those that need a person first, then those that do something.
const ORDER = ['needs-input', 'blocked-by-policy', 'idle', 'running', 'failed', 'needs-review', 'pending', 'stopped'];

/** The tasks in the order of their rows. */
export function ordered({ tasks }: Pick<SwarmRecord, 'tasks'>): TaskRecord[] {
  const rank = (task: TaskRecord): number => {
    const at = ORDER.indexOf(stateIn(task));
    return at < 0 ? ORDER.length : at;
  };
  return tasks.toSorted((one, other) => rank(one) - rank(other));
}

/** How many tasks, or lines of a log, a screen shows. */
export function roomIn({ rows }: Size, log: OpenLog | null): number {
  return Math.max(1, rows - (log ? 2 : AROUND));
}

/** The first row that is on the screen, so that the selected one is. */
export function topFor(
  at: number,
  count: number,
  { top, room }: { readonly top: number; readonly room: number },
): number {
  const first = at < top ? at : at >= top + room ? at - room + 1 : top;
  return Math.max(0, Math.min(first, count - room));
}

/** The rows of a screen; none is wider than it. */
export function boardRows(board: Board, look: Look, size: Size): string[] {
  const rows = board.log ? logRows(board.log, look, size) : taskRows(board, look, size);
  return rows.slice(0, size.rows);
}

function logRows(log: OpenLog, { colours }: Look, size: Size): string[] {
  const room = roomIn(size, log);
  const end = Math.max(0, log.lines.length - log.above);
  const shown = log.lines.slice(Math.max(0, end - room), end).map(line => cut(line, size.columns));
  const title = `Log of ${log.task}${log.above > 0 ? `, ${log.above} lines above its end` : ''}`;
  const filled = [...shown, ...Array.from({ length: room - shown.length }, () => '')];
  return [colours.bold(cut(title, size.columns)), ...filled, colours.dim(cut(LOG_KEYS, size.columns))];
}

function taskRows(board: Board, look: Look, size: Size): string[] {
  const { colours, now } = look;
  const tasks = ordered(board.record);
  const columns = columnsFor(tasks, board, size.columns, now);
  const at = Math.max(
    0,
    tasks.findIndex(({ id }) => id === board.selected),
  );
  const room = roomIn(size, null);
  const line = (cells: readonly string[]): string =>
    cut(
      cells.map((cell, index) => pad(cut(cell, columns[index]?.width ?? 0), columns[index]?.width ?? 0)).join(GAP),
      size.columns - 1,
    );
  const rows = tasks.slice(board.top, board.top + room).map((task, index) => {
    const isSelected = board.top + index === at;
    const text = line(columns.map(({ cell }) => oneLine(cell(task))));
    // The whole row has one colour: a sequence inside would have to be cut around.
    return isSelected
      ? colours.inverse(`›${pad(text, size.columns - 1)}`)
      : ` ${coloured(text.trimEnd(), stateIn(task), look)}`;
  });
  const filled = [...rows, ...Array.from({ length: Math.max(0, room - rows.length) }, () => '')];
  const heading = colours.dim(` ${line(columns.map(({ title }) => title)).trimEnd()}`);
  const said = board.notice === '' ? aboutTask(tasks[at]) : board.notice;
  return [
    colours.bold(cut(summary(board.record), size.columns)),
    heading,
    ...filled,
    cut(oneLine(said), size.columns),
    colours.dim(cut(widthOf(KEYS) > size.columns ? SHORT_KEYS : KEYS, size.columns)),
  ];
}

interface Column {
  readonly title: string;
  readonly width: number;
  readonly cell: (task: TaskRecord) => string;
}

// A screen that is too narrow has fewer columns, and the last one has what is left.
function columnsFor(tasks: readonly TaskRecord[], { loads }: Board, total: number, now: number): Column[] {
  const task = Math.min(MAX_TASK, Math.max(4, ...tasks.map(({ id }) => widthOf(id))));
  const all: (Column & { readonly isSpare?: true })[] = [
    { title: 'TASK', width: task, cell: ({ id }) => id },
    { title: 'STATE', width: MAX_STATE, cell: stateIn },
    { title: 'STORY', width: 5, cell: storyOf },
    { title: 'TIME', width: 6, cell: one => span(elapsedOf(one, now)), isSpare: true },
    { title: 'CPU', width: 5, cell: ({ id }) => percent(loads.get(id)?.cpus ?? null), isSpare: true },
    { title: 'MEMORY', width: 9, cell: ({ id }) => bytes(loads.get(id)?.memoryBytes), isSpare: true },
  ];
  const taken = (of: readonly Column[]): number => of.reduce((sum, { width }) => sum + width + GAP.length, 1);
  const kept = [...all];
  while (kept.at(-1)?.isSpare && total - taken(kept) < MIN_LAST) kept.pop();
  const room = Math.max(0, total - taken(kept) - 1);
  return [...kept, { title: 'LAST LINE', width: room, cell: whatOf }];
}

function summary({ id, state, tasks }: SwarmRecord): string {
  const count = (test: (task: TaskRecord) => boolean): number => tasks.filter(test).length;
  const counts = [
    [count(({ attention }) => attention !== null), 'need you'],
    [count(({ status }) => status === 'running'), 'running'],
    [count(({ status }) => status === 'failed'), 'failed'],
    [count(({ status }) => status === 'pending'), 'pending'],
  ] as const;
  const done = `${count(({ status }) => status === 'completed')}/${tasks.length} completed`;
  const rest = counts.filter(([number]) => number > 0).map(([number, what]) => `${number} ${what}`);
  return `Swarm ${id.slice(0, 8)}, ${state}: ${[done, ...rest].join(', ')}`;
}

// The number of the story that it is at, of all.
function storyOf({ stories }: TaskRecord): string {
  const done = stories.filter(({ status }) => status === 'completed' || status === 'skipped').length;
  const isAtOne = stories.some(({ status }) => status === 'in_progress');
  return `${Math.min(stories.length, done + (isAtOne ? 1 : 0))}/${stories.length}`;
}

function whatOf({ status, attention, branch, branchCommit, reason, detail, lastLine, waitsFor }: TaskRecord): string {
  if (waitsFor[0]) return `wants ${waitsFor[0].host}:${waitsFor[0].port}`;
  if (attention === 'needs-input') return detail;
  if (status === 'completed') return branchCommit === null ? '' : branch;
  if (status === 'running') return lastLine;
  return [reason ?? '', detail].filter(part => part !== '').join(': ');
}

// What the row has no room for.
function aboutTask(task: TaskRecord | undefined): string {
  if (!task) return '';
  const { id, title, stories } = task;
  const story = stories.find(({ status }) => status === 'in_progress');
  return `${id}: ${story ? `${story.id} ${story.title}` : title}`;
}

function percent(cpus: number | null): string {
  return cpus === null ? '' : `${Math.round(cpus * 100)}%`;
}

function bytes(count: number | undefined): string {
  return count === undefined ? '' : formatBytes(count);
}
