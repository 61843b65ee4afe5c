// Record of a swarm: the one truth about its tasks, in the user’s state directory, where no sandbox can write it.

import * as z from 'zod';
import { isContainerName } from './names.ts';

const commit = z.string().regex(/^[0-9a-f]{40}$/);
const time = z.iso.datetime();

/** The states of a task. */
export const TASK_STATUSES = ['pending', 'running', 'completed', 'failed', 'stopped'] as const;
/** The state of a task. */
export type TaskStatus = (typeof TASK_STATUSES)[number];

/** Why a task is in its state, as data. */
export const REASONS = [
  'agent',
  'deadline',
  'protocol',
  'infrastructure',
  'refused',
  'branch',
  'dependency',
  'zombie',
  'interrupted',
  'asked',
  'conflict',
  'acceptance',
  'input',
  'attached',
] as const;
/** Why a task is in its state. */
export type Reason = (typeof REASONS)[number];

/** What a person is needed for. */
export type Attention = 'needs-review' | 'blocked-by-policy' | 'needs-input' | 'idle';

const regionSchema = z.strictObject({ path: z.string(), from: z.int(), to: z.int() });

const grantSchema = z.strictObject({ id: z.string(), host: z.string(), port: z.int(), entry: z.string() });

const storySchema = z.strictObject({
  id: z.string(),
  title: z.string(),
  description: z.string(),
  acceptance: z.array(z.string()),
  status: z.enum(['pending', 'in_progress', 'completed', 'failed', 'skipped']),
  commit: commit.nullable(),
});

const taskSchema = z.strictObject({
  id: z.string(),
  file: z.string(),
  title: z.string(),
  description: z.string(),
  branch: z.string(),
  fork: z.string(),
  containerName: z.string().refine(isContainerName),
  /** The agent that gets its stories; null for a command. */
  agent: z.string().nullable().default(null),
  command: z.array(z.string()),
  attempts: z.int(),
  env: z.record(z.string(), z.string()),
  dependsOn: z.array(z.string()),
  touches: z.array(z.string()),
  limits: z.strictObject({
    memoryBytes: z.int(),
    swapBytes: z.int(),
    cpus: z.number(),
    pids: z.int(),
    timeoutMs: z.int(),
    allow: z.array(z.string()),
  }),
  status: z.enum(TASK_STATUSES),
  reason: z.enum(REASONS).nullable(),
  detail: z.string(),
  attention: z.enum(['needs-review', 'blocked-by-policy', 'needs-input', 'idle']).nullable(),
  stories: z.array(storySchema),
  /** Commit that the task began at; null while it has not begun. */
  base: commit.nullable(),
  /** Last commit of the task, as its adapter reports it. */
  commit: commit.nullable(),
  /** Commit that its branch has in the user’s repository; null for no branch. */
  branchCommit: commit.nullable(),
  riskyChanges: z.array(z.strictObject({ path: z.string(), kind: z.string(), reason: z.string() })),
  changes: z.array(regionSchema),
  faults: z.int(),
  createdAt: time,
  updatedAt: time,
  startedAt: time.nullable(),
  endedAt: time.nullable(),
  /** Time that its sandboxes have run, in milliseconds. */
  elapsedMs: z.int(),
  requests: z.int(),
  denials: z.array(z.string()),
  /** Hosts that were refused to it, and that a person could grant. */
  waitsFor: z.array(grantSchema).max(20).default([]),
  /** Whether its work tree stays as it is when it goes on: a person has worked in it. */
  keepChanges: z.boolean().default(false),
  lastLine: z.string(),
});

/** The record of a swarm. */
export const recordSchema = z.strictObject({
  schema: z.literal('acode.swarm/1'),
  id: z.uuidv4(),
  workspace: z.string(),
  createdAt: time,
  updatedAt: time,
  state: z.enum(['preparing', 'running', 'paused', 'stopping', 'finished']),
  base: commit.nullable(),
  baseBranch: z.string().nullable(),
  image: z.string().nullable(),
  setup: z.array(z.string()),
  parallel: z.int().min(1),
  /** Digests of the readable copy: as it is to be now, and as it was before that. */
  copy: z.array(z.string()).max(2),
  overlaps: z.array(
    z.strictObject({
      tasks: z.tuple([z.string(), z.string()]),
      path: z.string(),
      from: z.int(),
      to: z.int(),
      at: time,
    }),
  ),
  tasks: z.array(taskSchema),
});

export type SwarmRecord = z.infer<typeof recordSchema>;
export type TaskRecord = z.infer<typeof taskSchema>;

const NEXT: Readonly<Record<TaskStatus, readonly TaskStatus[]>> = {
  pending: ['running', 'stopped', 'failed', 'completed'],
  running: ['completed', 'failed', 'stopped', 'pending'],
  // A person, or `resume`, may begin it again.
  completed: ['pending'],
  failed: ['pending'],
  stopped: ['pending'],
};

/** Whether a task may go from one state to another. `begun` again by a person, a fault of the engine, or `resume`. */
export function mayBecome(from: TaskStatus, to: TaskStatus): boolean {
  return from === to || NEXT[from].includes(to);
}

/** Whether a task has ended. */
export function isTerminal(status: TaskStatus): boolean {
  return status === 'completed' || status === 'failed' || status === 'stopped';
}

/** How many stories of a task are in which state. */
export function progressOf({ stories }: Pick<TaskRecord, 'stories'>): Record<string, number> {
  const count = (status: TaskRecord['stories'][number]['status']): number =>
    stories.filter(story => story.status === status).length;
  return {
    total: stories.length,
    completed: count('completed'),
    failed: count('failed'),
    inProgress: count('in_progress'),
    pending: count('pending'),
    skipped: count('skipped'),
  };
}

/** The regions that two tasks both changed. */
export function overlapsOf(
  one: readonly z.infer<typeof regionSchema>[],
  other: readonly z.infer<typeof regionSchema>[],
): { path: string; from: number; to: number }[] {
  const found = new Map<string, { path: string; from: number; to: number }>();
  for (const left of one)
    for (const right of other) {
      if (left.path !== right.path || left.from > right.to || right.from > left.to || found.has(left.path)) continue;
      found.set(left.path, { path: left.path, from: Math.max(left.from, right.from), to: Math.min(left.to, right.to) });
    }
  return [...found.values()];
}

/** Makes a task ready to go on after a person worked in its fork: what is not committed there stays. */
export function goesOn(task: TaskRecord): void {
  again(task);
  task.keepChanges = true;
}

/** Makes a task ready to be begun again: with all of its time, from its last commit. */
export function again(task: TaskRecord): void {
  task.elapsedMs = 0;
  task.faults = 0;
  task.attention = null;
  task.waitsFor = [];
  for (const story of task.stories) if (story.status !== 'completed') story.status = 'pending';
}

const stateEntry = z.strictObject({
  containerId: z.string(),
  containerName: z.string(),
  taskFilePath: z.string(),
  branchName: z.string(),
  status: z.enum(TASK_STATUSES),
  prUrl: z.string().nullable(),
  storyProgress: z.strictObject({
    total: z.int(),
    completed: z.int(),
    failed: z.int(),
    inProgress: z.int(),
    pending: z.int(),
    skipped: z.int(),
  }),
  createdAt: time,
  updatedAt: time,
});

/** The readable copy of a record: `.agent/swarm-state.json`. */
export const stateCopySchema = z.strictObject({
  schema: z.literal('acode.swarm-state/1'),
  swarmId: z.uuidv4(),
  createdAt: time,
  updatedAt: time,
  containers: z.array(stateEntry),
});

/** What the readable copy of a record has. */
export function copyOf(record: SwarmRecord): z.infer<typeof stateCopySchema> {
  return {
    schema: 'acode.swarm-state/1',
    swarmId: record.id,
    createdAt: record.createdAt,
    updatedAt: record.updatedAt,
    containers: record.tasks.map(task => {
      const { total = 0, completed = 0, failed = 0, inProgress = 0, pending = 0, skipped = 0 } = progressOf(task);
      return {
        containerId: task.containerName,
        containerName: task.containerName,
        taskFilePath: task.file,
        branchName: task.branch,
        status: task.status,
        prUrl: null,
        storyProgress: { total, completed, failed, inProgress, pending, skipped },
        createdAt: task.createdAt,
        updatedAt: task.updatedAt,
      };
    }),
  };
}
