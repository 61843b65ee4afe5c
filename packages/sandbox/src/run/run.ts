// Run: one command through the pipeline (admit, plan, obtain, verify, execute, observe, dispose, record).
//
// Admission is the first step of every operation on a host. It checks the request, combines the abort signals, waits for a slot and a
// share of the memory, and records a refusal.

import { randomBytes } from 'node:crypto';
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import * as z from 'zod';
import type { Command, RunRequest, ArtifactRequest } from '../contract/command.ts';
import { networkName } from '../contract/network.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { RunningCommand } from '../contract/result.ts';
import { obtainConnected } from './egress.ts';
import { abandonFork } from './forking.ts';
import type { Host, Planned, RunningParts } from './host.ts';
import type { WaitingSandbox } from '../isolation/backend.ts';
import { givenUp, obtainRecorded, tornDown } from './obtaining.ts';
import type { Giving } from './obtaining.ts';
import { plan } from './planning.ts';
import { releaseState } from './state.ts';
import { Capture } from './output/capture.ts';
import { printable, recordRefusal } from './trail.ts';
import { Running } from './running.ts';
import type { Operation } from '../records/telemetry.ts';
import { takeWarm } from './warm.ts';
import { workdirFor } from '../workspace/locate.ts';
import { AcodeError } from '../contract/errors.ts';
import { cancelled } from '../lifecycle/clock.ts';
import { RISKS, isBoundary } from '../contract/levels.ts';
import { formatBytes } from '../contract/units.ts';
import { METRICS } from '../records/telemetry.ts';
import type { Recorded } from './trail.ts';
import { policyInputSchema } from '../contract/policy-schema.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { issueText } from '../policy/config/issue-text.ts';
import { keysOf, nearestField } from '../policy/config/keys.ts';
import type { CommandRequest, CreateRequest } from '../contract/sandbox.ts';
import { WORKSPACE_TARGET } from '../isolation/plan.ts';
import { whyNoName } from '../lifecycle/labels.ts';
import { checkEnvironment } from '../policy/environment.ts';
import { protectedPaths } from '../workspace/protected-paths.ts';

/** Runs a command up to the point where it has started. */
export async function start(
  host: Host,
  command: Command,
  request: RunRequest,
  stdinStaysOpen: boolean,
): Promise<RunningCommand> {
  const run = { command, request };
  return admitted(host, { name: 'run', signal: request.signal, run }, async admission => {
    const { operation, signal } = admission;
    const { clock } = host.telemetry;
    checkRequest(command, request);
    operation.note({ command: printable(command), risk: request.risk });
    await admission.takeSlot();
    const queued = clock.monotonic();
    const of = { correlationId: operation.correlationId, preview: false };
    const wanted = await plan(host, run, of, signal);
    // Nothing ran where this rejects: `handOver` resolves once the command has started.
    return await startPlanned(host, { run, wanted, admission, queued, stdinStaysOpen }).catch(
      async (error: unknown) => {
        await abandonFork(host, wanted.fork);
        releaseStateOf(host, wanted);
        throw error;
      },
    );
  });
}

interface PlannedRun {
  readonly run: { readonly command: Command; readonly request: RunRequest };
  readonly wanted: Planned;
  readonly admission: Admission;
  readonly queued: number;
  readonly stdinStaysOpen: boolean;
}

async function startPlanned(
  host: Host,
  { run, wanted, admission, queued, stdinStaysOpen }: PlannedRun,
): Promise<RunningCommand> {
  const { command, request } = run;
  const { operation, signal, stop, began } = admission;
  const { clock } = host.telemetry;
  await admission.takeMemory(wanted, false);
  const askedAt = clock.monotonic();
  const taken = host.pool && (await takeWarm(host.pool, wanted, request, signal));
  // A warm sandbox has its own identity, which the record names; its plan has the same hash.
  const planned = taken ? { ...wanted, spec: taken.spec, requestHash: taken.requestHash } : wanted;
  // Taken before the sandbox is created: the image’s own shell waits in it and may write long before the hand-over.
  // This uses the kernel’s clock and not the host program’s, since the kernel sets the timestamps of files.
  const { sinceMs, rest } = taken ?? { sinceMs: Date.now(), rest: undefined };
  report(operation, planned);
  const recorded = { ...run, host, operation };
  const from = { taken, sinceMs, askedAt };
  const obtain = planned.spec.network.kind === 'allow' ? obtainConnected : obtainRecorded;
  const { sandbox, intent, provision, ...opened } = await obtain(recorded, planned, from, signal);
  const obtained = clock.monotonic();
  const timings = { queueMs: queued - began, obtainMs: obtained - queued };
  const { release } = admission;
  const dispose = (): Promise<void> => disposing({ host, operation, planned, sandbox, release, ...opened });
  const used = await asUsed(sandbox, { host, operation, planned, request, signal, sinceMs });
  const running = await handOver(sandbox, {
    host,
    operation,
    planned,
    ...used,
    ...opened,
    dispose,
    warm: taken !== null,
    provision,
    intent,
    signal,
    stop,
    command,
    request,
    stdinStaysOpen,
    timings,
    sinceMs,
    rest,
    captures: captures(planned.policy, request),
    cwd: workdirFor(request.cwd, planned.spec.workdir),
    nonce: randomBytes(16).toString('hex'),
  });
  const startedAt = new Date(clock.now()).toISOString();
  const { sandboxId } = planned.spec.identity;
  host.offer({ sandboxId, info: { pid: 1, command, cwd: request.cwd ?? '.', startedAt }, running });
  return running;
}

// The caller already has the result; removes the sandbox and frees its slot.
async function disposing({
  host,
  operation,
  planned,
  sandbox,
  release,
  egress,
}: Pick<RunningParts, 'host' | 'operation' | 'planned' | 'egress'> & {
  readonly sandbox: WaitingSandbox;
  readonly release: () => void;
}): Promise<void> {
  try {
    await Promise.all([egress?.close(), sandbox[Symbol.asyncDispose]()]);
  } finally {
    release();
    releaseStateOf(host, planned);
    tornDown({ host, operation }, planned.spec, 'the command has ended');
  }
}

// Another command may have the state directory of a plan, if it has one.
function releaseStateOf(host: Host, { policy, spec }: Planned): void {
  if (policy.state.value !== null) releaseState(host, spec);
}

// A sandbox with requested artifacts is kept until they are copied out.
async function asUsed(sandbox: WaitingSandbox, run: Giving & { readonly request: RunRequest }): Promise<Used> {
  const { artifacts = [] } = run.request;
  if (artifacts.length === 0) return { sandbox };
  const { planned, host, signal } = run;
  try {
    const { clock } = host.telemetry;
    const used = await host.withArtifacts(sandbox, artifacts, { spec: planned.spec, clock, signal });
    return { sandbox: used, take: () => used.take() };
  } catch (error) {
    throw await givenUp(sandbox, run, error);
  }
}

type Used = Pick<RunningParts, 'sandbox' | 'take'>;

// A sandbox that cannot receive its command is abandoned like one that differs from its plan.
async function handOver(sandbox: WaitingSandbox, parts: RunningParts): Promise<Running> {
  try {
    return await Running.begin(parts);
  } catch (error) {
    throw await givenUp(sandbox, parts, error);
  }
}

/** Logs how the command will run, and each note for the user once. */
export function report(operation: Pick<Operation, 'note' | 'step'>, { policy, spec, notes }: Planned): void {
  const { limits } = spec;
  operation.note({
    sandboxId: spec.identity.sandboxId,
    container: spec.identity.name,
    image: spec.image.reference,
    isolation: spec.level,
    network: networkName(spec.network),
  });
  operation.step('debug', `limits: memory=${limits.memoryBytes}, cpus=${limits.cpus}, pids=${limits.pids}`, {
    limits,
    timeoutMs: policy.timeoutMs.value,
  });
  for (const warning of new Set([...policy.warnings, ...notes])) operation.step('warn', warning);
}

/** Buffers for the output of a command, with their size limits. */
export function captures(
  policy: EffectivePolicy,
  request: Pick<RunRequest, 'onStdout' | 'onStderr'>,
): { stdout: Capture; stderr: Capture } {
  const limit = policy.limits.outputBytes.value;
  return { stdout: new Capture(limit, request.onStdout), stderr: new Capture(limit, request.onStderr) };
}

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
