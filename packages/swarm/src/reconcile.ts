// Reconciliation: what became of tasks whose orchestrator is gone, by the engine, the journal and the result file.

import type { Acode } from '@acode/sandbox';
import * as z from 'zod';
import { fromAdapterSchema } from './protocol.ts';
import type { Completion } from './protocol.ts';
import type { SwarmRecord, TaskRecord } from './record.ts';
import type { SwarmSandboxes } from './sandboxes.ts';

/** What was found of a task. */
export type Finding = 'zombie' | 'silent-completion' | 'silent-failure' | 'unexpected-stop' | 'already-started';

/** A task that is not what the record says. */
export interface Reconciled {
  readonly task: string;
  readonly finding: Finding;
  /** Its last message, where it wrote one. */
  readonly completion: Completion | null;
}

/** Where reconciliation looks. */
export interface Reconciling {
  readonly acode: Acode;
  readonly sandboxes: SwarmSandboxes;
  readonly record: SwarmRecord;
  /** Only this task. */
  readonly only?: string;
  readonly signal: AbortSignal;
}

const reportSchema = z.looseObject({
  journal: z.array(z.looseObject({ event: z.string(), containerId: z.string().optional() })),
  result: z.unknown(),
});

/** What a task left behind. */
export interface Traces {
  /** Whether the engine has a sandbox of it, of this user. */
  readonly sandbox: boolean;
  /** Whether its journal says that it began. */
  readonly began: boolean;
  /** Its result file. */
  readonly completion: Completion | null;
}

/** The finding for a task; null where the record is right. */
export function findingOf(status: TaskRecord['status'], { sandbox, began, completion }: Traces): Finding | null {
  if (status === 'pending') return sandbox ? 'already-started' : null;
  if (status !== 'running') return null;
  if (completion) {
    if (completion.payload.status === 'completed') return 'silent-completion';
    return completion.payload.status === 'failed' ? 'silent-failure' : 'unexpected-stop';
  }
  if (sandbox) return null;
  return began ? 'unexpected-stop' : 'zombie';
}

/** Compares the record with what there is. Nothing is changed, and nothing of another user is read. */
export async function reconcile({ acode, sandboxes, record, only, signal }: Reconciling): Promise<Reconciled[]> {
  const doubtful = record.tasks.filter(
    ({ id, status }) => (only === undefined || id === only) && (status === 'running' || status === 'pending'),
  );
  if (doubtful.length === 0) return [];
  const own = String(process.getuid?.());
  const there = new Set(
    (await acode.list()).filter(one => one.labels['acode.uid'] === own).map(({ taskId }) => taskId),
  );
  const forks = new Map((await acode.forks.list()).map(fork => [fork.name, fork]));
  const found: Reconciled[] = [];
  for (const task of doubtful) {
    const isThere = there.has(task.containerName);
    const fork = forks.get(task.fork);
    // A fork that a sandbox writes is not opened: it is running.
    const traces = task.status === 'running' && fork && !isThere ? await tracesIn(sandboxes, task, signal) : NOTHING;
    const finding = findingOf(task.status, { ...traces, sandbox: isThere });
    if (finding !== null) found.push({ task: task.id, finding, completion: traces.completion });
  }
  return found;
}

const NOTHING: Traces = { sandbox: false, began: false, completion: null };

async function tracesIn(sandboxes: SwarmSandboxes, task: TaskRecord, signal: AbortSignal): Promise<Traces> {
  const { journal, result } = await sandboxes.ask('report', { fork: task.fork }, {}, reportSchema, { signal });
  const parsed = fromAdapterSchema.safeParse(result);
  const isOwn = parsed.success && parsed.data.type === 'completion' && parsed.data.containerId === task.containerName;
  return {
    sandbox: false,
    began: journal.some(({ event }) => event === 'begin'),
    completion: isOwn && parsed.data.type === 'completion' ? parsed.data : null,
  };
}
