// Running command: its streams, its input, its end, and its result.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { Readable } from 'node:stream';
import type { EgressConnection, SpentBudget } from '../contract/egress.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { LimitName, PublishedPort, RunResult, RunningCommand } from '../contract/result.ts';
import { type DiskCut, type DiskLimit, type DiskRules, directoriesOf, limitDisk } from './disk.ts';
import { denialsOf } from './denials/denials.ts';
import type { Ending, Execution } from '../isolation/backend.ts';
import { notStarted } from './egress.ts';
import { limitNetwork, type NetworkLimit, supervise, type Supervised } from '../isolation/supervise.ts';
import { type Capture, decodeOutput, type Heads, LiveCapture } from './output/capture.ts';
import { credentialEnvironment } from './credentials/environment.ts';
import { readable, reportViolation } from './obtaining.ts';
import type { Planned, RunningParts } from './host.ts';
import { environmentBesides } from '../policy/environment.ts';
import { recordDenials, recordExit, recordOutcome, recordResult, recordRisk } from './trail.ts';
import { continueScan } from './scanning.ts';
import { cancelled, inTime } from '../lifecycle/clock.ts';
import { absentEnvironments, changesOfCancelledRun, changesOfRun } from '../workspace/after-run.ts';
import type { EndedRun, RunScan } from '../workspace/after-run.ts';
import { NO_CHANGES } from '../workspace/change-counts.ts';
import { clockOffsetMs } from '../workspace/directory-look.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Scan } from '../workspace/risky.ts';
import { endFork } from './forking.ts';
import { STATE_BYTES } from './state.ts';
import { maskedIn } from './masking.ts';

// A sandbox usually ends within this time after its command, unless the machine is very busy.
const ENDS_SOON_MS = 25;
const GIVEN_UP_MS = 2000;

/** A command that is running. */
export class Running implements RunningCommand {
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  readonly result: Promise<RunResult>;
  readonly ports: RunningCommand['ports'];
  /** The same streams for an additional reader, which never slows the command down. */
  readonly heads: Heads;
  readonly #parts: RunningParts;
  readonly #execution: Execution;
  readonly #handedOver: number;
  readonly #networkLimit: NetworkLimit;
  readonly #diskLimits: readonly DiskLimit[];
  readonly #absent: readonly string[];
  readonly #clockOffset = clockOffsetMs();
  #removed: Promise<void> = Promise.resolve();
  #hasEnded = false;
  #spent: SpentBudget | null = null;

  private constructor(parts: RunningParts, execution: Execution, absent: readonly string[]) {
    this.#absent = absent;
    this.#parts = parts;
    this.#execution = execution;
    this.ports = parts.sandbox.ports;
    const { clock } = parts.host.telemetry;
    this.#handedOver = clock.monotonic();
    const { policy, spec } = parts.planned;
    const networkMs = spec.network.kind === 'none' ? null : policy.networkTimeoutMs.value;
    // What an allow-list lets through ends with its proxy; the engine gives the sandbox no network.
    const { egress } = parts;
    const cut = (): Promise<void> => (egress ? egress.cut() : execution.disconnect());
    this.#networkLimit = limitNetwork({ disconnect: cut, kill: name => execution.kill(name) }, networkMs, clock);
    this.#diskLimits = diskRules(parts.planned).map(rules => limitDisk(execution, rules, clock));
    this.stdout = { [Symbol.asyncIterator]: () => parts.captures.stdout.follow() };
    this.stderr = { [Symbol.asyncIterator]: () => parts.captures.stderr.follow() };
    const { stdout, stderr } = parts.captures;
    this.heads = { stdout: gone => stdout.head(gone), stderr: gone => stderr.head(gone) };
    this.result = this.#finish();
    // Some callers only read the streams, so a rejection must not count as unhandled; awaiting `result` still rejects.
    this.result.catch(() => undefined);
    void this.#feed();
    // `close` waits for the command to end and for the removal of its sandbox, which begins only then.
    parts.host.keep(this.result.then(noop, noop).then(() => this.#removed));
  }

  /** Hands the command over. */
  static async begin(parts: RunningParts): Promise<Running> {
    const { sandbox, captures, request, signal } = parts;
    const { command, cwd, nonce, planned } = parts;
    const { spec } = planned;
    const defaults = {
      ...environmentBesides(spec, request.envDefaults),
      ...(spec.network.kind === 'allow' ? credentialEnvironment(spec) : {}),
    };
    const handover = { command, cwd, env: { ...request.env }, defaults, nonce };
    const { stdout } = captures;
    const io = {
      stdout: (data: Buffer) => stdout.push(data),
      stderr: (data: Buffer) => captures.stderr.push(data),
      ...(stdout instanceof LiveCapture ? { room: () => stdout.room() } : {}),
    };
    const absent = absentEnvironments(planned.spec.mounts);
    return new Running(parts, await sandbox.execute(handover, io, signal), absent);
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
    this.#parts.stop.abort(new AcodeError('ACODE-SBX-014', {}));
    await this.result.catch(() => undefined);
    await this.#removed;
  }

  async #finish(): Promise<RunResult> {
    const { operation, signal } = this.#parts;
    try {
      const { ending, timedOut } = await this.#supervised();
      const cuts = { timedOut, isDiskCut: this.#diskCut !== null, spent: timedOut ? null : this.#spent };
      const result = resultOf(this.#outcome(), ending, cuts);
      await this.#endNetwork(result);
      await this.#takeArtifacts(result);
      // The denials are worked out while the sandbox ends.
      const looking = this.#lookForRisk(result);
      if (!ending.neverStarted) this.#deny(result, ending);
      await looking;
      // A command cannot claim that it never started, but an image’s own shell can, and so can a process that an
      // earlier command left in a persistent sandbox. Changes in the workspace show that something ran.
      // A shell that ended without a word about the command has claimed nothing.
      const { neverStarted } = ending;
      if (neverStarted === 'ended' || (neverStarted && !leftSomething(result)))
        throw this.#neverStarted(neverStarted, result);
      if (neverStarted) {
        recordExit(this.#parts, result.exitCode);
        this.#deny(result, ending);
      }
      recordResult(this.#parts, result);
      this.#recordOutcome({ result });
      return result;
    } catch (error) {
      const gone = signal.aborted && (await this.#gone());
      await this.#leaveFork(gone);
      const failure = await this.#withPartialResult(error, gone);
      this.#recordOutcome({ error: failure, connections: await this.#parts.egress?.close() });
      operation.fail(failure);
      throw failure;
    }
  }

  async #takeArtifacts(result: RunResult): Promise<void> {
    const { take } = this.#parts;
    if (!take) return;
    try {
      result.artifacts = await take();
    } finally {
      this.#end();
    }
  }

  async #endNetwork(result: RunResult): Promise<void> {
    const { egress } = this.#parts;
    if (egress) result.network = [...(await egress.close())];
  }

  #recordOutcome(ended: {
    result?: RunResult;
    error?: unknown;
    connections?: readonly EgressConnection[] | undefined;
  }): void {
    const { intent, host, provision } = this.#parts;
    const durationMs = host.telemetry.clock.monotonic() - this.#handedOver;
    recordOutcome(this.#parts, intent, { ...ended, durationMs, provision });
  }

  async #supervised(): Promise<Supervised> {
    const { host, planned } = this.#parts;
    const limits = {
      timeoutMs: planned.policy.timeoutMs.value,
      graceMs: host.settings.graceMs,
      sandboxId: planned.spec.identity.sandboxId,
      endsOnOom: planned.policy.onOutOfMemory.value === 'end',
      ...this.#stoppedByBudget(),
    };
    try {
      const supervising = supervise(this.#execution, limits, host.telemetry.clock);
      supervising.catch(noop);
      const supervised = await Promise.race([supervising, ...this.#diskLimits.map(({ failed }) => failed)]);
      const { ending, timedOut } = supervised;
      if (!ending.neverStarted) recordExit(this.#parts, timedOut ? null : ending.exitCode);
      return supervised;
    } catch (error) {
      this.#end();
      const { operation, sandbox } = this.#parts;
      if (error instanceof Error) reportViolation(host, planned.spec, sandbox, error.cause, operation);
      throw error;
    } finally {
      this.#networkLimit.stop();
      for (const limit of this.#diskLimits) limit.stop();
      this.#parts.captures.stdout.end();
      this.#parts.captures.stderr.end();
    }
  }

  #stoppedByBudget(): { readonly stopped?: Promise<void> } {
    const spent = this.#parts.egress?.spent;
    return spent ? { stopped: spent.then(what => void (this.#spent ??= what)) } : {};
  }

  // The caller does not wait for the removal.
  #end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#removed = nextTurn().then(() => this.#parts.dispose());
    this.#parts.host.keep(this.#removed);
  }

  // A caller that cancelled gets the error once the command and its sandbox have ended, but does not wait for an engine
  // that does not answer.
  async #gone(): Promise<boolean> {
    const late = (): Error => new Error('the sandbox is still being removed');
    // A persistent sandbox is not removed with its command.
    const over: Promise<unknown> = this.#parts.stays
      ? Promise.all([this.#removed, this.#execution.dead])
      : this.#removed;
    return inTime(this.#parts.host.telemetry.clock, GIVEN_UP_MS, over, late).then(
      () => true,
      () => false,
    );
  }

  #outcome(): OutcomeParts {
    const { host, operation, planned, sandbox, captures, timings, intent, warm } = this.#parts;
    const runMs = host.telemetry.clock.monotonic() - this.#handedOver;
    return {
      spec: planned.spec,
      containerId: sandbox.id,
      correlationId: operation.correlationId,
      auditSequence: intent.seq,
      captures,
      timings: { ...timings, runMs },
      ports: this.ports,
      warm,
    };
  }

  get #diskCut(): DiskCut | null {
    return this.#diskLimits.find(({ cut }) => cut !== null)?.cut ?? null;
  }

  // Adds each denial to the result, with what the user can do about it.
  #deny(result: RunResult, { oomKilled, pidsRefused }: Ending): void {
    const { planned, cwd, command } = this.#parts;
    const { exitCode, stdout, stderr, timedOut } = result;
    const denials = denialsOf({
      policy: planned.policy,
      spec: planned.spec,
      cwd,
      command,
      exitCode,
      stdout,
      stderr,
      timedOut,
      oomKilled,
      pidsRefused,
      droppedBytes: result.dropped.stdout + result.dropped.stderr,
      networkCut: this.#networkLimit.cut,
      connections: result.network ?? [],
      diskCut: this.#diskCut,
      spent: timedOut ? null : this.#spent,
    });
    result.denials = [...denials.network, ...denials.other];
    recordDenials(this.#parts, result.sandboxId, denials);
  }

  #ran(): Pick<EndedRun, 'mounts' | 'sinceMs' | 'rest' | 'clockOffset' | 'absent' | 'persistent'> {
    const { planned, sinceMs, rest, stays = false } = this.#parts;
    const { mounts } = planned.spec;
    return { mounts, sinceMs, rest, clockOffset: this.#clockOffset, absent: this.#absent, persistent: stays };
  }

  // A sandbox ends with its command, and so do all its processes. Its removal is postponed, so that the engine’s work
  // does not slow down the scan. A sandbox that does not end soon is removed now, which ends it.
  async #lookForRisk(result: RunResult): Promise<void> {
    const { host, timings } = this.#parts;
    const { clock } = host.telemetry;
    const tookMs = timings.queueMs + timings.obtainMs + clock.monotonic() - this.#handedOver;
    const brought = (result.artifacts ?? []).some(({ files }) => files > 0);
    const ended = { ...this.#ran(), dead: this.#execution.dead, tookMs, brought };
    const cancel = clock.after(result.timedOut ? 0 : ENDS_SOON_MS, () => this.#end());
    try {
      this.#addScan(result, await changesOfRun(ended, clock));
      await this.#endFork(result);
    } finally {
      cancel();
      this.#end();
    }
  }

  // Once nothing of the sandbox runs, what it wrote is complete.
  async #endFork(result: RunResult): Promise<void> {
    const { host, planned, stays } = this.#parts;
    // A persistent sandbox has one layer, until it is removed.
    if (planned.fork === undefined || stays) return;
    const left = await endFork(host, planned.fork, this.#execution.dead, () => this.#collect());
    if (left) result.fork = left;
  }

  async #collect(): Promise<void> {
    const { backend, spec } = this.#parts.planned;
    await backend.collect?.(spec);
  }

  // What a command wrote until it was cancelled is a part of the fork too.
  async #leaveFork(gone: boolean): Promise<void> {
    const { host, planned, stays } = this.#parts;
    if (planned.fork === undefined || stays) return;
    const ending = endFork(host, planned.fork, this.#removed, () => this.#collect());
    host.keep(ending);
    if (gone) await ending;
  }

  #addScan(result: RunResult, scan: RunScan): void {
    addScan(result, scan);
    if (scan.rest) continueScan(this.#parts, result, scan.rest);
  }

  // A cancelled run still returns the output so far. A command can also end its own sandbox: the scan then runs once
  // nothing in it is running any more.
  async #withPartialResult(error: unknown, gone: boolean): Promise<unknown> {
    const { signal, planned, host, sinceMs } = this.#parts;
    if (!signal.aborted && !isGone(error)) return error;
    const result = partialResult(this.#outcome());
    await this.#endNetwork(result);
    if (signal.aborted) {
      this.#addScan(result, changesOfCancelledRun(planned.spec.mounts, sinceMs, gone, this.#ran()));
      return new AcodeError('ACODE-SBX-014', { result }, { cause: cancelled(error).cause });
    }
    if (!isGone(error)) return error;
    const { over = this.#execution.dead } = this.#execution;
    const ended = { ...this.#ran(), dead: over, tookMs: result.durationMs };
    this.#addScan(result, await changesOfRun(ended, host.telemetry.clock));
    recordRisk(this.#parts.operation, planned.spec.identity.sandboxId, result.riskyChanges);
    return new AcodeError('ACODE-SBX-025', { ...error.context, result }, { cause: error });
  }

  // Includes the note that the scan is incomplete.
  #neverStarted(why: NonNullable<Ending['neverStarted']>, { exitCode, riskyChanges }: RunResult): AcodeError {
    const { command, planned, request, egress } = this.#parts;
    const found = riskyChanges.length > 0 ? { riskyChanges } : {};
    if (why === 'network') return notStarted(planned.spec, egress);
    if (why === 'cwd')
      return new AcodeError('ACODE-SBX-017', {
        field: 'cwd',
        reason: `${request.cwd ?? '.'} is not a directory the sandbox can enter`,
        ...found,
      });
    if (why === 'ended')
      return new AcodeError('ACODE-SBX-006', {
        name: planned.spec.identity.name,
        reason: `its shell ended with status ${exitCode} before the command began`,
        ...found,
      });
    const program = typeof command === 'string' ? '/bin/sh' : (command[0] ?? '');
    return new AcodeError('ACODE-SBX-015', {
      command: program,
      reason: WHY_NOT[why],
      ...(usesEngine(planned.spec.level)
        ? { image: planned.spec.image.reference }
        : { image: 'this host', imageless: true }),
      ...found,
    });
  }

  // A command may end without reading all of its input. That is not an error, so write failures are ignored.
  async #feed(): Promise<void> {
    const { stdin } = this.#parts.request;
    if (stdin === undefined && this.#parts.stdinStaysOpen) return;
    try {
      if (stdin instanceof Readable) await this.#pipe(stdin);
      else if (stdin !== undefined) await this.#execution.write(stdin);
    } catch {
      // An input stream that fails counts as ended; the command’s own end reports what happened.
    }
    await this.#execution.closeStdin();
  }

  // Destroys the input stream when the command ends: a stream that never ends must not block the run.
  async #pipe(source: Readable): Promise<void> {
    const stop = (): void => void source.destroy();
    this.#execution.ended.then(stop, stop);
    for await (const chunk of source as AsyncIterable<Uint8Array | string>) await this.#execution.write(chunk);
  }
}

function isGone(error: unknown): error is AcodeError<'ACODE-SBX-025'> {
  return error instanceof AcodeError && error.is('ACODE-SBX-025');
}

function diskRules({ spec, policy, earlierBytes = 0 }: Pick<Planned, 'spec' | 'policy' | 'earlierBytes'>): DiskRules[] {
  const overlays = spec.mounts.flatMap(({ overlay }) => overlay ?? []);
  const forks =
    overlays.length === 0
      ? []
      : [
          {
            of: 'fork',
            directories: directoriesOf(overlays),
            limitBytes: spec.disk?.bytes ?? null,
            earlierBytes,
          } as const,
        ];
  const states = spec.mounts
    .filter(({ purpose }) => purpose === 'state')
    .map(({ source }) => {
      const directories = { store: source, live: [source], work: [], earlier: [] };
      return {
        of: 'state',
        directories,
        limitBytes: policy.state.value?.bytes ?? STATE_BYTES,
        earlierBytes: 0,
      } as const;
    });
  return [...forks, ...states];
}

function leftSomething({ riskyChanges }: RunResult): boolean {
  return riskyChanges.some(({ kind }) => kind !== 'scan-incomplete');
}

function noop(): void {}

const WHY_NOT = { missing: 'not found', forbidden: 'not executable' } as const;

/** The parts from which a result is built. */
export interface OutcomeParts {
  readonly spec: SandboxSpec;
  readonly containerId: string;
  readonly correlationId: string;
  readonly auditSequence: number;
  readonly captures: { readonly stdout: Capture; readonly stderr: Capture };
  readonly timings: RunResult['timings'];
  readonly ports: readonly PublishedPort[];
  /** Whether the sandbox came from the warm pool. */
  readonly warm: boolean;
}

/** Which of acode’s own limits ended a command. */
interface Cuts {
  readonly timedOut: boolean;
  readonly isDiskCut: boolean;
  readonly spent: SpentBudget | null;
}

/** The result of a command that ended. */
function resultOf(parts: OutcomeParts, ending: Ending, cuts: Cuts): RunResult {
  const { timedOut, spent } = cuts;
  const limitExceeded = exceeded(ending, cuts, parts.captures);
  return {
    ...partialResult(parts),
    exitCode: timedOut || spent !== null ? null : ending.exitCode,
    timedOut,
    oomKilled: ending.oomKilled,
    ...(limitExceeded ? { limitExceeded } : {}),
    ...(ending.usage ? { usage: ending.usage } : {}),
  };
}

/** The part of the result that is known if a command was cancelled. */
function partialResult(parts: OutcomeParts): RunResult {
  const { spec, containerId, correlationId, auditSequence, captures, ports, warm } = parts;
  const timings = {
    queueMs: readable(parts.timings.queueMs),
    obtainMs: readable(parts.timings.obtainMs),
    runMs: readable(parts.timings.runMs),
  };
  const stdout = decodeOutput(captures.stdout.bytes(), captures.stdout.dropped > 0);
  const stderr = decodeOutput(captures.stderr.bytes(), captures.stderr.dropped > 0);
  return {
    exitCode: null,
    stdout: stdout.text,
    stderr: stderr.text,
    ...(stdout.bytes ? { stdoutBytes: stdout.bytes } : {}),
    ...(stderr.bytes ? { stderrBytes: stderr.bytes } : {}),
    dropped: { stdout: captures.stdout.dropped, stderr: captures.stderr.dropped },
    timedOut: false,
    oomKilled: false,
    denials: [],
    sandboxId: spec.identity.sandboxId,
    ...(usesEngine(spec.level) ? { containerId } : {}),
    level: spec.level,
    ...(spec.runtime === null ? {} : { runtime: spec.runtime }),
    ...(usesEngine(spec.level) ? { image: { reference: spec.image.reference, digest: spec.image.digest } } : {}),
    durationMs: timings.runMs,
    timings,
    warm,
    riskyChanges: [],
    changed: NO_CHANGES,
    scan: 'complete',
    ...maskedIn(spec),
    ...(ports.length > 0 ? { ports: [...ports] } : {}),
    correlationId,
    auditSequence,
  };
}

/** Adds the findings of the workspace scan to a result. */
function addScan(result: RunResult, { riskyChanges, changed, complete }: Scan): void {
  result.riskyChanges = [...riskyChanges];
  result.changed = changed;
  result.scan = complete ? 'complete' : 'incomplete';
}

// The limit that best explains the end: one that killed the command takes precedence over one that only restricted it.
function exceeded(
  ending: Ending,
  { timedOut, isDiskCut, spent }: Cuts,
  { stdout, stderr }: OutcomeParts['captures'],
): LimitName | undefined {
  if (isDiskCut) return 'disk';
  if (timedOut) return 'time';
  if (spent !== null) return spent;
  if (ending.oomKilled) return 'memory';
  if (ending.pidsRefused) return 'pids';
  return stdout.dropped + stderr.dropped > 0 ? 'output' : undefined;
}
