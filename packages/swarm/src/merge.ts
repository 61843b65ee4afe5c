// Merge of a swarm: its branches, one after the other, in a sandbox on a fork. The host only gets a new branch, or moves one.

import type { Acode, ForkConsent } from '@acode/sandbox';
import * as z from 'zod';
import { bringBack, readBranches } from './branches.ts';
import type { Brought } from './branches.ts';
import { swarmError } from './errors.ts';
import { branchProblem } from './names.ts';
import { forkOf } from './plan.ts';
import type { SwarmRecord, TaskRecord } from './record.ts';
import { SwarmSandboxes } from './sandboxes.ts';
import { taskIn } from './store.ts';
import type { SwarmStore } from './store.ts';

const MERGE_MS = 4 * 3_600_000;
const MAX_ACCEPTANCE = 50;

const answerSchema = z.looseObject({
  tip: z.string().regex(/^[0-9a-f]{40}$/),
  outcomes: z.array(
    z.looseObject({
      id: z.string(),
      merged: z.boolean(),
      commits: z.int().optional(),
      conflict: z.array(z.string()).optional(),
      acceptance: z.string().optional(),
      reason: z.string().optional(),
    }),
  ),
});

/** What became of one task in a merge. */
export type MergeOutcome = z.infer<typeof answerSchema>['outcomes'][number];

/** What a merge did. */
export interface MergeReport {
  /** The branch that it made or moved. */
  readonly branch: string;
  /** The commit that it began at. */
  readonly from: string;
  /** The commit that it ended at. */
  readonly tip: string;
  readonly outcomes: readonly MergeOutcome[];
  /** What became of the branch; null with `check`, and where nothing was merged. */
  readonly brought: Brought | null;
}

/** What is merged, and where. */
export interface Merging {
  readonly acode: Acode;
  readonly store: SwarmStore;
  readonly id: string;
  readonly signal: AbortSignal;
  /** Branch that the commits go to; by default one of the swarm. */
  readonly into?: string;
  /** Reports what would be merged, and changes nothing. */
  readonly check?: boolean;
  readonly consent?: ForkConsent;
  readonly protectedPaths?: readonly string[];
  /** What the programs print. */
  readonly show?: (bytes: Uint8Array) => void;
}

/** Merges the branches of completed tasks. A task that conflicts, or whose acceptance commands fail then, is left out and opened again. */
export async function mergeSwarm(merging: Merging): Promise<MergeReport> {
  const { store, id } = merging;
  const report = await store.alone(id, () => merged(merging, store.read(id)));
  if (report) return report;
  throw swarmError('ACODE-SWM-008', {
    what: 'A merge',
    reason: `swarm ${id.slice(0, 8)} is running`,
    remedy: 'Wait for its end, or stop it: `acode swarm stop`.',
  });
}

async function merged(merging: Merging, record: SwarmRecord): Promise<MergeReport> {
  const { acode, store, id, signal, check = false } = merging;
  const { branch, done } = checkedMerge(merging, record);
  const sandboxes = new SwarmSandboxes(acode, record);
  const refs = await readBranches(sandboxes, signal);
  const from = startOf(record, refs, branch);
  const fork = `${forkOf(id)}-merge`;
  await discardFork(acode, fork);
  await acode.forks.create({ from: `${forkOf(id)}@ready`, name: fork });
  const { tip, outcomes } = await mergedIn(sandboxes, merging, { fork, from, done });
  const report = { branch, from, tip, outcomes };
  if (check || tip === from) {
    await discardFork(acode, fork);
    return { ...report, brought: null };
  }
  const brought = await mergedBack(merging, sandboxes, {
    ...taskIn(record, done[0]?.id ?? ''),
    fork,
    branch,
    base: from,
    commit: tip,
    branchCommit: refs[branch] ?? null,
  });
  const at = brought.kind === 'made' ? tip : from;
  if (brought.kind === 'made') await discardFork(acode, fork);
  await store.update(id, now => {
    for (const outcome of outcomes) if (!outcome.merged) reopen(taskIn(now, outcome.id), outcome, at);
  });
  return { ...report, brought };
}

function mergedBack(
  { acode, signal, consent, protectedPaths }: Merging,
  sandboxes: SwarmSandboxes,
  task: TaskRecord,
): Promise<Brought> {
  const accepted = { ...(consent ? { consent } : {}), ...(protectedPaths ? { protectedPaths } : {}) };
  return bringBack({ acode, sandboxes, signal, task, ...accepted });
}

// The branch as it is, else the one that the swarm began at as it is now.
function startOf({ base, baseBranch }: SwarmRecord, refs: Readonly<Record<string, string>>, branch: string): string {
  return refs[branch] ?? refs[baseBranch ?? ''] ?? base ?? '';
}

function checkedMerge(
  { id, into }: Merging,
  record: SwarmRecord,
): { readonly branch: string; readonly done: TaskRecord[] } {
  const branch = into ?? `acode/${id.slice(0, 8)}/merged`;
  const problem = branchProblem(branch);
  if (problem !== null) throw swarmError('ACODE-SWM-004', { what: 'branch', value: branch, reason: problem });
  const done = inOrder(record).filter(({ status, branchCommit }) => status === 'completed' && branchCommit !== null);
  if (done.length > 0) return { branch, done };
  throw swarmError('ACODE-SWM-008', {
    what: 'A merge',
    reason: 'no task has a branch',
    remedy: '`acode swarm status` shows the tasks, `acode swarm review` what they changed.',
  });
}

async function discardFork(acode: Acode, fork: string): Promise<void> {
  if ((await acode.forks.list()).some(({ name }) => name === fork)) await acode.forks.discard(fork);
}

interface MergeInput {
  readonly fork: string;
  readonly from: string;
  readonly done: readonly TaskRecord[];
}

async function mergedIn(
  sandboxes: SwarmSandboxes,
  { signal, show }: Merging,
  { fork, from, done }: MergeInput,
): Promise<z.infer<typeof answerSchema>> {
  const tasks = done.map(({ id, base, branchCommit, env, stories }) => {
    const acceptance = stories.flatMap(story => story.acceptance).slice(0, MAX_ACCEPTANCE);
    return { id, base, commit: branchCommit, env, acceptance };
  });
  const limits = done.map(task => ({ ...task.limits, allow: [] })).slice(0, 1);
  const where = { fork, timeoutMs: MERGE_MS, ...(limits[0] ? { limits: limits[0] } : {}) };
  const options = { signal, ...(show ? { show } : {}) };
  const input = { tip: from, branch: 'acode-merge', tasks };
  const { tip, outcomes } = await sandboxes.ask('merge', where, input, answerSchema, options);
  return { tip, outcomes: outcomes.filter(outcome => done.some(task => task.id === outcome.id)) };
}

// A task after those that it depends on.
function inOrder({ tasks }: SwarmRecord): TaskRecord[] {
  const ordered: TaskRecord[] = [];
  const add = (task: TaskRecord): void => {
    if (ordered.includes(task)) return;
    for (const other of tasks) if (task.dependsOn.includes(other.id)) add(other);
    ordered.push(task);
  };
  for (const task of tasks) add(task);
  return ordered;
}

function reopen(task: TaskRecord, { conflict, acceptance, reason = '' }: MergeOutcome, tip: string): void {
  const why = conflict
    ? `conflicts in ${conflict.join(', ')}`
    : `after the merge, ${acceptance ?? 'a command'} failed: ${reason}`;
  addStory(task, {
    title: `Merge ${tip.slice(0, 12)}`,
    description: `Merge commit ${tip} into this branch with \`git merge ${tip}\`, and resolve what is in the way: ${why}`,
  });
  task.reason = conflict ? 'conflict' : 'acceptance';
}

/** Adds a story to a task that has ended, and opens it again. Its acceptance commands are those of the whole task. */
export function addStory(
  task: TaskRecord,
  { title, description }: { readonly title: string; readonly description: string },
): void {
  const last = Math.max(0, ...task.stories.map(({ id }) => Number(id.slice(3))));
  const acceptance = [...new Set(task.stories.flatMap(story => story.acceptance))].slice(0, MAX_ACCEPTANCE);
  task.stories.push({
    id: `US-${String(last + 1).padStart(3, '0')}`,
    title: title.slice(0, 200),
    description,
    acceptance,
    status: 'pending',
    commit: null,
  });
  task.status = 'pending';
  task.elapsedMs = 0;
  task.faults = 0;
  task.attention = null;
  task.endedAt = null;
}
