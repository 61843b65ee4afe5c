// Level web: the entry for pages of a browser, where there is no host. Nothing below it may import anything of Node’s.

import type { AuditHead, AuditIntent, AuditOutcome } from '../../contract/audit.ts';
import type { Command, RunRequest } from '../../contract/command.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import type { WebRunResult } from '../../contract/result.ts';
import { admit, admitPage } from './admission.ts';
import type { Admitted, WebEnvironment } from './admission.ts';
import { Output, execute, reasonOf } from './execution.ts';
import { inTime } from '../waiting.ts';
import type { WebEnding, WebJob } from './execution.ts';
import { installedSdk, sdkFrom, treeOf } from './sdk.ts';
import type { FileTree, WebSdk } from './sdk.ts';
import { Slots } from '../../lifecycle/slots.ts';
import { decodeOutput } from '../../run/output/capture.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { redactArguments } from '../../contract/redact.ts';
import { NO_CHANGES } from '../../workspace/file-times.ts';

export { AcodeError } from '../../contract/errors.ts';
export type { Command, RunRequest } from '../../contract/command.ts';
export type { WebRunResult } from '../../contract/result.ts';
export type { WebEnvironment } from './admission.ts';

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
