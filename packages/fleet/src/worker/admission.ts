// Admission of a task on a worker: its signature, its names, and its policy within what the worker’s file allows.

import { isAtLeast } from '@acode/sandbox';
import type { PolicyInput } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { QueuedTask } from '../engine/engine.ts';
import { verified } from '../tasks/signature.ts';
import { MAX_OUTPUT, parseSpec } from '../tasks/spec.ts';
import type { SandboxSpec, TaskSpec } from '../tasks/spec.ts';
import { mayUseImage } from './file.ts';
import type { WorkerFile } from './file.ts';

// Shorter than final states are kept: a signed task cannot be played again when its result is forgotten.
const MAX_AGE_MS = 6 * 86_400_000;
const MAX_AHEAD_MS = 10 * 60_000;
/** Bytes of each output stream that the log has. */
const LOG_BYTES = 10 * 1024 ** 2;

/** The task, if a key of its tenant has signed exactly this one. */
export function admittedSpec(
  { tenants }: { readonly tenants: ReadonlyMap<string, { readonly keys: readonly string[] }> },
  task: QueuedTask,
  now: number,
): TaskSpec | SandboxSpec {
  const { tenant } = task;
  const refuse = (reason: string): never => {
    throw FLEET_ERRORS.create('ACODE-FLT-009', { tenant, reason });
  };
  const registered = tenants.get(tenant)?.keys ?? refuse('there is no such tenant here');
  const body = verified('task', task.body, registered) ?? refuse('no registered key of this tenant has signed it');
  const spec = parseSpec(body);
  const names = ['tenant', 'id', 'pool', 'priority'] as const;
  if (names.some(name => spec[name] !== task[name])) refuse('what was signed is another task');
  const age = now - Date.parse(spec.submittedAt);
  if (age > MAX_AGE_MS || age < -MAX_AHEAD_MS) refuse('it was signed too long ago, or by a clock that is wrong');
  return spec;
}

/** The policy of a task for the library. The library’s own configuration bounds it once more. */
export function admittedPolicy(file: WorkerFile, { policy = {} }: Pick<TaskSpec, 'policy'>): PolicyInput {
  const image = policy.image ?? defaultImage(file);
  if (!mayUseImage(file.images, image))
    throw FLEET_ERRORS.create('ACODE-FLT-008', {
      field: 'policy.image',
      reason: 'names an image that this pool does not list',
    });
  const level = policy.level ?? file.level;
  if (!isAtLeast(level, file.level))
    throw FLEET_ERRORS.create('ACODE-FLT-008', {
      field: 'policy.level',
      reason: `is below ${file.level}, which this pool needs`,
    });
  const { timeoutMs, onOutOfMemory, network = 'none' } = policy;
  // Written field by field: nothing of the task’s is passed on that is not named here.
  return {
    image,
    level,
    network: network === 'none' ? 'none' : { allow: [...network.allow] },
    limits: { ...policy.limits, outputBytes: LOG_BYTES },
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(onOutOfMemory === undefined ? {} : { onOutOfMemory }),
    workspace: 'fork',
    caches: false,
    ports: [],
    mounts: [],
    services: {},
  };
}

/** Bytes of each output stream that the result of a task has. */
export function outputBytesOf({ policy }: TaskSpec): number {
  return policy?.limits?.outputBytes ?? MAX_OUTPUT;
}

function defaultImage({ images }: WorkerFile): string {
  const image = images.find(one => !one.endsWith('*'));
  if (image === undefined)
    throw FLEET_ERRORS.create('ACODE-FLT-008', {
      field: 'policy.image',
      reason: 'is missing, and this pool has no default',
    });
  return image;
}
