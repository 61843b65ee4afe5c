// A command under way: its streams, its input, its end, and the result that comes of it.

import { once } from 'node:events';
import { Readable } from 'node:stream';
import { AcodeError } from './contract/errors.ts';
import type { Command, RunRequest } from './contract/command.ts';
import type { LimitName, RunResult, RunningCommand } from './contract/result.ts';
import type { Host } from './host.ts';
import type { Ending, Execution, WaitingSandbox } from './isolation/backend.ts';
import { supervise } from './isolation/supervise.ts';
import type { Capture } from './output/capture.ts';
import { decodeOutput } from './output/text.ts';
import type { Planned } from './run.ts';
import { cancelled, printable } from './run.ts';
import { METRICS } from './telemetry/operation.ts';
import type { Operation } from './telemetry/operation.ts';

/** What a run is made of once its sandbox waits. */
export interface RunningParts {
  readonly host: Host;
  readonly operation: Operation;
  readonly planned: Planned;
  readonly sandbox: WaitingSandbox;
  readonly signal: AbortSignal;
  readonly command: Command;
  readonly request: RunRequest;
  /** Whether the caller writes to standard input itself. */
  readonly stdinStaysOpen: boolean;
  readonly timings: { readonly queueMs: number; readonly obtainMs: number };
  /** Gives the place in the queue back. */
  readonly release: () => void;
  readonly captures: { readonly stdout: Capture; readonly stderr: Capture };
  readonly cwd: string;
  readonly nonce: string;
}

const GRACE_SECONDS = 2;

/** A command under way. */
export class Running implements RunningCommand {
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  readonly result: Promise<RunResult>;
  readonly #parts: RunningParts;
  readonly #execution: Execution;
  readonly #handedOver: number;
  #removed: Promise<void> = Promise.resolve();

  private constructor(parts: RunningParts, execution: Execution) {
    this.#parts = parts;
    this.#execution = execution;
    this.#handedOver = parts.host.telemetry.clock.monotonic();
    this.stdout = { [Symbol.asyncIterator]: () => parts.captures.stdout.follow() };
    this.stderr = { [Symbol.asyncIterator]: () => parts.captures.stderr.follow() };
    this.result = this.#finish();
    // A caller may only read the streams; the rejection is still theirs to see when they ask for the result.
    this.result.catch(() => undefined);
    void this.#feed();
  }

  /** Hands the command over. */
  static async begin(parts: RunningParts): Promise<Running> {
    const { sandbox, captures, request, signal } = parts;
    const handover = { command: parts.command, cwd: parts.cwd, env: { ...request.env }, nonce: parts.nonce };
    const io = {
      stdout: (data: Buffer) => captures.stdout.push(data),
      stderr: (data: Buffer) => captures.stderr.push(data),
    };
    return new Running(parts, await sandbox.execute(handover, io, signal));
  }

  async write(data: Uint8Array | string): Promise<void> {
    await this.#execution.write(data);
  }

  async closeStdin(): Promise<void> {
    await this.#execution.closeStdin();
  }

  async kill(signal = 'SIGTERM'): Promise<void> {
    await this.#execution.kill(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#execution.kill('SIGKILL').catch(() => undefined);
    await this.result.catch(() => undefined);
    await this.#removed;
  }

  async #finish(): Promise<RunResult> {
    const { host, operation, planned, captures, signal } = this.#parts;
    const graceMs = (host.config.config.sandbox?.containers?.stop_timeout_seconds ?? GRACE_SECONDS) * 1000;
    try {
      const { ending, timedOut } = await supervise(
        this.#execution,
        { timeoutMs: planned.policy.timeoutMs.value, graceMs },
        host.telemetry.clock,
      );
      this.#end();
      if (ending.neverStarted) throw this.#neverStarted(ending.neverStarted);
      const result = this.#assemble(ending, timedOut);
      this.#observe(result);
      return result;
    } catch (error) {
      this.#end();
      captures.stdout.end();
      captures.stderr.end();
      const failure = signal.aborted ? this.#withPartialResult(error) : error;
      operation.fail(failure);
      throw failure;
    }
  }

  // The caller has the result; the sandbox goes, its place becomes free, the output is kept.
  #end(): void {
    const { host, sandbox, operation, planned, release } = this.#parts;
    const { sandboxId } = planned.spec.identity;
    this.#parts.captures.stdout.end();
    this.#parts.captures.stderr.end();
    this.#removed = sandbox[Symbol.asyncDispose]().finally(() => {
      release();
      host.operations.delete(sandboxId);
      host.telemetry.gauge(METRICS.active, host.slots.taken);
      host.bus.emit('SandboxTeardown', operation.correlationId, new Date(host.telemetry.clock.now()), {
        sandboxId,
        backend: 'docker',
        reason: 'the command has ended',
      });
    });
    this.#parts.host.keep(this.#removed);
  }

  #assemble(ending: Ending | null, timedOut: boolean): RunResult {
    const { host, operation, planned, sandbox, captures, timings } = this.#parts;
    const { spec } = planned;
    const stdout = decodeOutput(captures.stdout.bytes(), captures.stdout.dropped > 0);
    const stderr = decodeOutput(captures.stderr.bytes(), captures.stderr.dropped > 0);
    const runMs = host.telemetry.clock.monotonic() - this.#handedOver;
    const dropped = { stdout: captures.stdout.dropped, stderr: captures.stderr.dropped };
    const limit = ending ? exceeded(ending, timedOut, dropped) : undefined;
    return {
      exitCode: timedOut || !ending ? null : ending.exitCode,
      stdout: stdout.text,
      stderr: stderr.text,
      ...(stdout.bytes ? { stdoutBytes: stdout.bytes } : {}),
      ...(stderr.bytes ? { stderrBytes: stderr.bytes } : {}),
      dropped,
      timedOut,
      oomKilled: ending?.oomKilled ?? false,
      ...(limit ? { limitExceeded: limit } : {}),
      denials: [],
      sandboxId: spec.identity.sandboxId,
      containerId: sandbox.id,
      level: spec.level,
      image: { reference: spec.image.reference, digest: spec.image.digest },
      durationMs: runMs,
      timings: { ...timings, runMs },
      warm: false,
      ...(ending?.usage ? { usage: ending.usage } : {}),
      riskyChanges: [],
      correlationId: operation.correlationId,
    };
  }

  #observe(result: RunResult): void {
    const { host, operation, command, planned } = this.#parts;
    const now = host.telemetry.clock.now();
    host.telemetry.observe(METRICS.execute, result.durationMs);
    if (result.oomKilled) host.telemetry.increment(METRICS.oom);
    const { sandboxId, limitExceeded, exitCode } = result;
    if (limitExceeded) {
      host.telemetry.increment(METRICS.limits, { limit: limitExceeded });
      operation.step('warn', `limit exceeded: ${limitExceeded}`, { sandboxId, limit: limitExceeded });
      host.bus.emit('LimitExceeded', operation.correlationId, new Date(now), { sandboxId, limit: limitExceeded });
    }
    host.bus.emit('ContainerExited', operation.correlationId, new Date(now), {
      sandboxId,
      containerId: result.containerId ?? '',
      exitCode,
    });
    operation.step('info', 'container stopped', { sandboxId, containerId: result.containerId, exitCode });
    operation.succeed({
      exitCode,
      timedOut: result.timedOut,
      oomKilled: result.oomKilled,
      limitExceeded,
      runMs: result.durationMs,
      dropped: result.dropped,
    });
    if (!host.savedLogs) return;
    const text = printable(command);
    const log = {
      name: planned.spec.identity.name,
      sandboxId,
      command: typeof text === 'string' ? text : text.join(' '),
      endedAt: new Date(now).toISOString(),
      exitCode,
      stdout: result.stdout,
      stderr: result.stderr,
      dropped: result.dropped,
    };
    const saving = host.savedLogs
      .save(log, now)
      .catch((error: unknown) =>
        operation.step('warn', 'the output of the run could not be kept', { reason: String(error) }),
      );
    host.keep(saving);
  }

  #withPartialResult(error: unknown): AcodeError {
    const { cause } = cancelled(error);
    return new AcodeError('ACODE-SBX-014', { result: this.#assemble(null, false) }, { cause });
  }

  #neverStarted(why: NonNullable<Ending['neverStarted']>): AcodeError {
    const { command, planned, request } = this.#parts;
    if (why === 'cwd')
      return new AcodeError('ACODE-SBX-017', {
        field: 'cwd',
        reason: `${request.cwd ?? '.'} is not a directory the sandbox can enter`,
      });
    const program = typeof command === 'string' ? '/bin/sh' : (command[0] ?? '');
    return new AcodeError('ACODE-SBX-015', {
      command: program,
      image: planned.spec.image.reference,
      reason: why === 'missing' ? 'not found' : 'not executable',
    });
  }

  // A command that ends without reading all of its input is no error, so what cannot be written is left.
  async #feed(): Promise<void> {
    const { stdin } = this.#parts.request;
    if (stdin === undefined && this.#parts.stdinStaysOpen) return;
    try {
      if (stdin instanceof Readable) await this.#pipe(stdin);
      else if (stdin !== undefined) await this.#execution.write(stdin);
      await this.#execution.closeStdin();
    } catch {
      // The ending of the command says what happened.
    }
  }

  async #pipe(source: Readable): Promise<void> {
    const stop = (): void => void source.destroy();
    const ended = this.#execution.ended.then(stop, stop);
    for await (const chunk of source) await this.#execution.write(chunk as Uint8Array | string);
    if (!source.destroyed) return;
    await Promise.race([ended, source.closed ? Promise.resolve() : once(source, 'close')]);
  }
}

function exceeded(
  ending: Ending,
  timedOut: boolean,
  dropped: { stdout: number; stderr: number },
): LimitName | undefined {
  if (timedOut) return 'time';
  if (ending.oomKilled) return 'memory';
  if (ending.pidsRefused) return 'pids';
  return dropped.stdout + dropped.stderr > 0 ? 'output' : undefined;
}
