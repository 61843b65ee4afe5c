// Level web: the entry for pages of a browser, where there is no host. Nothing below it may import anything of Node’s.

import * as z from 'zod';
import type { AuditHead, AuditIntent, AuditOutcome } from '../../contract/audit.ts';
import type { Command, RunRequest } from '../../contract/command.ts';
import { AcodeError } from '../../contract/errors.ts';
import { RISKS } from '../../contract/levels.ts';
import { policyInputSchema } from '../../contract/policy-schema.ts';
import type { Clock } from '../../contract/ports.ts';
import { redactArguments } from '../../contract/redact.ts';
import type { WebRunResult } from '../../contract/result.ts';
import { systemClock, inTime } from '../../lifecycle/clock.ts';
import { Slots } from '../../lifecycle/slots.ts';
import { checkEnvironment } from '../../policy/environment.ts';
import { CEILINGS, PROFILES } from '../../policy/profiles.ts';
import { assess, type Assessment } from '../../policy/risk.ts';
import { decodeOutput } from '../../run/output/capture.ts';
import { NO_CHANGES } from '../../workspace/change-counts.ts';
import {
  execute,
  type FileTree,
  installedSdk,
  namesIn,
  Output,
  reasonOf,
  sdkFrom,
  treeOf,
  type WebEnding,
  type WebJob,
  type WebSdk,
} from './execution.ts';

export { AcodeError } from '../../contract/errors.ts';
export type { Command, RunRequest } from '../../contract/command.ts';
export type { WebRunResult } from '../../contract/result.ts';

const LOAD_MS = 30_000;
const QUEUE_MS = 300_000;
const RECORD_MS = 5000;

/** What is written down about a run at this level, in the words of the audit log. */
export type WebAuditEntry =
  | AuditOutcome
  | (Omit<AuditIntent, 'sandbox_level' | 'requiredLevel' | 'policyHash' | 'commandHash'> & {
      /** The level `web`. */
      readonly sandbox_level: 'web';
    });

/** What a page says when it opens level web. */
export interface WebAcodeOptions {
  /** A WebContainer always has the network of its page: who uses one says so. */
  readonly network: 'open';
  /** What says that this is a web environment; without it the variables of the process, where there is one. */
  readonly environment?: WebEnvironment;
  /** `airgapped` is refused. */
  readonly mode?: 'local-only' | 'airgapped';
  /** Files that every command finds in its working directory, by their relative paths. */
  readonly files?: Readonly<Record<string, string | Uint8Array>>;
  /**
   * Writes a record down. Where it rejects before a command, the command does not run; after one, it is its own to notice.
   * A page has no log of its own, so without this there is no record.
   */
  readonly record?: (entry: WebAuditEntry) => Promise<AuditHead | null>;
  /** Loads the SDK, where it is not to be imported as `@webcontainer/api`. */
  readonly load?: () => Promise<unknown>;
  /** Time, for tests; the page’s by default. */
  readonly clock?: Clock;
}

/** One run: what was asked for, what was decided, and what came of it so far. */
interface Run {
  readonly command: readonly string[];
  readonly request: RunRequest;
  readonly admitted: Admitted;
  readonly signal: AbortSignal;
  readonly ids: { readonly correlationId: string; readonly sandboxId: string };
  readonly times: { readonly began: number; queued: number; handedOver: number | null };
  readonly output: Output;
}

const NOT_ENDED: WebEnding = { exitCode: null, timedOut: false };

/**
 * Runs commands in a page of a browser, each in a WebContainer of its own. What holds them is the browser, and their network
 * is open: risk high and critical and air-gapped pages are refused.
 *
 * @example
 * const environment = { ACODE_ENV: 'web' };
 * await using page = await WebAcode.open({ network: 'open', environment, files: { 'a.mjs': 'console.log(1)' } });
 * const { exitCode, stdout } = await page.run(['node', 'a.mjs'], { policy: { timeoutMs: 10_000 } });
 */
export class WebAcode implements AsyncDisposable {
  readonly #sdk: WebSdk;
  readonly #files: FileTree;
  readonly #clock: Clock;
  readonly #record: WebAcodeOptions['record'];
  // The SDK has one instance at a time.
  readonly #slots: Slots;
  readonly #closing = new AbortController();
  readonly #pending = new Set<Promise<unknown>>();

  private constructor(sdk: WebSdk, { files = {}, clock = systemClock, record }: WebAcodeOptions) {
    this.#sdk = sdk;
    this.#files = treeOf(files);
    this.#clock = clock;
    this.#record = record;
    this.#slots = new Slots(1, clock);
  }

  /** Opens level web. Refuses where this is no web environment, in air-gapped mode, and without the SDK. */
  static async open(options: WebAcodeOptions): Promise<WebAcode> {
    const { environment = ownEnvironment(), network, mode = 'local-only', clock = systemClock } = options;
    admitPage(environment, network, mode);
    const late = (): AcodeError => new AcodeError('ACODE-SBX-012', { required: 'web', available: 'none in time' });
    return new WebAcode(await inTime(clock, LOAD_MS, sdkFrom(options.load ?? installedSdk), late), options);
  }

  /**
   * Runs one command in an instance of its own; commands wait for each other. As `Acode.run` it resolves once the command
   * has started and ended, and rejects if it never started, and with ACODE-SBX-014 if it was cancelled.
   */
  async run(command: Command, request: RunRequest = {}): Promise<WebRunResult> {
    const closing = this.#closing.signal;
    if (closing.aborted) throw new AcodeError('ACODE-SBX-019', { operation: 'run' });
    const admitted = admit(command, request);
    const run: Run = {
      // The shell of a WebContainer.
      command: typeof command === 'string' ? ['jsh', '-c', command] : command,
      request,
      admitted,
      signal: AbortSignal.any(request.signal ? [closing, request.signal] : [closing]),
      ids: { correlationId: crypto.randomUUID(), sandboxId: crypto.randomUUID() },
      times: { began: this.#clock.monotonic(), queued: 0, handedOver: null },
      output: new Output(admitted.outputBytes, request.onStdout),
    };
    return this.#keep(this.#inTurn(run));
  }

  /** Cancels what runs, and waits until its instance is gone. */
  async close(): Promise<void> {
    this.#closing.abort();
    while (this.#pending.size > 0) await Promise.allSettled(this.#pending);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #inTurn(run: Run): Promise<WebRunResult> {
    const { signal, times } = run;
    const release = await this.#slots.take(QUEUE_MS, signal).catch((error: unknown) => {
      throw signal.aborted ? this.#cancelled(run, error) : error;
    });
    times.queued = this.#clock.monotonic();
    let gone = Promise.resolve();
    try {
      const intent = await this.#recordIntent(run);
      const execution = execute(this.#sdk, this.#jobOf(run));
      gone = execution.gone;
      return await this.#finish(run, intent, execution.ended);
    } finally {
      void this.#keep(gone.then(release));
    }
  }

  async #finish(run: Run, intent: AuditHead | null, ended: Promise<WebEnding>): Promise<WebRunResult> {
    try {
      const result = this.#resultOf(run, intent, await ended);
      this.#recordOutcome(run, intent, result);
      return result;
    } catch (error) {
      const failure = run.signal.aborted ? this.#cancelled(run, error, intent) : error;
      this.#recordOutcome(run, intent, { exitCode: null, errorCode: codeOf(failure) });
      throw failure;
    }
  }

  #jobOf({ command, request, admitted, signal, times, output }: Run): WebJob {
    return {
      words: command,
      env: { ACODE_SANDBOX: '1', ...request.env },
      cwd: request.cwd ?? '.',
      files: this.#files,
      timeoutMs: admitted.timeoutMs,
      output: text => output.push(text),
      handedOver: () => void (times.handedOver = this.#clock.monotonic()),
      clock: this.#clock,
      signal,
    };
  }

  async #recordIntent({ command, request, admitted, ids }: Run): Promise<AuditHead | null> {
    if (!this.#record) return null;
    const { timeoutMs, outputBytes, risk, reasons } = admitted;
    const entry: WebAuditEntry = {
      ...ids,
      ...contextOf(request),
      kind: 'intent',
      operation: 'run',
      sandbox_level: 'web',
      command: redactArguments(command),
      env: Object.keys(request.env ?? {}),
      cwd: request.cwd ?? '.',
      stdin: 'none',
      network: 'open',
      limits: { timeoutMs, outputBytes },
      risk,
      riskReasons: reasons,
      decision: 'allowed at web, whose network is open, as the page said',
    };
    const late = (): Error => new Error('it took too long');
    return inTime(this.#clock, RECORD_MS, this.#record(entry), late).catch((error: unknown) => {
      throw new AcodeError('ACODE-AUD-001', { file: 'the page’s own log', reason: reasonOf(error) }, { cause: error });
    });
  }

  // Off the caller’s path: the command has run by then, whatever can be written.
  #recordOutcome(
    run: Run,
    intent: AuditHead | null,
    ended: Pick<AuditOutcome, 'exitCode' | 'timedOut' | 'errorCode'>,
  ): void {
    if (!this.#record) return;
    const { exitCode, timedOut, errorCode } = ended;
    const entry: WebAuditEntry = {
      correlationId: run.ids.correlationId,
      ...contextOf(run.request),
      kind: 'outcome',
      operation: 'run',
      intent: intent?.seq ?? 0,
      exitCode,
      durationMs: Math.round(this.#runMs(run)),
      ...(timedOut === undefined ? {} : { timedOut }),
      ...(errorCode === undefined ? {} : { errorCode }),
    };
    const written = inTime(this.#clock, RECORD_MS, this.#record(entry), () => new Error('it took too long'));
    void this.#keep(written.catch(() => null));
  }

  #resultOf(run: Run, intent: AuditHead | null, { exitCode, timedOut }: WebEnding): WebRunResult {
    const { output, times, ids } = run;
    const { text, bytes } = decodeOutput(output.bytes(), output.dropped > 0);
    const limit = timedOut ? 'time' : output.dropped > 0 ? 'output' : null;
    const runMs = this.#runMs(run);
    return {
      exitCode,
      stdout: text,
      stderr: '',
      ...(bytes ? { stdoutBytes: bytes } : {}),
      dropped: { stdout: output.dropped, stderr: 0 },
      timedOut,
      oomKilled: false,
      ...(limit ? { limitExceeded: limit } : {}),
      denials: [],
      ...ids,
      level: 'web',
      durationMs: runMs,
      timings: {
        queueMs: times.queued - times.began,
        obtainMs: (times.handedOver ?? times.queued) - times.queued,
        runMs,
      },
      warm: false,
      riskyChanges: [],
      changed: NO_CHANGES,
      scan: 'complete',
      ...(intent ? { auditSequence: intent.seq } : {}),
    };
  }

  #runMs({ times }: Run): number {
    return times.handedOver === null ? 0 : this.#clock.monotonic() - times.handedOver;
  }

  #cancelled(run: Run, cause: unknown, intent: AuditHead | null = null): AcodeError {
    const started = run.times.handedOver !== null;
    const context = started ? { result: this.#resultOf(run, intent, NOT_ENDED) } : {};
    return new AcodeError('ACODE-SBX-014', context, { cause });
  }

  async #keep<Value>(work: Promise<Value>): Promise<Value> {
    this.#pending.add(work);
    try {
      return await work;
    } finally {
      this.#pending.delete(work);
    }
  }
}

// A page has no process; a program that stands in for one, such as VS Code for the Web, may.
function ownEnvironment(): WebEnvironment {
  const { ACODE_ENV, DEVS_ENV } = 'process' in globalThis ? globalThis.process.env : {};
  return { ACODE_ENV, DEVS_ENV };
}

function contextOf({ sessionId, taskId }: RunRequest): { sessionId?: string; taskId?: string } {
  return { ...(sessionId === undefined ? {} : { sessionId }), ...(taskId === undefined ? {} : { taskId }) };
}

function codeOf(error: unknown): string {
  return error instanceof AcodeError ? String(error.code) : 'unexpected';
}

// What may run at level web at all: where the page is, how risky the command is, and what was asked for. Pure.

/** What says whether this is a web environment. */
export interface WebEnvironment {
  /** `web` in a web environment. */
  readonly ACODE_ENV?: string | undefined;
  /** The old name of `ACODE_ENV`. */
  readonly DEVS_ENV?: string | undefined;
  /** `vscode.env.uiKind`; 2 is the web. */
  readonly uiKind?: number | undefined;
}

/** What was decided about a command: how risky it is, and what it is held to. */
interface Admitted extends Assessment {
  readonly timeoutMs: number;
  readonly outputBytes: number;
}

const UI_KIND_WEB = 2;
const ON_A_HOST = 'Run it with Acode on a host that has an engine.';

// Nothing else is one, whatever a page could do.
function isWeb({ ACODE_ENV, DEVS_ENV, uiKind }: WebEnvironment): boolean {
  return ACODE_ENV === 'web' || DEVS_ENV === 'web' || uiKind === UI_KIND_WEB;
}

/** Throws where nothing may run at this level, whatever the command. */
function admitPage(environment: WebEnvironment, network: unknown, mode: unknown): void {
  if (!isWeb(environment))
    throw new AcodeError('ACODE-SBX-012', {
      required: 'web',
      available: 'that of a host',
      remedy: 'This is no web environment (ACODE_ENV=web, or VS Code for the Web): use Acode of @acode/sandbox here.',
    });
  if (mode !== 'local-only')
    throw new AcodeError('ACODE-SBX-012', { required: 'air-gapped', available: 'web', remedy: ON_A_HOST });
  if (network !== 'open')
    throw new AcodeError('ACODE-SBX-005', {
      network: typeof network === 'string' ? network : 'none',
      rule: 'a WebContainer always has the network of its page',
      setBy: 'the level web',
      remedy: `Say network: 'open', if you accept that. ${ON_A_HOST}`,
    });
}

const callback = z.custom(value => typeof value === 'function', 'is not a function').optional();
const callSchema = z.strictObject({
  command: z.union([z.string().min(1), z.tuple([z.string().min(1)], z.string())]),
  policy: policyInputSchema.optional(),
  cwd: z.string().optional(),
  env: z.record(z.string(), z.string()).optional(),
  stdin: z.unknown().optional(),
  risk: z.enum(RISKS).optional(),
  sessionId: z.string().optional(),
  taskId: z.string().optional(),
  artifacts: z.array(z.unknown()).optional(),
  signal: z.instanceof(AbortSignal).optional(),
  onStdout: callback,
  onStderr: callback,
});

/** Throws at the first thing that this level cannot hold, so that nothing is ever ignored, and for more risk than it may take. */
function admit(command: Command, request: RunRequest): Admitted {
  const issue = callSchema.safeParse({ command, ...request }).error?.issues[0];
  if (issue) throw invalid(issue.path.join('.') || 'request', issue.message);
  const [unheld] = unheldBy(request);
  if (unheld !== undefined)
    throw new AcodeError('ACODE-SBX-016', { what: `${unheld} at level web`, instead: `Leave it out. ${ON_A_HOST}` });
  const { env = {}, cwd = '.', policy: { timeoutMs, limits } = {} } = request;
  checkEnvironment(env);
  if (cwd !== '.') namesIn(cwd, 'cwd');
  return {
    timeoutMs: limited('policy.timeoutMs', timeoutMs, 'timeoutMs'),
    outputBytes: limited('policy.limits.outputBytes', limits?.outputBytes, 'outputBytes'),
    ...admitRisk(command, request),
  };
}

function limited(field: string, asked: number | undefined, name: 'timeoutMs' | 'outputBytes'): number {
  const value = asked ?? PROFILES.exec[name];
  if (value > CEILINGS[name]) throw invalid(field, `is more than ${CEILINGS[name]}, the most that is allowed here`);
  return value;
}

function admitRisk(command: Command, request: RunRequest): Assessment {
  const assessed = assess(command, request.risk, []);
  const { risk, reasons } = assessed;
  if (risk === 'low' || risk === 'medium') return assessed;
  const why = reasons.length === 0 ? `its caller said ${risk}` : reasons.join('; ');
  throw new AcodeError('ACODE-SBX-012', { required: 'docker', available: 'web', remedy: `${ON_A_HOST} (${why})` });
}

function unheldBy({ policy = {}, stdin, onStderr, artifacts = [] }: RunRequest): string[] {
  const { limits: { outputBytes: _output, ...limits } = {}, timeoutMs: _time, ...rest } = policy;
  // Nothing tells a command that its input has ended, and both of its streams come as one.
  const others = { stdin, onStderr, artifacts: artifacts[0] };
  const given = (fields: object, prefix = ''): string[] =>
    Object.entries(fields).flatMap(([name, value]) => (value === undefined ? [] : [prefix + name]));
  return [...given(limits, 'policy.limits.'), ...given(rest, 'policy.'), ...given(others)];
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason, remedy: `Correct ${field}.` });
}
