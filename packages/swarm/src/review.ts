// Review of a task: what it changed, what is risky in it, and what its commands did; and the answer of a person.

import type { Acode, ForkConsent } from '@acode/sandbox';
import * as z from 'zod';
import { bringBack } from './branches.ts';
import type { Brought } from './branches.ts';
import { swarmError } from './errors.ts';
import { addStory } from './merge.ts';
import { again } from './record.ts';
import type { TaskRecord } from './record.ts';
import { SwarmSandboxes } from './sandboxes.ts';
import { taskIn } from './store.ts';
import type { SwarmStore } from './store.ts';

const MAX_PATCH = 1024 ** 2;

const reviewSchema = z.looseObject({
  commits: z.array(z.string()),
  stat: z.string(),
  patch: z.string(),
  cut: z.boolean(),
  uncommitted: z.array(z.string()),
});

/** What a task changed. All of its text was written by the task. */
export interface TaskReview {
  readonly task: TaskRecord;
  readonly commits: readonly string[];
  readonly stat: string;
  readonly patch: string;
  /** Whether the patch is longer. */
  readonly cut: boolean;
  readonly uncommitted: readonly string[];
}

/** Whose review, and where. */
export interface Reviewing {
  readonly acode: Acode;
  readonly store: SwarmStore;
  readonly id: string;
  readonly task: string;
  readonly signal: AbortSignal;
}

/** Reads what a task changed, with git in a sandbox on its fork. */
export async function reviewTask({ acode, store, id, task: name, signal }: Reviewing): Promise<TaskReview> {
  const record = store.read(id);
  const task = taskIn(record, name);
  if (task.base === null || task.status === 'running') throw notNow(task);
  const sandboxes = new SwarmSandboxes(acode, record);
  const input = { base: task.base, maxBytes: MAX_PATCH };
  const { commits, stat, patch, cut, uncommitted } = await sandboxes.ask(
    'review',
    { fork: task.fork },
    input,
    reviewSchema,
    { signal },
  );
  return { task, commits, stat, patch, cut, uncommitted };
}

/** Makes the branch of a task whose risky changes a person accepted. */
export async function acceptTask(
  { acode, store, id, task: name, signal }: Reviewing,
  consent: ForkConsent,
  protectedPaths: readonly string[],
): Promise<Brought> {
  const record = store.read(id);
  const task = taskIn(record, name);
  if (task.status !== 'completed') throw notNow(task);
  const sandboxes = new SwarmSandboxes(acode, record);
  const brought = await bringBack({ acode, sandboxes, task, signal, consent, protectedPaths });
  await store.update(id, now => {
    const found = taskIn(now, name);
    if (brought.kind === 'made') found.branchCommit = brought.commit;
    if (brought.kind === 'made' || brought.kind === 'nothing') found.attention = null;
    found.riskyChanges = brought.kind === 'risky' ? [...brought.riskyChanges] : [];
  });
  return brought;
}

/** Gives a task a comment: a further story, or more of the story that it could not finish. `resume` begins it. */
export async function commentOn(store: SwarmStore, id: string, name: string, text: string): Promise<void> {
  const task = taskIn(store.read(id), name);
  if (task.base === null || task.status === 'running' || task.status === 'pending') throw notNow(task);
  await store.update(id, record => {
    const found = taskIn(record, name);
    const open = found.stories.find(({ status }) => status !== 'completed' && status !== 'skipped');
    if (!open) addStory(found, { title: 'Review', description: text });
    else open.description = `${open.description}\n\nA person says: ${text}`.trim();
    if (open) again(found);
    found.status = 'pending';
  });
}

function notNow({ id, status, base }: TaskRecord): Error {
  return swarmError('ACODE-SWM-008', {
    what: `A review of task ${id}`,
    reason: base === null ? 'it has not begun' : `it is ${status}`,
    remedy: '`acode swarm status` shows when it has ended.',
  });
}
