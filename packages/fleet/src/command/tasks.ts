// `acode fleet submit`, `run`, `logs` and `cancel`: tasks of this user.

import { writeFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { RunResult } from '@acode/sandbox';
import { Fleet } from '../client/fleet.ts';
import { readFleetFile } from '../client/file.ts';
import { packWorkspace } from '../client/pack.ts';
import type { FleetTask } from '../client/task.ts';
import { present } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import type { TaskPolicy, TaskRequest } from '../tasks/spec.ts';
import { places } from './places.ts';
import type { RequestOf, Terminal } from './requests.ts';

const unpacked = promisify(gunzip);
const CANCEL_MS = 30_000;

/** Connects as the file says. Tasks are kept until their end was read, whichever command reads it. */
export async function opened(file: string | undefined, signal: AbortSignal): Promise<Fleet> {
  const { fleetFile, outbox } = places();
  return Fleet.open({ ...(await readFleetFile(file ?? fleetFile)), outbox }, signal);
}

/** `acode fleet submit`. */
export async function submit(request: RequestOf<'submit'>, terminal: Terminal): Promise<number> {
  await using fleet = await opened(request.file, terminal.signal);
  const task = await submitted(fleet, request, terminal.signal);
  terminal.value('acode.fleet-submit/1', { id: task.id });
  return 0;
}

/** `acode fleet run`: as if it ran here. A signal cancels the task. */
export async function run(request: RequestOf<'run'>, terminal: Terminal): Promise<number> {
  const { signal } = terminal;
  await using fleet = await opened(request.file, signal);
  const task = await submitted(fleet, request, signal);
  const end = (): void => void task.cancel(AbortSignal.timeout(CANCEL_MS)).catch(() => undefined);
  if (signal.aborted) end();
  signal.addEventListener('abort', end, { once: true });
  const printing = printed(task, terminal);
  const ended = await task.end();
  await printing;
  // Rejects where the command never started.
  const result = ended.result ?? (await task.result());
  const files = request.files === undefined ? null : await ended.files();
  if (request.files !== undefined && files) await writeFile(request.files, await unpacked(files), { mode: 0o600 });
  terminal.value('acode.fleet-run/1', { id: task.id, state: ended.state, attempt: ended.attempt, result });
  return statusOf(result);
}

const TIMED_OUT = 124;
const FAILED = 125;

/** The exit status that a result means. */
export function statusOf({ exitCode, timedOut }: Pick<RunResult, 'exitCode' | 'timedOut'>): number {
  return exitCode ?? (timedOut ? TIMED_OUT : FAILED);
}

/** `acode fleet logs`: from the first byte on, until the task has ended. */
export async function logs({ file, id }: RequestOf<'logs'>, terminal: Terminal): Promise<number> {
  await using fleet = await opened(file, terminal.signal);
  await printed(fleet.task(id), terminal, terminal.signal);
  return 0;
}

/** `acode fleet cancel`. */
export async function cancel({ file, id }: RequestOf<'cancel'>, terminal: Terminal): Promise<number> {
  await using fleet = await opened(file, terminal.signal);
  await fleet.task(id).cancel(terminal.signal);
  const state = (await fleet.task(id).state(terminal.signal))?.state ?? 'cancelled';
  terminal.value('acode.fleet-cancel/1', { id, state });
  return 0;
}

async function printed(task: FleetTask, terminal: Terminal, signal?: AbortSignal): Promise<void> {
  for await (const { stream, bytes } of task.logs(signal)) await terminal.output(stream, bytes);
}

async function submitted(
  fleet: Fleet,
  request: RequestOf<'submit'> | RequestOf<'run'>,
  signal: AbortSignal,
): Promise<FleetTask> {
  const { command, workspace, stdin, files, attempts, id, pool, priority, env, cwd } = request;
  const packed = workspace === null ? {} : { workspace: await packWorkspace(workspace) };
  const task: TaskRequest = {
    ...packed,
    ...present({ id, pool, priority, env, cwd }),
    ...(attempts === undefined ? {} : { maxAttempts: attempts }),
    ...(files === undefined ? {} : { files: true }),
    ...(stdin ? { stdin: await input() } : {}),
    policy: policyOf(request),
  };
  return fleet.submit(command, task, signal);
}

async function input(): Promise<string> {
  return text(pipedInput());
}

/** Standard input, if it is piped in. */
export function pipedInput(): NodeJS.ReadStream {
  if (process.stdin.isTTY)
    throw FLEET_ERRORS.create('ACODE-FLT-008', { field: 'stdin', reason: 'is a terminal: pipe the input in' });
  return process.stdin;
}

/** The policy that options ask for. */
export function policyOf(request: RequestOf<'submit'> | RequestOf<'run'> | RequestOf<'create'>): TaskPolicy {
  const { image, level, timeoutMs, memoryBytes, cpus, pids, allow } = request;
  return {
    ...present({ image, level, timeoutMs }),
    limits: present({ memoryBytes, cpus, pids }),
    ...(allow === undefined ? {} : { network: { allow } }),
  };
}
