// One attempt at a task: its sandbox, the conversation with the adapter in it, and how it ended.

import { AcodeError } from '@acode/sandbox';
import type { RunResult, RunningCommand } from '@acode/sandbox';
import {
  LineReader,
  MAX_LINE_BYTES,
  PROTOCOL_VERSION,
  ProtocolViolation,
  Transcript,
  parseFromAdapter,
} from './protocol.ts';
import type { AdapterMessage, Completion, TaskRequest } from './protocol.ts';
import { isAcodeError } from './errors.ts';
import type { ProtocolFault } from './errors.ts';
import type { TaskRecord } from './record.ts';
import type { ReadyAgent } from './agents.ts';
import { MAX_MESSAGES_BYTES, isInfrastructure } from './sandboxes.ts';
import type { StartedTask, SwarmSandboxes } from './sandboxes.ts';

/** How an attempt ended. */
export type AttemptEnd =
  | { readonly kind: 'completion'; readonly message: Completion; readonly result: RunResult }
  | { readonly kind: 'deadline'; readonly result: RunResult }
  | {
      readonly kind: 'violation';
      readonly fault: ProtocolFault;
      readonly detail: string;
      readonly result: RunResult | null;
    }
  /** The adapter ended, or its sandbox was lost, and there was no completion. */
  | { readonly kind: 'silent'; readonly result: RunResult }
  | { readonly kind: 'fault'; readonly error: AcodeError }
  | { readonly kind: 'refused'; readonly error: AcodeError };

/** Who watches an attempt. */
export interface AttemptWatch {
  readonly onMessage: (message: AdapterMessage) => Promise<void>;
  readonly onOutput: (bytes: Uint8Array) => void;
  /** Aborted to stop the task: the agent gets a moment. */
  readonly stop: AbortSignal;
  /** Aborted when the orchestrator ends. */
  readonly signal: AbortSignal;
}

const STOP_MS = 8000;

/** What a task begins with. */
export interface TaskStart {
  readonly swarmId: string;
  readonly base: string;
  readonly merge: readonly string[];
}

function requestFor(task: TaskRecord, { swarmId, base, merge }: TaskStart, agent: ReadyAgent | null): TaskRequest {
  return {
    type: 'task-request',
    version: PROTOCOL_VERSION,
    timestamp: new Date().toISOString(),
    swarmId,
    containerId: task.containerName,
    payload: {
      taskFilePath: task.file,
      branchName: task.branch,
      envVars: task.env,
      task: {
        id: task.id,
        title: task.title,
        description: task.description,
        base,
        merge: [...merge],
        stories: task.stories.map(({ id, title, description, acceptance }) => ({ id, title, description, acceptance })),
        command: [...(agent?.command ?? task.command)],
        ...(agent?.resume ? { resume: [...agent.resume] } : {}),
        attempts: task.attempts,
        ...(task.keepChanges ? { keep: true } : {}),
      },
    },
  };
}

// What its sandbox ended with is known by then.
async function disposed(running: RunningCommand): Promise<void> {
  try {
    await running[Symbol.asyncDispose]();
  } catch {
    // The reaper removes what is left.
  }
}

/** Makes one attempt. */
export async function attempt(
  sandboxes: SwarmSandboxes,
  task: TaskRecord,
  { start, remainingMs }: { readonly start: TaskStart; readonly remainingMs: number },
  watch: AttemptWatch,
): Promise<AttemptEnd> {
  const over = new AbortController();
  const signal = AbortSignal.any([watch.signal, over.signal]);
  let started: StartedTask;
  try {
    started = await sandboxes.task(task, remainingMs, signal);
  } catch (error) {
    return failed(error);
  }
  const { running, agent } = started;
  const request = requestFor(task, start, agent);
  const transcript = new Transcript(
    request,
    request.payload.task.stories.map(({ id }) => id),
  );
  let timer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    running.kill('SIGTERM').catch(() => undefined);
    timer = setTimeout(() => over.abort(), STOP_MS);
  };
  watch.stop.addEventListener('abort', stop, { once: true });
  if (watch.stop.aborted) stop();
  try {
    const talk = converse(running, transcript, watch).catch((error: unknown) => {
      // Nothing that comes after it is believed.
      over.abort();
      return error;
    });
    const logged = drain(running, watch);
    running.write(`${JSON.stringify(request)}\n`).catch(() => undefined);
    const [trouble, result] = await Promise.all([talk, resultOf(running), logged]);
    return endOf(trouble, result, transcript);
  } finally {
    clearTimeout(timer);
    watch.stop.removeEventListener('abort', stop);
    await disposed(running);
  }
}

function endOf(trouble: unknown, result: RunResult | AcodeError, transcript: Transcript): AttemptEnd {
  if (trouble instanceof ProtocolViolation)
    return {
      kind: 'violation',
      fault: trouble.fault,
      detail: trouble.message,
      result: result instanceof AcodeError ? null : result,
    };
  if (result instanceof AcodeError) return failed(result);
  if (transcript.completion) return { kind: 'completion', message: transcript.completion, result };
  return result.timedOut ? { kind: 'deadline', result } : { kind: 'silent', result };
}

// A cancelled run rejects with what it had: that is its result.
async function resultOf(running: RunningCommand): Promise<RunResult | AcodeError> {
  try {
    return await running.result;
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    if (!error.is('ACODE-SBX-014')) return error;
    const { result } = error.context;
    return result && result.level !== 'web' ? result : error;
  }
}

function failed(error: unknown): AttemptEnd {
  if (!isAcodeError(error)) throw error;
  return isInfrastructure(error) || error.is('ACODE-SBX-014') ? { kind: 'fault', error } : { kind: 'refused', error };
}

// One message after the other: while one is being written down, no further byte is read.
async function converse(running: RunningCommand, transcript: Transcript, watch: AttemptWatch): Promise<void> {
  const reader = new LineReader(MAX_LINE_BYTES);
  let bytes = 0;
  for await (const chunk of running.stdout) {
    bytes += chunk.byteLength;
    if (bytes > MAX_MESSAGES_BYTES)
      throw new ProtocolViolation('flood', `its messages are more than ${MAX_MESSAGES_BYTES} bytes`);
    for (const line of reader.feed(chunk)) await watch.onMessage(transcript.accept(parseFromAdapter(line)));
  }
  // A sandbox that was ended may have been in the middle of a message.
  if (transcript.completion) reader.end();
}

async function drain(running: RunningCommand, { onOutput }: AttemptWatch): Promise<void> {
  for await (const chunk of running.stderr) onOutput(chunk);
}
