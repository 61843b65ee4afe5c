// Admission: the first step of every operation on a host. It checks the request, combines the abort signals, waits for
// a slot and a share of the memory, and records a refusal.

import { posix } from 'node:path';
import { Readable } from 'node:stream';
import * as z from 'zod';
import { AcodeError } from '../contract/errors.ts';
import { RISKS, isBoundary } from '../contract/levels.ts';
import { formatBytes } from '../contract/units.ts';
import { METRICS } from '../records/telemetry.ts';
import type { Operation } from '../records/telemetry.ts';
import type { Host, Planned } from './host.ts';
import { recordRefusal } from './trail.ts';
import type { Recorded } from './trail.ts';
import { policyInputSchema } from '../contract/policy-schema.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { issueText } from '../policy/config/issue-text.ts';
import { keysOf, nearestField } from '../policy/config/keys.ts';
import type { ArtifactRequest, Command, RunRequest } from '../contract/command.ts';
import type { CommandRequest, CreateRequest } from '../contract/sandbox.ts';
import { WORKSPACE_TARGET } from '../isolation/plan.ts';
import { whyNoName } from '../lifecycle/labels.ts';
import { checkEnvironment } from '../policy/environment.ts';
import { workdirFor } from '../workspace/locate.ts';
import { protectedPaths } from '../workspace/protected-paths.ts';

/** An operation before it is admitted. */
export interface Admitting {
  readonly name: string;
  /** The caller’s signal. It may have any type, since the request is validated later. */
  readonly signal?: unknown;
  /** The request to name in the audit log if the operation is refused; without it, a refusal is only logged. */
  readonly run?: Omit<Recorded, 'host' | 'operation'>;
  /** The signals cancel only the creation; the created sandbox outlives them. */
  readonly detached?: true;
}

/** An admitted operation: it ends with its host, with its caller’s signal, or when `stop` is aborted. */
export class Admission {
  readonly operation: Operation;
  readonly stop = new AbortController();
  readonly signal: AbortSignal;
  /** When it began, by the monotonic clock. */
  readonly began: number;
  readonly #host: Host;
  readonly #run: Admitting['run'];
  readonly #held: (() => void)[] = [];
  readonly #relayed: { readonly signal: AbortSignal; readonly abort: () => void }[] = [];

  constructor(host: Host, { name, signal: callers, run, detached }: Admitting) {
    this.#host = host;
    this.#run = run;
    this.operation = host.telemetry.begin(name);
    this.began = host.telemetry.clock.monotonic();
    const from = [host.closing, ...(callers instanceof AbortSignal ? [callers] : [])];
    this.signal = detached ? this.#relay(from) : AbortSignal.any([...from, this.stop.signal]);
  }

  /** Waits for a slot, for at most the time that the host’s settings allow. */
  async takeSlot(): Promise<void> {
    this.#held.push(await this.#host.slots.take(this.#host.settings.queueMs, this.signal));
    this.#gauge();
  }

  /** Waits until the plan’s sandbox gets its share of the memory that all of the user’s sandboxes may use together. */
  async takeMemory({ spec, machineBytes }: Planned, persistent: boolean): Promise<void> {
    // Without isolation nothing enforces a command’s memory limit, so a sum of limits is meaningless.
    if (!isBoundary(spec.level)) return;
    const { sandboxId } = spec.identity;
    const memoryBytes = [spec, ...(spec.services ?? []).map(service => service.spec)].reduce(
      (sum, { limits }) => sum + limits.memoryBytes,
      0,
    );
    const onWait = (others: number, most: number): void =>
      this.operation.step(
        'warn',
        `waiting for memory: your sandboxes may use ${formatBytes(most)} together; others hold ${formatBytes(others)} or wait for it, and this one asks for ${formatBytes(memoryBytes)}`,
      );
    const terms = { deadlineMs: this.#host.settings.queueMs, signal: this.signal, onWait };
    this.#held.push(await this.#host.memory.take({ sandboxId, memoryBytes, machineBytes, persistent }, terms));
  }

  /** Releases the slot and the memory. A second call does nothing. */
  readonly release = (): void => {
    if (this.#held.length === 0) return;
    for (const give of this.#held.splice(0).reverse()) give();
    this.#gauge();
  };

  /** Ends the operation, successful or not: a detached sandbox no longer follows the signals. */
  end(): void {
    for (const { signal, abort } of this.#relayed) signal.removeEventListener('abort', abort);
  }

  /** Releases everything and records the refusal. Returns the error to throw to the caller. */
  refuse(error: unknown): unknown {
    this.release();
    const failure = this.signal.aborted ? cancelled(error) : error;
    const { operation } = this;
    const host = this.#host;
    if (this.#run) {
      if (failure instanceof AcodeError && failure.is('ACODE-SBX-005')) host.telemetry.increment(METRICS.networkDenied);
      recordRefusal({ ...this.#run, host, operation }, failure);
    }
    operation.fail(failure);
    return failure;
  }

  // Not `AbortSignal.any`, which cannot be detached from its sources.
  #relay(from: readonly AbortSignal[]): AbortSignal {
    for (const signal of from) {
      const abort = (): void => this.stop.abort(signal.reason);
      signal.addEventListener('abort', abort, { once: true });
      this.#relayed.push({ signal, abort });
      if (signal.aborted) abort();
    }
    return this.stop.signal;
  }

  #gauge(): void {
    this.#host.telemetry.gauge(METRICS.active, this.#host.slots.taken);
  }
}

/** Admits an operation and performs its work. */
export async function admitted<Value>(
  host: Host,
  admitting: Admitting,
  work: (admission: Admission) => Promise<Value>,
): Promise<Value> {
  const admission = new Admission(host, admitting);
  try {
    admission.signal.throwIfAborted();
    return await work(admission);
  } catch (error) {
    throw admission.refuse(error);
  } finally {
    admission.end();
  }
}

/** The error of a cancelled operation, whatever the reason of the abort signal was. */
export function cancelled(error: unknown): AcodeError {
  const known = error instanceof AcodeError && error.is('ACODE-SBX-014');
  return known ? error : new AcodeError('ACODE-SBX-014', {}, { cause: error });
}

// The kernel’s limit for one argument: the kernel would refuse to start a program with a longer one.
const MAX_ARGUMENT = 128 * 1024 - 1;
const MAX_COMMAND = 1024 ** 2;

const word = z.string().max(MAX_ARGUMENT, `is longer than the kernel’s ${MAX_ARGUMENT} bytes`);
const commandSchema = z.union([word, z.array(word)]);

export const requestSchema = z.strictObject({
  policy: z.unknown().optional(),
  cwd: z.string().optional(),
  env: z.record(z.string(), word).optional(),
  envDefaults: z.record(z.string(), word).optional(),
  stdin: z
    .custom(
      value => typeof value === 'string' || value instanceof Uint8Array || value instanceof Readable,
      'is not text, bytes or a stream',
    )
    .optional(),
  risk: z.enum(RISKS).optional(),
  sessionId: z.string().optional(),
  taskId: z.string().optional(),
  artifacts: z
    .array(z.strictObject({ from: word.min(1, 'is empty'), to: word.min(1, 'is empty') }))
    .max(64, 'are more than 64')
    .optional(),
  signal: z.instanceof(AbortSignal).optional(),
  onStdout: z.custom(value => typeof value === 'function', 'is not a function').optional(),
  onStderr: z.custom(value => typeof value === 'function', 'is not a function').optional(),
});

export const createSchema = z.strictObject({
  ...requestSchema.pick({ policy: true, env: true, risk: true, sessionId: true, taskId: true, signal: true }).shape,
  expiresInMs: z.number().positive('must be more than 0 milliseconds').optional(),
  keep: z.boolean().optional(),
  shared: z.boolean().optional(),
  name: z.string().optional(),
});

export const commandRequestSchema = z.strictObject({
  ...requestSchema.pick({ cwd: true, env: true, stdin: true, signal: true, onStdout: true, onStderr: true }).shape,
  timeoutMs: z.number().positive('must be more than 0 milliseconds').optional(),
});

/** Throws at the first invalid field of a request for a persistent sandbox. */
export function checkCreateRequest(request: CreateRequest): void {
  hold(createSchema.safeParse(request, { error: issueText }), '', () => fieldsOf(createSchema));
  checkName(request);
  checkEnvironment(request.env ?? {});
}

function checkName({ name, keep, shared }: CreateRequest): void {
  if (name === undefined) return;
  const isReachable = keep === true || shared === true;
  const reason = whyNoName(name) ?? (isReachable ? null : 'needs keep or shared: no other process can use the sandbox');
  if (reason !== null) throw invalid('name', reason, text`Give ${{ field: 'name' }} another value, such as web-1.`);
}

/** Throws at the first invalid field of a command for a persistent sandbox, in which the workspace is at `workdir`. */
export function checkCommandRequest(command: Command, request: CommandRequest, workdir: string): void {
  hold(commandRequestSchema.safeParse(request, { error: issueText }), '', () => fieldsOf(commandRequestSchema));
  checkCommand(command);
  checkEnvironment(request.env ?? {}, command);
  workdirFor(request.cwd, workdir);
}

/** Throws at the first invalid field of a request. An absolute `cwd` counts where the workspace is inside, which the plan says. */
export function checkRequest(command: Command, request: RunRequest): void {
  hold(requestSchema.safeParse(request, { error: issueText }), '', () => fieldsOf(requestSchema));
  checkCommand(command);
  request.artifacts?.forEach(checkArtifact);
  checkEnvironment(request.env ?? {}, command);
  checkEnvironment(request.envDefaults ?? {});
  if (request.cwd?.startsWith('/') !== true || request.cwd.includes('\0')) workdirFor(request.cwd, WORKSPACE_TARGET);
}

// An artifact must not be written to a path where programs on this machine treat it as the user’s own file.
function checkArtifact({ from, to }: ArtifactRequest, index: number): void {
  const field = `artifacts.${index}.to`;
  if (`${from}${to}`.includes('\0')) throw invalid(`artifacts.${index}`, 'holds a NUL character');
  const inside = posix.normalize(to);
  if (posix.isAbsolute(to) || inside === '.' || inside === '..' || inside.startsWith('../'))
    throw invalid(field, 'must name something below the workspace');
  const [top = ''] = inside.split('/');
  if (protectedPaths('/').includes(`/${top}`)) throw invalid(field, `is in ${top}, which no sandbox writes to`);
}

function checkCommand(command: Command): void {
  hold(commandSchema.safeParse(command, { error: issueText }), 'command');
  const words = typeof command === 'string' ? [command] : command;
  if (words.length === 0 || words[0] === '') throw invalid('command', 'is empty');
  if (words.some(one => one.includes('\0'))) throw invalid('command', 'holds a NUL character');
  if (words.reduce((sum, one) => sum + one.length, 0) > MAX_COMMAND)
    throw invalid('command', 'is larger than 1 MiB; pass large input on standard input');
}

// A field of the policy is often written beside it.
function fieldsOf(schema: z.ZodType): string[] {
  const own = keysOf(schema);
  return own.includes('policy') ? [...own, ...keysOf(policyInputSchema, 'policy')] : own;
}

function hold(parsed: z.ZodSafeParseResult<unknown>, field: string, known: () => string[] = () => []): void {
  const issue = parsed.error?.issues[0];
  if (!issue) return;
  if (issue.code === 'unrecognized_keys') {
    const [key = ''] = issue.keys;
    const near = issue.path.length === 0 ? nearestField(key, known()) : null;
    throw invalid(key, `is not a known field of a request${near === null ? '' : ` (did you mean ${near}?)`}`);
  }
  throw invalid([field, ...issue.path].filter(part => part !== '').join('.'), issue.message);
}

function invalid(field: string, reason: string, remedy?: Text): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason, ...(remedy === undefined ? {} : { remedy }) });
}
