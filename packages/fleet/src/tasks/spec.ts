// Task: what a submitter asks for. Built from an allow-list, so that no field can name anything of the machine that will run it.

import * as z from 'zod';
import { FLEET_ERRORS } from '../errors.ts';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import type { Priority } from '../engine/names.ts';

const MAX_ARGUMENTS = 1000;
const MAX_VARIABLES = 200;
/** The most bytes of standard input. */
export const MAX_STDIN = 64 * 1024;
/** The most bytes of each output stream in a result; the log has more. */
export const MAX_OUTPUT = 32 * 1024;
const MAX_HOSTS = 200;
const MAX_ATTEMPTS = 5;
const DAY_MS = 86_400_000;

const count = z.int().positive();
const text = z.string().max(128 * 1024);

// A policy of the library has more fields. What is not here would reach the worker’s host or another tenant: mounts, ports, services,
// credentials, caches, users, runtimes, profiles, names of forks, directories that stay. A field is added here or it is refused.
const policySchema = z.strictObject({
  image: z.string().max(300).optional(),
  level: z.enum(['docker', 'gvisor', 'microvm']).optional(),
  limits: z
    .strictObject({
      memoryBytes: count.optional(),
      cpus: z.number().positive().optional(),
      pids: count.optional(),
      openFiles: count.optional(),
      tmpBytes: count.optional(),
      outputBytes: count.max(MAX_OUTPUT).optional(),
    })
    .optional(),
  timeoutMs: count.max(DAY_MS).optional(),
  onOutOfMemory: z.enum(['report', 'end']).optional(),
  network: z
    .union([z.literal('none'), z.strictObject({ allow: z.array(z.string().max(300)).max(MAX_HOSTS) })])
    .optional(),
});

/** A command: one line for the shell, or a program with its arguments. */
export const commandSchema = z.union([text, z.array(text).min(1).max(MAX_ARGUMENTS)]);
/** The working directory of a command. */
export const cwdSchema = z.string().max(4096);
/** The environment of a command. */
export const envSchema = z.record(z.string().max(256), text).refine(env => Object.keys(env).length <= MAX_VARIABLES);

const common = {
  schema: z.literal('acode.fleet.task/1'),
  tenant: z.string(),
  id: z.string(),
  pool: z.string(),
  priority: z.enum(['high', 'normal', 'low']),
  submittedAt: z.iso.datetime(),
  env: envSchema.optional(),
  risk: z.enum(['low', 'medium', 'high', 'critical']).optional(),
  policy: policySchema.optional(),
  workspace: z.strictObject({ hash: z.string().regex(/^[0-9a-f]{64}$/), bytes: count.max(MAX_BLOB_BYTES) }).optional(),
};

const specSchema = z.strictObject({
  ...common,
  command: commandSchema,
  cwd: cwdSchema.optional(),
  stdin: z.string().max(MAX_STDIN).optional(),
  files: z.boolean().optional(),
  maxAttempts: count.max(MAX_ATTEMPTS).optional(),
});

const sandboxSchema = z.strictObject({
  ...common,
  /** How long the sandbox may exist, and how long without a message. */
  sandbox: z.strictObject({ expiresInMs: count.max(DAY_MS), idleMs: count.max(DAY_MS) }),
});

/** The policy of a task: the fields of the library’s that name nothing of a worker’s machine. */
export interface TaskPolicy {
  /** The image; one of those that the worker’s file lists. By default the worker’s own. */
  readonly image?: string | undefined;
  /** The isolation level: the worker’s own or a stronger one. */
  readonly level?: 'docker' | 'gvisor' | 'microvm' | undefined;
  /** Limits, below the worker’s own. */
  readonly limits?:
    | {
        /** Memory of all processes together, in bytes. */
        readonly memoryBytes?: number | undefined;
        /** CPUs. */
        readonly cpus?: number | undefined;
        /** Processes and threads at once. */
        readonly pids?: number | undefined;
        /** Open files of each process. */
        readonly openFiles?: number | undefined;
        /** Size of `/tmp` and of the home directory each, in bytes. */
        readonly tmpBytes?: number | undefined;
        /** Bytes of each output stream that the result has, at most 32 KiB, which is the default. The log has more. */
        readonly outputBytes?: number | undefined;
      }
    | undefined;
  /** The time limit of the command, in milliseconds. */
  readonly timeoutMs?: number | undefined;
  /** Whether a command ends as a whole when the kernel kills one of its processes for lack of memory. */
  readonly onOutOfMemory?: 'report' | 'end' | undefined;
  /** No network, or hosts of an allow-list. */
  readonly network?:
    | 'none'
    | {
        /** Presets and hosts. */
        readonly allow: readonly string[];
      }
    | undefined;
}

/** What a submitter says about a task besides its command. */
export interface TaskRequest {
  /** The task’s id: 1 to 64 letters, digits, `_` and `-`. Submitting the same id again never runs it twice. Random by default. */
  readonly id?: string;
  /** The pool; `default` by default. */
  readonly pool?: string;
  /** How urgent it is; `normal` by default. */
  readonly priority?: Priority;
  /** Working directory, relative to the workspace. */
  readonly cwd?: string | undefined;
  /** Environment of the command. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** What the command reads from standard input, at most 64 KiB of text. */
  readonly stdin?: string | undefined;
  /** How dangerous you believe the command to be. */
  readonly risk?: 'low' | 'medium' | 'high' | 'critical' | undefined;
  /** The policy, clamped by the worker’s own configuration. */
  readonly policy?: TaskPolicy | undefined;
  /** The workspace: bytes that {@link packWorkspace} made. None by default: the directory is then empty. */
  readonly workspace?: Uint8Array | undefined;
  /** Whether the result has the workspace as the command left it. False by default. */
  readonly files?: boolean | undefined;
  /** How many workers may begin it, if each before dies; 3 by default, 5 at most. */
  readonly maxAttempts?: number | undefined;
}

/** What a caller says about a persistent sandbox of the fleet. Every field is optional. */
export interface FleetCreateRequest extends Pick<
  TaskRequest,
  'id' | 'pool' | 'priority' | 'env' | 'risk' | 'policy' | 'workspace'
> {
  /** How long it may exist, in milliseconds; an hour by default, a day at most. */
  readonly expiresInMs?: number | undefined;
  /** How long it may go without a call of a client before it is removed, in milliseconds; ten minutes by default, a day at most. */
  readonly idleMs?: number | undefined;
  /** Cancels the creation. A sandbox that exists is ended by `kill`. */
  readonly signal?: AbortSignal | undefined;
}

/** A task as it is queued: a command to run to its end. */
export type TaskSpec = z.infer<typeof specSchema>;
/** A task as it is queued: a sandbox to create and to keep. It is claimed for as long as the sandbox exists. */
export type SandboxSpec = z.infer<typeof sandboxSchema>;

/** How many workers may begin a task where it does not say. */
export const ATTEMPTS = 3;

/** The task in a text; refuses every field that a task may not have. */
export function parseSpec(body: string): TaskSpec | SandboxSpec {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (cause) {
    throw FLEET_ERRORS.create('ACODE-FLT-008', { field: 'the task', reason: 'is not JSON' }, { cause });
  }
  const isSandbox = typeof value === 'object' && value !== null && 'sandbox' in value;
  const parsed = (isSandbox ? sandboxSchema : specSchema).safeParse(value);
  if (parsed.success) return parsed.data;
  throw refusal(parsed.error);
}

function refusal({ issues: [issue] }: z.ZodError): Error {
  const keys = issue?.code === 'unrecognized_keys' ? issue.keys.slice(0, 1) : [];
  const field = [...(issue?.path ?? []), ...keys].map(String).join('.').slice(0, 200) || 'the task';
  const reason = keys.length > 0 ? 'is nothing that a task may ask for' : 'has a value that is not allowed';
  return FLEET_ERRORS.create('ACODE-FLT-008', { field, reason });
}
